//! Runs one command in the root.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use caps::Capability;
use nix::sched::CloneFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use super::volume::Volume;
use super::{inside, pause};
use crate::command::{Capabilities, Command, Network, Sync};
use crate::error::{Attempt, RunError, SystemError};
use crate::holders;
use crate::kernel;
use crate::wire::{self, Request, RunReport, retry};

/// What installing packages needs (the first seven: an install without one of them fails, or leaves wrong files without a word), and
/// what is harmless in here. None of them reaches the host.
const PACKAGE: [Capability; 13] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
    Capability::CAP_SETFCAP,
    Capability::CAP_KILL,
    Capability::CAP_SETPCAP,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_MKNOD,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_NET_BIND_SERVICE,
];

/// What services get from systemd. Far more makes old package managers, which close every possible descriptor, take hours.
const OPEN_FILES: (u64, u64) = (1024, 524_288);

/// How long the members of a killed group may take to be gone.
const GROUP_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a command and waits for its end, its time limit, or the owner's cancel.
pub(super) fn run(
    volume: &Volume,
    socket: BorrowedFd<'_>,
    number: u32,
    command: &Command,
    descriptors: Vec<OwnedFd>,
) -> Result<RunReport, RunError> {
    let started = Instant::now();
    let running = start(volume.inside.as_fd(), command, descriptors)?;
    let verdict = supervise(&running, socket, number, command, started);
    if verdict.is_err() {
        running.signal_group(Signal::KILL);
    }
    let ended = kernel::wait_with_usage(running.pid).attempt("wait for the command")?;
    if !matches!(verdict, Ok(Verdict::Ended)) {
        running.wait_for_group();
    }
    if verdict? == Verdict::TooLong {
        let limit = command.time_limit.unwrap_or_default();
        return Err(RunError::TimeLimit { command: command.display(), limit });
    }
    Ok(RunReport {
        status: ended.status,
        elapsed: started.elapsed(),
        user: ended.user,
        system: ended.system,
        still_running: holders::in_sandbox()?,
    })
}

struct Running {
    pid: Pid,
    handle: OwnedFd,
}

