//! Starts the first process of the sandbox. The only `clone` of the crate.
#![expect(unsafe_code, reason = "`clone` with shared memory, and what its child may do before it executes")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use tokio::sync::{oneshot, watch};

use crate::command::Network;
use crate::entry::{Entry, SANDBOX_NAME};
use crate::error::{Attempt, SandboxError, SystemError};
use crate::wire::retry;

/// Where the child finds its end of the socket.
pub(crate) const SOCKET_NUMBER: RawFd = 3;
/// The child makes a handful of system calls on it.
const STACK: usize = 64 * 1024;

/// The first process of a sandbox. Dropping this kills it, and with it everything inside.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    handle: Arc<OwnedFd>,
    ended: watch::Receiver<Option<String>>,
}

impl Child {
    /// Kills the child. The kernel then ends every process of its namespace, and with them all mounts and loops.
    pub(crate) fn kill(&self) {
        // Fails only when it is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// Waits until the child and all it held are gone, and says how it ended.
    pub(crate) async fn ended(&mut self) -> String {
        match self.ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().expect("waited for"),
            Err(_) => "its end was not seen".to_owned(),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts this program again as the first process of new namespaces.
///
/// A thread of its own clones and then waits: the child's death signal follows the thread that made it, not the process.
pub(crate) async fn spawn(entry: &Entry, network: Network, socket: OwnedFd) -> Result<Child, SandboxError> {
    let prepared = Prepared::new(entry, network, &socket)?;
    let (started_sender, started) = oneshot::channel();
    let (ended_sender, ended) = watch::channel(None);
    std::thread::Builder::new()
        .name("sandbox-wait".to_owned())
        .spawn(move || {
            // Signals for the process are for its other threads; this one must not end early, nor run a handler in the child.
            let _ = nix::sys::signal::SigSet::all().thread_block();
            let cloned = prepared.clone_child();
            drop((prepared, socket));
            let (pid, handle) = match cloned {
                Ok((pid, handle)) => (pid, Arc::new(handle)),
                Err(error) => {
                    let _ = started_sender.send(Err(error));
                    return;
                }
            };
            let unwanted = started_sender.send(Ok((pid, handle.clone()))).is_err();
            if unwanted {
                let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
            }
            let status = retry(|| rustix::process::waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED));
            let _ = ended_sender.send(Some(describe(status)));
        })
        .attempt("start a thread")?;
    let (pid, handle) = started.await.expect("the thread sends before it ends")?;
    Ok(Child { pid, handle, ended })
}

fn describe(status: rustix::io::Result<Option<rustix::process::WaitIdStatus>>) -> String {
    match status {
        Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (_, Some(signal)) => format!("signal {signal}"),
            _ => "unknown".to_owned(),
        },
        Ok(None) => "unknown".to_owned(),
        Err(errno) => format!("its end was not seen: {errno}"),
    }
}

/// All that the child needs, made before it exists: it shares this memory, and may not allocate.
struct Prepared {
    flags: c_int,
    program: OwnedFd,
    null: OwnedFd,
    socket: OwnedFd,
    arguments: Strings,
    environment: Strings,
    /// Where the child leaves the error of its `exec`.
    error: AtomicI32,
}

impl Prepared {
    fn new(entry: &Entry, network: Network, socket: &OwnedFd) -> Result<Prepared, SystemError> {
        // Opened rather than named, so that it works when the program was replaced on disk meanwhile.
        let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .attempt("open this program")?;
        let null =
            rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).attempt("open `/dev/null`")?;
        // Out of the way of the numbers that the child fills.
        let high = |descriptor: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 10).attempt("copy a descriptor");
        let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let network = match network {
            Network::Host => 0,
            Network::None => libc::CLONE_NEWNET,
        };
        let mut arguments = vec![SANDBOX_NAME.to_owned()];
        if let Entry::Test(path) = entry {
            // The test harness knows the test by its path without the crate's name.
            let test = path.split_once("::").map_or(*path, |(_, test)| test);
            arguments.extend(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned));
        }
        Ok(Prepared {
            // Sharing memory until it executes makes the start independent of the size of this process.
            flags: libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | namespaces | network,
            program: high(&program)?,
            null: high(&null)?,
            socket: high(socket)?,
            arguments: Strings::new(arguments),
            environment: Strings::new(vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(), "LC_ALL=C".to_owned()]),
            error: AtomicI32::new(0),
        })
    }

    /// Clones and returns once the child has executed this program.
    fn clone_child(&self) -> Result<(u32, OwnedFd), SandboxError> {
        let mut stack = vec![0u128; STACK / size_of::<u128>()];
        let mut handle: c_int = -1;
        // SAFETY: the stack is aligned and outlives the child's use of it, as do `self` and `handle`: CLONE_VFORK holds this thread
        // until the child has executed or ended. The child touches nothing but `self`, and calls only what is safe after a fork.
        let pid = unsafe {
            libc::clone(
                become_sandbox,
                stack.as_mut_ptr_range().end.cast::<c_void>(),
                self.flags,
                std::ptr::from_ref(self).cast_mut().cast::<c_void>(),
                &raw mut handle,
            )
        };
        if pid < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.kind() {
                io::ErrorKind::PermissionDenied => SandboxError::NotAllowed(error.into()),
                _ => Err::<(), _>(error).attempt("make namespaces").expect_err("is an error").into(),
            });
        }
        // SAFETY: CLONE_PIDFD put a fresh descriptor there.
        let handle = unsafe { OwnedFd::from_raw_fd(handle) };
        match self.error.load(Ordering::Relaxed) {
            0 => Ok((pid as u32, handle)),
            error => {
                let _ = retry(|| rustix::process::waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED));
                let error = io::Error::from_raw_os_error(error);
                Err(Err::<(), _>(error).attempt("execute this program again").expect_err("is an error").into())
            }
        }
    }
}

/// Runs in the child, on memory shared with the parent: system calls only, no allocation, no lock.
extern "C" fn become_sandbox(prepared: *mut c_void) -> c_int {
    // SAFETY: the parent passed a `Prepared` that outlives the child's use of it; the calls take plain numbers and pointers into it.
    unsafe {
        let prepared = &*prepared.cast::<Prepared>();
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
        libc::dup2(prepared.null.as_raw_fd(), 0);
        libc::dup2(prepared.null.as_raw_fd(), 1);
        libc::dup2(prepared.socket.as_raw_fd(), SOCKET_NUMBER);
        libc::syscall(libc::SYS_close_range, SOCKET_NUMBER as u32 + 1, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        libc::syscall(
            libc::SYS_execveat,
            prepared.program.as_raw_fd(),
            c"".as_ptr(),
            prepared.arguments.pointers.as_ptr(),
            prepared.environment.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        prepared.error.store(*libc::__errno_location(), Ordering::Relaxed);
        libc::_exit(127)
    }
}

/// Strings as `exec` wants them: an array of pointers that ends with a null.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What the pointers point into.
    _strings: Vec<CString>,
}

// SAFETY: the pointers point into heap memory that the value itself owns and never changes.
unsafe impl Send for Strings {}

impl Strings {
    fn new(strings: Vec<String>) -> Strings {
        let strings: Vec<CString> =
            strings.into_iter().map(|string| CString::new(string).expect("our own words have no NUL")).collect();
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Strings { pointers, _strings: strings }
    }
}
