//! System calls that no library wraps safely. All of them run in the sandbox, whose processes have one thread each.
#![expect(unsafe_code, reason = "raw system calls; each block says why it is sound")]

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use linux_raw_sys::general::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, mount_attr};
use linux_raw_sys::loop_device::{LO_FLAGS_AUTOCLEAR, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, loop_config, loop_info64};
use rustix::process::Pid;

/// Ends this process at once: no destructors, no buffers. Right for a fork, which must not run those of its parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Forks; the child runs `child` and ends with what that returns. The caller must be the only thread of its process.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: sandbox processes have one thread (none is ever started in them; a test program that is the sandbox has a second one,
    // which only waits), so no lock can be held by a thread that the child lacks.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => exit_now(child()),
        nix::unistd::ForkResult::Parent { child } => Ok(Pid::from_raw(child.as_raw()).expect("a child is not 0")),
    }
}

/// What `wait4` says of an ended child.
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

/// Waits for a child and returns the resources it took.
pub(crate) fn wait_with_usage(child: Pid) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for writing during the call.
        let ended = unsafe { libc::wait4(child.as_raw_nonzero().get(), &raw mut status, 0, &raw mut usage) };
        if ended >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(Ended { status, user: duration(usage.ru_utime), system: duration(usage.ru_stime) })
}

/// Takes over the socket that [`spawn`](crate::spawn) puts at a fixed number.
pub(crate) fn adopt_descriptor(number: i32) -> OwnedFd {
    // SAFETY: called once, first thing in the sandbox, where that number is ours by construction.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Starts to write a range of a file to its disk, and does not wait for it. That it cannot is of no consequence.
pub(crate) fn start_writing(file: &File, at: u64, length: u64) {
    let (Ok(at), Ok(length)) = (i64::try_from(at), i64::try_from(length)) else { return };
    // SAFETY: the descriptor is open, and the call takes no memory of ours.
    let _only_advice = unsafe { libc::sync_file_range(file.as_raw_fd(), at, length, libc::SYNC_FILE_RANGE_WRITE) };
}

/// What to change on a mount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MountChange {
    pub(crate) read_only: bool,
    pub(crate) no_devices: bool,
    pub(crate) recursive: bool,
    pub(crate) private: bool,
}

