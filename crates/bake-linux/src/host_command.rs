//! Running the host's own programs: one way, for all of them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

use crate::command::pasteable;
use crate::holders::in_brackets;
use crate::wire::retry;

/// Nothing that a bake runs on the host takes longer, but for what says so.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// What is kept of the standard error for the message.
const LAST_LINES: usize = 10;
/// A line longer than this is passed on in pieces.
const LONGEST_LINE: usize = 16 * 1024;
/// How long a daemon that kept the output open is listened to after the program itself has ended.
const REST: Duration = Duration::from_millis(200);

/// A program of the host: an environment that starts empty but for `PATH`, `HOME` and `LC_ALL`, a time limit, and a process group of
/// its own, which ends when the program has, and when the future is dropped. The program itself also ends when this process is killed;
/// for all that it starts, too, there is the sandbox.
pub struct HostCommand {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    working_directory: PathBuf,
    time_limit: Duration,
    stdout: Option<File>,
    on_line: Option<LineFunction>,
}

type LineFunction = Box<dyn FnMut(&str) + Send>;

impl std::fmt::Debug for HostCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HostCommand").field(&self.display()).finish()
    }
}

/// What a program of the host left behind.
#[derive(Debug, Clone)]
pub struct HostOutput {
    /// Its standard output; empty if that went to a file.
    pub stdout: Vec<u8>,
    /// The last lines of its standard error.
    pub stderr: String,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a program of the host failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It is not installed.
    #[error("`{program}` is not installed on this host")]
    Missing {
        /// The program.
        program: String,
    },
    /// It could not be started or read from.
    #[error("cannot run `{command}`")]
    Io {
        /// The command, in a form that can be pasted.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It failed.
    #[error("`{command}` failed ({status}){}", in_brackets(stderr))]
    Failed {
        /// The command, in a form that can be pasted.
        command: String,
        /// Its exit code or signal.
        status: ExitStatus,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// It took too long.
    #[error("`{command}` was ended after its time limit of {} s{}", limit.as_secs_f32(), in_brackets(stderr))]
    TimeLimit {
        /// The command, in a form that can be pasted.
        command: String,
        /// Its limit.
        limit: Duration,
        /// The last lines of its standard error.
        stderr: String,
    },
}

impl HostCommand {
    /// Starts from a program: a path, or a name that is looked up in the system's folders.
    pub fn new(program: impl AsRef<OsStr>) -> HostCommand {
        let environment = [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
        HostCommand {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: environment
                .into_iter()
                .chain([("LC_ALL", "C.UTF-8")])
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            working_directory: PathBuf::from("/"),
            time_limit: TIME_LIMIT,
            stdout: None,
            on_line: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> HostCommand {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> HostCommand {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> HostCommand {
        self.environment.retain(|(known, _)| known != name.as_ref());
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the folder to start in; `/` if not set.
    pub fn working_directory(mut self, folder: impl AsRef<Path>) -> HostCommand {
        self.working_directory = folder.as_ref().to_owned();
        self
    }

    /// Sets how long it may take; ten minutes if not set.
    pub fn time_limit(mut self, limit: Duration) -> HostCommand {
        self.time_limit = limit;
        self
    }

    /// Sends the standard output to a file.
    pub fn stdout_to(mut self, file: File) -> HostCommand {
        self.stdout = Some(file);
        self
    }

    /// Gives each line of the standard output and the standard error to a function as it comes.
    pub fn on_line(mut self, line: impl FnMut(&str) + Send + 'static) -> HostCommand {
        self.on_line = Some(Box::new(line));
        self
    }

    /// Returns the command in a form that can be pasted into a shell.
    pub fn display(&self) -> String {
        pasteable(std::iter::once(&self.program).chain(&self.arguments))
    }

    /// Runs it to its end. An exit code other than 0 is an error. Dropping the future ends its process group.
    pub async fn run(mut self) -> Result<HostOutput, HostError> {
        let command = self.display();
        tracing::debug!(%command, "running on the host");
        let started = Instant::now();
        let mut running = self.start(&command)?;
        let mut output = Output { stdout: Vec::new(), last_lines: VecDeque::new(), on_line: self.on_line.take() };
        let followed = tokio::time::timeout(self.time_limit, output.follow(&mut running)).await;
        let status = match followed {
            Ok(Ok(status)) => status,
            Ok(Err(source)) => return Err(HostError::Io { command, source }),
            Err(_) => {
                let (limit, stderr) = (self.time_limit, output.last_lines());
                return Err(HostError::TimeLimit { command, limit, stderr });
            }
        };
        let (elapsed, stderr) = (started.elapsed(), output.last_lines());
        if status.success() {
            Ok(HostOutput { stdout: output.stdout, stderr, elapsed })
        } else {
            Err(HostError::Failed { command, status, stderr })
        }
    }

    fn start(&mut self, command: &str) -> Result<Running, HostError> {
        let mut program = std::process::Command::new(&self.program);
        program
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.working_directory)
            .stdin(Stdio::null())
            .stdout(self.stdout.take().map_or_else(Stdio::piped, Stdio::from))
            .stderr(Stdio::piped())
            .process_group(0);
        let no_such_program = self.working_directory.is_dir();
        Running::start(program).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if no_such_program => {
                HostError::Missing { program: self.program.to_string_lossy().into_owned() }
            }
            _ => HostError::Io { command: command.to_owned(), source },
        })
    }
}

/// A program whose process group ends when this is dropped.
struct Running {
    group: Arc<Group>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
}

impl Running {
    /// Starts a program from a thread of its own, which then waits for it: the signal that ends the program when this process is
    /// killed follows the thread that started it.
    fn start(mut program: std::process::Command) -> io::Result<Running> {
        end_with_parent(&mut program);
        let (started_sender, started) = std::sync::mpsc::channel();
        let (ended_sender, ended) = oneshot::channel();
        std::thread::Builder::new().name("host-command".to_owned()).spawn(move || {
            let mut child = match program.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = started_sender.send(Err(error));
                    return;
                }
            };
            // What was handed to the child is to be closed here.
            drop(program);
            let group = Arc::new(Group::of(&child));
            let _ = started_sender.send(Ok((group.clone(), child.stdout.take(), child.stderr.take())));
            let _ = ended_sender.send(group.wait(&mut child));
        })?;
        // For as long as `exec` takes.
        let (group, stdout, stderr) = started.recv().map_err(io::Error::other)??;
        let receiver = |descriptor: OwnedFd| Receiver::from_owned_fd(descriptor);
        Ok(Running {
            group,
            stdout: stdout.map(|stdout| receiver(stdout.into())).transpose()?,
            stderr: stderr.map(|stderr| receiver(stderr.into())).transpose()?,
            ended,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.kill();
    }
}

#[expect(unsafe_code, reason = "`pre_exec` runs in a forked child")]
fn end_with_parent(program: &mut std::process::Command) {
    // SAFETY: the function makes one system call and does not allocate.
    unsafe {
        program.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// A process group, for as long as its number is its own: until its leader was waited for.
struct Group(Mutex<Option<Pid>>);

impl Group {
    fn of(leader: &std::process::Child) -> Group {
        Group(Mutex::new(Pid::from_raw(leader.id() as i32)))
    }

    fn kill(&self) {
        if let Some(leader) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails only when all of it has ended.
            let _ = rustix::process::kill_process_group(leader, Signal::KILL);
        }
    }

    /// Waits until the leader has ended, and then ends whom it left behind.
    fn wait(&self, leader: &mut std::process::Child) -> io::Result<ExitStatus> {
        if let Some(leader) = Pid::from_raw(leader.id() as i32) {
            let without_reaping = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            retry(|| rustix::process::waitid(WaitId::Pid(leader), without_reaping))?;
        }
        self.kill();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        leader.wait()
    }
}

/// What has been written so far.
struct Output {
    stdout: Vec<u8>,
    last_lines: VecDeque<String>,
    on_line: Option<LineFunction>,
}

impl Output {
    /// Reads both outputs until the program has ended; what it left behind may keep them open for ever.
    async fn follow(&mut self, running: &mut Running) -> io::Result<ExitStatus> {
        let (mut stdout, mut stderr) = (Lines::new(running.stdout.take()), Lines::new(running.stderr.take()));
        let mut status = None;
        let rest = tokio::time::sleep(Duration::MAX);
        tokio::pin!(rest);
        while status.is_none() || stdout.open() || stderr.open() {
            tokio::select! {
                read = stdout.read(), if stdout.open() => {
                    let bytes = read?;
                    self.stdout.extend_from_slice(&bytes);
                    for line in stdout.lines() {
                        self.tell(&line);
                    }
                }
                read = stderr.read(), if stderr.open() => {
                    read?;
                    for line in stderr.lines() {
                        self.tell(&line);
                        self.keep(line);
                    }
                }
                ended = &mut running.ended, if status.is_none() => {
                    status = Some(ended.map_err(io::Error::other)??);
                    rest.as_mut().reset(tokio::time::Instant::now() + REST);
                }
                () = &mut rest, if status.is_some() => break,
            }
        }
        Ok(status.expect("the loop ends only with one"))
    }

    fn tell(&mut self, line: &str) {
        if let Some(on_line) = &mut self.on_line {
            on_line(line);
        }
    }

    fn keep(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line);
    }

    fn last_lines(&self) -> String {
        self.last_lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// An output, cut into lines.
struct Lines<R> {
    reader: Option<R>,
    partial: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(reader: Option<R>) -> Lines<R> {
        Lines { reader, partial: Vec::new() }
    }

    fn open(&self) -> bool {
        self.reader.is_some()
    }

    /// Waits for output; nothing means its end. Cancel-safe.
    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let Some(reader) = &mut self.reader else { return Ok(Vec::new()) };
        let mut bytes = Vec::with_capacity(LONGEST_LINE);
        if reader.read_buf(&mut bytes).await? == 0 {
            self.reader = None;
        }
        self.partial.extend_from_slice(&bytes);
        Ok(bytes)
    }

    /// Takes the lines that are complete by now.
    fn lines(&mut self) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\r').to_owned();
        let mut lines = Vec::new();
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            lines.push(text(&self.partial[..end]));
            self.partial.drain(..=end);
        }
        if !self.partial.is_empty() && (self.reader.is_none() || self.partial.len() >= LONGEST_LINE) {
            lines.push(text(&std::mem::take(&mut self.partial)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::{Arc, Mutex};

    use super::*;

    fn shell(script: &str) -> HostCommand {
        HostCommand::new("sh").args(["-c", script])
    }

    #[tokio::test]
    async fn output_comes_whole_and_in_lines() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let command = shell("printf 'a\\nb'; sleep 0.05; echo c >&2")
            .on_line(move |line| seen.lock().unwrap().push(line.to_owned()));
        let output = command.run().await.unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.as_str()), (b"a\nb".as_slice(), "c"));
        let mut lines = lines.lock().unwrap().clone();
        lines.sort();
        assert_eq!(lines, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn the_environment_is_empty_but_for_what_is_set() {
        let output = shell("env | cut -d= -f1 | sort | tr '\\n' ' '").env("X", "1").run().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "HOME LC_ALL PATH PWD X ");
    }

    #[tokio::test]
    async fn a_failure_tells_its_last_lines() {
        let error =
            shell("for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $n >&2; done; exit 3").run().await.unwrap_err();
        insta::assert_snapshot!(error, @"
        `sh -c 'for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $n >&2; done; exit 3'` failed (exit status: 3) (line 3
        line 4
        line 5
        line 6
        line 7
        line 8
        line 9
        line 10
        line 11
        line 12)
        ");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = HostCommand::new("no-such-program").run().await.unwrap_err();
        insta::assert_snapshot!(error, @"`no-such-program` is not installed on this host");
    }

    #[tokio::test]
    async fn the_time_limit_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let error = shell(&script).time_limit(Duration::from_millis(200)).run().await.unwrap_err();
        assert!(matches!(error, HostError::TimeLimit { .. }), "{error}");
        let pid: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        ends_soon(pid).await;
    }

    #[tokio::test]
    async fn a_dropped_future_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let dropped = tokio::time::timeout(Duration::from_millis(200), shell(&script).run()).await;
        assert!(dropped.is_err());
        let pid: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        ends_soon(pid).await;
    }

    /// Waits for a process to end, or to be a zombie that the host's first process has not reaped yet.
    async fn ends_soon(pid: u32) {
        for _ in 0..200 {
            match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => return,
            }
        }
        panic!("{pid} still runs");
    }

    #[tokio::test]
    async fn a_daemon_that_keeps_the_output_is_not_waited_for() {
        let started = Instant::now();
        let output = shell("echo done; sleep 1000 &").run().await.unwrap();
        assert_eq!(output.stdout, b"done\n");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn output_can_go_to_a_file() {
        let mut file = tempfile::tempfile().unwrap();
        let output = shell("echo in the file").stdout_to(file.try_clone().unwrap()).run().await.unwrap();
        assert!(output.stdout.is_empty());
        file.rewind().unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "in the file\n");
    }

    #[test]
    fn it_can_be_pasted() {
        let command = HostCommand::new("qemu-img").args(["convert", "-O", "raw", "my image.qcow2"]);
        insta::assert_snapshot!(command.display(), @"qemu-img convert -O raw 'my image.qcow2'");
    }
}