impl Running {
    fn signal_group(&self, signal: Signal) {
        // Fails only when the whole group is gone already. Until it is waited for, its number is not given to another.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Waits until a killed group is gone, its leader having been waited for: a signal is sent at once, a process ends when it is
    /// next scheduled. One that hangs in the kernel is left to be found by whoever asks for the holders.
    fn wait_for_group(&self) {
        let patience = Instant::now() + GROUP_PATIENCE;
        while rustix::process::test_kill_process_group(self.pid).is_ok() && Instant::now() < patience {
            pause(Duration::from_millis(1));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Ended,
    TooLong,
    Unwanted,
}

/// Waits until the command ended; ends it when its time is over or the owner no longer wants it.
fn supervise(
    running: &Running,
    socket: BorrowedFd<'_>,
    number: u32,
    command: &Command,
    started: Instant,
) -> Result<Verdict, SystemError> {
    let mut verdict = Verdict::Ended;
    let mut terminate_at = command.time_limit.map(|limit| started + limit);
    let mut kill_at = None;
    loop {
        let next = match (kill_at, terminate_at) {
            (Some(at), _) | (None, Some(at)) => Some(timespec(at.saturating_duration_since(Instant::now()))),
            (None, None) => None,
        };
        // Once the command is to end, what comes next is another request, and not for here.
        let listen = if kill_at.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut events = [PollFd::new(&running.handle, PollFlags::IN), PollFd::from_borrowed_fd(socket, listen)];
        retry(|| poll(&mut events, next.as_ref())).attempt("wait for the command")?;
        let ended = !events[0].revents().is_empty();
        let told = events[1].revents().contains(PollFlags::IN);
        if ended {
            if kill_at.is_some() {
                // The group may be more than its leader.
                running.signal_group(Signal::KILL);
            }
            return Ok(verdict);
        }

        let now = Instant::now();
        let mut unwanted = false;
        if told {
            match wire::receive(socket).attempt("hear from the owner")? {
                // The owner ended: so will we, in a moment.
                None => kernel::exit_now(0),
                Some(message) => {
                    unwanted = matches!(message.decode(), Ok(Request::Cancel(cancelled)) if cancelled == number);
                }
            }
        }
        if terminate_at.is_some_and(|at| at <= now) {
            verdict = Verdict::TooLong;
            unwanted = true;
        }
        if unwanted && kill_at.is_none() {
            if verdict == Verdict::Ended {
                verdict = Verdict::Unwanted;
            }
            running.signal_group(Signal::TERM);
            (terminate_at, kill_at) = (None, Some(now + command.grace));
        }
        if kill_at.is_some_and(|at| at <= now) {
            running.signal_group(Signal::KILL);
            // Once more, for those forked meanwhile.
            kill_at = Some(now + Duration::from_millis(100));
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Starts the command; an error means that its program was never executed.
fn start(inside: BorrowedFd<'_>, command: &Command, descriptors: Vec<OwnedFd>) -> Result<Running, RunError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    let prepared = Prepared::new(inside, command, descriptors)?;
    // Closed by a successful `exec`; else it says what went wrong.
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).attempt("make a socket")?;
    let pid = kernel::fork(|| {
        let error = match prepared.become_command() {
            Err(error) => RunError::System(error),
            Ok(errno) => RunError::Start { command: command.display(), source: errno.into() },
        };
        let _ = wire::send(&there, 0, &error, &[]);
        127
    })
    .attempt("start a process")?;
    drop(there);
    drop(prepared);
    match wire::receive(&here).attempt("hear from the command")? {
        None => {}
        Some(message) => {
            let _ = kernel::wait_with_usage(pid);
            return Err(message.decode().attempt("hear from the command")?);
        }
    }
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).attempt("watch the command")?;
    Ok(Running { pid, handle })
}

struct Prepared<'a> {
    inside: BorrowedFd<'a>,
    command: &'a Command,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    stdin: Option<OwnedFd>,
}

impl<'a> Prepared<'a> {
    fn new(inside: BorrowedFd<'a>, command: &'a Command, descriptors: Vec<OwnedFd>) -> Result<Self, SystemError> {
        let mut descriptors = descriptors.into_iter();
        let (Some(stdout), Some(stderr)) = (descriptors.next(), descriptors.next()) else {
            return Err(Errno::BADF).attempt("receive the command's output");
        };
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Errno::INVAL).attempt("pass a NUL to a command");
        let words = std::iter::once(&command.program).chain(&command.arguments);
        let pair = |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        Ok(Prepared {
            inside,
            command,
            arguments: words.map(|word| text(word.as_bytes().to_vec())).collect::<Result<_, _>>()?,
            environment: command.environment.iter().map(|entry| text(pair(entry))).collect::<Result<_, _>>()?,
            stdout,
            stderr,
            stdin: descriptors.next(),
        })
    }

    /// Becomes the command; in a fresh child. Returns only if that failed: with the error of the `exec`, or of a step before it.
    fn become_command(&self) -> Result<nix::errno::Errno, SystemError> {
        rustix::process::setsid().attempt("make a session")?;
        inside::enter(self.inside)?;
        self.take_descriptors()?;
        let folder = self.command.working_directory.as_path();
        rustix::process::chdir(folder).attempt(format!("enter `{}`", folder.display()))?;
        kernel::reset_signals();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        limit_resources()?;
        if self.command.network == Network::None {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).attempt("make a network namespace")?;
            // Some packages' scripts fail without one.
            kernel::loopback_up().attempt("switch the loopback device on")?;
        }
        if self.command.sync == Sync::Suppressed {
            kernel::suppress_sync().attempt("suppress syncs")?;
        }
        kernel::hide_keyrings().attempt("hide the keyrings")?;
        let kept = match &self.command.capabilities {
            Capabilities::Package => PACKAGE.as_slice(),
            Capabilities::Only(some) => some,
        };
        // Last, for the steps above need them. Programs that root executes get the bounding set.
        kernel::keep_capabilities(kept).attempt("drop capabilities")?;
        let path = self.command.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(OsStr::new("/usr/bin:/bin"), |(_, value)| value);
        Ok(kernel::execute(&self.command.program, &self.arguments, &self.environment, path))
    }

    fn take_descriptors(&self) -> Result<(), SystemError> {
        let attempt = || "prepare standard input and output";
        // The root's own: what a command does to the host's node would stay.
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).attempt(attempt())?;
        rustix::stdio::dup2_stdin(self.stdin.as_ref().unwrap_or(&null)).attempt(attempt())?;
        rustix::stdio::dup2_stdout(&self.stdout).attempt(attempt())?;
        rustix::stdio::dup2_stderr(&self.stderr).attempt(attempt())
    }
}

fn limit_resources() -> Result<(), SystemError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).attempt("limit core files")?;
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(OPEN_FILES.1);
    let files = Rlimit { current: Some(hard.min(OPEN_FILES.0)), maximum: Some(hard) };
    rustix::process::setrlimit(Resource::Nofile, files).attempt("limit open files")
}