/// Changes attributes of the mount at a descriptor, or of the one at `/` below it, without touching the others of its superblock.
pub(crate) fn change_mount(mount: BorrowedFd<'_>, change: MountChange) -> io::Result<()> {
    let mut attributes = mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    if change.read_only {
        attributes.attr_set |= u64::from(MOUNT_ATTR_RDONLY);
    }
    if change.no_devices {
        attributes.attr_set |= u64::from(MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    }
    if change.private {
        attributes.propagation = libc::MS_PRIVATE;
    }
    let flags = libc::AT_EMPTY_PATH | if change.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid string, and the structure is valid and as long as it says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

nix::ioctl_none_bad!(loop_get_free, LOOP_CTL_GET_FREE);
nix::ioctl_write_ptr_bad!(loop_configure_raw, LOOP_CONFIGURE, loop_config);
nix::ioctl_readwrite!(fitrim_raw, b'X', 121, linux_raw_sys::general::fstrim_range);

/// Asks for the number of a free loop device. By the time it is opened, somebody else may have it.
pub(crate) fn free_loop_number(control: BorrowedFd<'_>) -> nix::Result<u32> {
    // SAFETY: this request takes no argument.
    unsafe { loop_get_free(control.as_raw_fd()) }.map(|number| number as u32)
}

/// Binds a part of a file to a loop device in one step, to be unbound by the kernel after the last close.
pub(crate) fn configure_loop(device: BorrowedFd<'_>, disk: BorrowedFd<'_>, offset: u64, size: u64) -> nix::Result<()> {
    // SAFETY: `loop_info64` is plain numbers and bytes, for which zero is a value.
    let mut info: loop_info64 = unsafe { std::mem::zeroed() };
    info.lo_offset = offset;
    info.lo_sizelimit = size;
    info.lo_flags = LO_FLAGS_AUTOCLEAR as u32;
    let config = loop_config { fd: disk.as_raw_fd() as u32, block_size: 512, info, __reserved: [0; 8] };
    // SAFETY: the kernel reads one `loop_config`, which is valid during the call.
    unsafe { loop_configure_raw(device.as_raw_fd(), &raw const config) }.map(drop)
}

/// Tells the disk which blocks of a mounted filesystem are free.
pub(crate) fn trim(root: BorrowedFd<'_>) -> nix::Result<()> {
    let mut range = linux_raw_sys::general::fstrim_range { start: 0, len: u64::MAX, minlen: 0 };
    // SAFETY: the kernel reads and writes one `fstrim_range`, which is valid during the call.
    unsafe { fitrim_raw(root.as_raw_fd(), &raw mut range) }.map(drop)
}

/// Gives every signal its default meaning back and blocks none, as a program expects when it starts.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action is valid for every signal; those that refuse (KILL, STOP, glibc's own) have it anyway.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // Cannot fail: the set is valid.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Ignores the signals that terminals and service managers send to whole groups: only the owner may react to them.
pub(crate) fn ignore_polite_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: ignoring is valid for these signals.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Takes all capabilities but these from the bounding set, and so from every program executed from here on.
pub(crate) fn keep_capabilities(kept: &[caps::Capability]) -> io::Result<()> {
    // What a program inherits it gets beside the bounding set, not within it.
    for set in [caps::CapSet::Ambient, caps::CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    // By number, up to the kernel's last: it may know some that the library does not.
    for number in 0u8..64 {
        if kept.iter().any(|capability| capability.index() == number) {
            continue;
        }
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

/// Lets the calls that wait for a disk return 0 at once, in this process and all it starts.
pub(crate) fn suppress_sync() -> io::Result<()> {
    load_filter(sync_filter())
}

/// Takes the kernel's keyrings away from this process and all it starts. Their user is the host's root, and so would be the
/// tickets and passwords in them.
pub(crate) fn hide_keyrings() -> io::Result<()> {
    load_filter(keyring_filter())
}

fn keyring_filter() -> Vec<libc::sock_filter> {
    filter(&[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key], libc::ENOSYS as u32)
}

/// Written by hand for one reason: the usual filter builders end programs of another architecture (a 32-bit installer, say),
/// and here those must simply keep their real calls.
fn load_filter(mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is valid during the call, and the kernel copies and checks it. It needs no `no_new_privs` because the
    // caller still has CAP_SYS_ADMIN.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7; // AUDIT_ARCH_AARCH64

fn sync_filter() -> Vec<libc::sock_filter> {
    let calls = [
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_sync,
        libc::SYS_syncfs,
        libc::SYS_msync,
        libc::SYS_sync_file_range,
    ];
    filter(&calls, 0) // error number 0: success
}

/// A program that answers these calls with an error number, and lets all others through.
fn filter(calls: &[libc::c_long], errno: u32) -> Vec<libc::sock_filter> {
    let load = |offset: usize| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32, 0, 0);
    let equal = |value: u32, yes, no| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, yes, no);
    let answer = |value: u32| instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0);

    let count = calls.len() as u8;
    let mut program = vec![
        load(std::mem::offset_of!(libc::seccomp_data, arch)),
        equal(ARCHITECTURE, 0, count + 1), // another one: to "allow"
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
    ];
    program.extend(calls.iter().zip((1..=count).rev()).map(|(&call, to_suppress)| equal(call as u32, to_suppress, 0)));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_ERRNO | errno));
    program
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Switches the loopback device of this network namespace on.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: `ifreq` is plain bytes and numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads one `ifreq`, which is valid during the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces this process by a program; returns only if that failed. Without a slash, the program is looked up in `PATH` of the
/// environment given, not of this process.
pub(crate) fn execute(
    program: &OsStr,
    arguments: &[CString],
    environment: &[CString],
    path: &OsStr,
) -> nix::errno::Errno {
    use nix::errno::Errno;

    let execute_at = |path: &CStr| match nix::unistd::execve(path, arguments, environment) {
        Err(errno) => errno,
        Ok(never) => match never {},
    };
    if program.as_bytes().contains(&b'/') {
        return CString::new(program.as_bytes()).map_or(Errno::EINVAL, |path| execute_at(&path));
    }
    let mut refused = Errno::ENOENT;
    for folder in path.as_bytes().split(|&byte| byte == b':') {
        let Ok(path) = CString::new([folder, b"/", program.as_bytes()].concat()) else { return Errno::EINVAL };
        match execute_at(&path) {
            Errno::ENOENT | Errno::ENOTDIR => {}
            // As shells do: look further, but remember that there was something.
            Errno::EACCES => refused = Errno::EACCES,
            errno => return errno,
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn answer(program: &[libc::sock_filter], architecture: u32, call: i64) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    accumulator = if step.k == 0 { call as u32 } else { architecture };
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if accumulator == step.k { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
        }
    }

    #[test]
    fn the_filter_suppresses_syncs_and_nothing_else() {
        for call in 0..600 {
            let syncs = [
                libc::SYS_fsync,
                libc::SYS_fdatasync,
                libc::SYS_sync,
                libc::SYS_syncfs,
                libc::SYS_msync,
                libc::SYS_sync_file_range,
            ];
            let expected = if syncs.contains(&call) { libc::SECCOMP_RET_ERRNO } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(&sync_filter(), ARCHITECTURE, call), expected, "call {call}");
            let foreign = answer(&sync_filter(), 0x4000_0003, call);
            assert_eq!(foreign, libc::SECCOMP_RET_ALLOW, "call {call} of a 32-bit program");
        }
    }

    #[test]
    fn the_keyrings_are_as_in_a_kernel_without_them() {
        let there_is_none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        for call in 0..600 {
            let keyrings = [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key];
            let expected = if keyrings.contains(&call) { there_is_none } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(&keyring_filter(), ARCHITECTURE, call), expected, "call {call}");
        }
    }
}
