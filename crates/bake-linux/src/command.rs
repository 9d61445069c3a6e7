//! A command to run in a root, and what became of it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holders::Holder;
use crate::root_path::RootPath;

/// How long a command has between the polite signal and the other one.
const GRACE: Duration = Duration::from_secs(5);

/// A program, its arguments, and an environment that starts empty but for `PATH`, `HOME`, `LC_ALL`,
/// `DEBIAN_FRONTEND` and `SYSTEMD_OFFLINE`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) working_directory: RootPath,
    /// Travels as a descriptor, not in the message.
    #[serde(skip)]
    pub(crate) stdin: Stdin,
    pub(crate) network: Network,
    pub(crate) capabilities: Capabilities,
    pub(crate) sync: Sync,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace: Duration,
}

/// What a command reads from its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing: the root's own `/dev/null`.
    #[default]
    Null,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Which network a process sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// That of the host, with its abstract sockets and its metadata service.
    #[default]
    Host,
    /// Only an own loopback device.
    None,
}

/// What becomes of a command's `fsync` and its kin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sync {
    /// They return at once. Nobody needs them: until it is sealed the volume is scratch, and sealing does one honest sync.
    #[default]
    Suppressed,
    /// They reach the disk.
    Real,
}

/// What root may do inside the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capabilities {
    /// What package managers and their scripts need, and nothing that reaches out of the root.
    #[default]
    Package,
    /// Exactly these.
    Only(Vec<caps::Capability>),
}

impl Command {
    /// Starts from a program: a path inside the root, or a name that is looked up in `PATH` there.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        let environment = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("LC_ALL", "C.UTF-8"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            // `systemctl` then edits unit files and leaves the (absent) service manager alone.
            ("SYSTEMD_OFFLINE", "1"),
        ];
        Command {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
            working_directory: RootPath::root(),
            stdin: Stdin::Null,
            network: Network::Host,
            capabilities: Capabilities::Package,
            sync: Sync::Suppressed,
            time_limit: None,
            grace: GRACE,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Command {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command {
        self.environment.retain(|(known, _)| known != name.as_ref());
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the folder to start in; `/` if not set.
    pub fn working_directory(mut self, folder: RootPath) -> Command {
        self.working_directory = folder;
        self
    }

    /// Sets what it reads.
    pub fn stdin(mut self, stdin: Stdin) -> Command {
        self.stdin = stdin;
        self
    }

    /// Sets which network it sees.
    pub fn network(mut self, network: Network) -> Command {
        self.network = network;
        self
    }

    /// Sets what it may do.
    pub fn capabilities(mut self, capabilities: Capabilities) -> Command {
        self.capabilities = capabilities;
        self
    }

    /// Sets whether its syncs reach the disk.
    pub fn sync(mut self, sync: Sync) -> Command {
        self.sync = sync;
        self
    }

    /// Ends its process group when it takes longer than this: first `SIGTERM`, after the grace `SIGKILL`.
    pub fn time_limit(mut self, limit: Duration) -> Command {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the time between `SIGTERM` and `SIGKILL`; five seconds if not set.
    pub fn grace(mut self, grace: Duration) -> Command {
        self.grace = grace;
        self
    }

    /// Returns the command in a form that can be pasted into a shell.
    pub fn display(&self) -> String {
        pasteable(std::iter::once(&self.program).chain(&self.arguments))
    }
}

/// Joins words so that a shell would take them apart again.
pub(crate) fn pasteable<'a>(words: impl IntoIterator<Item = &'a OsString>) -> String {
    let mut line = String::new();
    for word in words {
        let text = word.to_string_lossy();
        let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c));
        let space = if line.is_empty() { "" } else { " " };
        let written = match plain {
            true => write!(line, "{space}{text}"),
            false => write!(line, "{space}'{}'", text.replace('\'', r"'\''")),
        };
        written.expect("a string takes any text");
    }
    line
}

/// How a command ended by itself.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// How long it took.
    pub elapsed: Duration,
    /// The processor time it and its children took in programs.
    pub user: Duration,
    /// The processor time it and its children took in the kernel.
    pub system: Duration,
    /// What it left running, daemons for the most part. Sealing ends them.
    pub still_running: Vec<Holder>,
}

impl Outcome {
    /// Tells whether it ended with 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

/// Takes what a command writes, as it comes. A slow sink slows the command down.
pub trait OutputSink: Send {
    /// Takes bytes from the standard output.
    fn stdout(&mut self, bytes: &[u8]);
    /// Takes bytes from the standard error.
    fn stderr(&mut self, bytes: &[u8]);
}

/// Keeps everything in one buffer, in the order it came.
impl OutputSink for Vec<u8> {
    fn stdout(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        let command = Command::new("sh").args(["-c", "echo 'a b' > $X", ""]).arg("--plain=1");
        insta::assert_snapshot!(command.display(), @r"sh -c 'echo '\''a b'\'' > $X' '' --plain=1");
    }

    #[test]
    fn a_variable_is_set_once() {
        let command = Command::new("env").env("HOME", "/a").env("HOME", "/b");
        let homes: Vec<_> = command.environment.iter().filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes, [&("HOME".into(), "/b".into())]);
    }
}
