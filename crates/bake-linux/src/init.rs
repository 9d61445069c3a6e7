//! Process 1 of the sandbox: makes the namespaces fit to work in, starts the worker, then only waits.
//!
//! It reaps every orphan, and it ends when the owner hangs up; the kernel then ends everything else. It never blocks on a disk,
//! so that it sees the hang-up even when the worker cannot.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, WaitOptions};
use sys_mount::{Mount, MountFlags};

use crate::command::Network;
use crate::error::{Attempt, SystemError};
use crate::kernel::{self, MountChange};
use crate::spawn::SOCKET_NUMBER;
use crate::wire::{self, Request, retry};
use crate::worker;

/// Is the sandbox; never returns.
pub(crate) fn run() -> ! {
    if std::process::id() != 1 {
        eprintln!("this name is for the sandbox that `bake` starts by itself");
        kernel::exit_now(2);
    }
    kernel::exit_now(serve(kernel::adopt_descriptor(SOCKET_NUMBER)))
}

/// Returns the code to end with.
fn serve(socket: OwnedFd) -> i32 {
    // Fresh from `exec`, so a failure here means a broken owner; there is nobody to tell but the exit code.
    if rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).is_err() {
        return 3;
    }
    let Ok(Some(message)) = wire::receive(&socket) else { return 0 };
    let Ok(Request::Setup { hostname, network }) = message.decode() else { return 3 };
    let children = match set_up(&hostname, network) {
        Ok(children) => children,
        Err(error) => {
            let _ = wire::send(&socket, message.number, &Err::<(), SystemError>(error), &[]);
            return 4;
        }
    };
    match kernel::fork(|| worker::serve(&socket, message.number)) {
        Ok(worker) => watch(&socket, &children, worker),
        Err(_) => 5,
    }
}

/// Prepares the namespaces. From here on no bug of ours can change the host's tree by path.
fn set_up(hostname: &str, network: Network) -> Result<SignalFd, SystemError> {
    SigSet::all().thread_block().attempt("block signals")?;
    let children: SigSet = [Signal::SIGCHLD].into_iter().collect();
    let children = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .attempt("watch for ended processes")?;
    rustix::process::chdir("/").attempt("enter `/`")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));

    // A slave rather than private: what the host unmounts is unmounted here too, and not pinned for as long as we live.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .attempt("separate the mounts from the host's")?;
    let tree = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).attempt("open `/`")?;
    kernel::change_mount(tree.as_fd(), MountChange { read_only: true, recursive: true, ..Default::default() })
        .attempt("make the host's tree read-only")?;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    Mount::builder()
        .fstype("proc")
        .flags(quiet | MountFlags::NOEXEC)
        .mount("proc", "/proc")
        .attempt("mount `/proc`")?;
    Mount::builder()
        .fstype("tmpfs")
        .flags(quiet)
        .data("mode=0700")
        .mount("bake", worker::WORKSHOP)
        .attempt(format!("mount a tmpfs on `{}`", worker::WORKSHOP))?;
    rustix::mount::mount_change(worker::WORKSHOP, MountPropagationFlags::PRIVATE)
        .attempt("keep the mounts of the volume private")?;

    nix::unistd::sethostname(OsStr::from_bytes(hostname.as_bytes())).attempt("set the host name")?;
    if network == Network::None {
        kernel::loopback_up().attempt("switch the loopback device on")?;
    }
    Ok(children)
}

/// Waits for the owner's hang-up or the worker's end, and reaps orphans. Returns the code to end with.
fn watch(socket: &OwnedFd, children: &SignalFd, worker: Pid) -> i32 {
    loop {
        let mut events = [PollFd::new(socket, PollFlags::RDHUP), PollFd::new(children, PollFlags::IN)];
        if retry(|| poll(&mut events, None)).is_err() {
            return 6;
        }
        if events[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return 0;
        }
        while let Ok(Some(_)) = children.read_signal() {}
        while let Ok(Some((pid, status))) = rustix::process::waitpid(None, WaitOptions::NOHANG) {
            if pid == worker {
                return status.exit_status().unwrap_or(7);
            }
        }
    }
}
