//! Running the host's own programs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// A program of the host: cleared environment, time limit, own process group that ends when the future is dropped.
#[derive(Debug)]
pub struct HostCommand {
    program: OsString,
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
        source: std::io::Error,
    },
    /// It failed.
    #[error("`{command}` failed ({status}){}", crate::holders::in_brackets(stderr))]
    Failed {
        /// The command, in a form that can be pasted.
        command: String,
        /// Its exit code or signal.
        status: ExitStatus,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// It took too long.
    #[error("`{command}` was ended after its time limit of {} s{}", limit.as_secs_f32(), crate::holders::in_brackets(stderr))]
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
        HostCommand { program: program.as_ref().to_owned() }
    }

    /// Adds an argument.
    pub fn arg(self, argument: impl AsRef<OsStr>) -> HostCommand {
        let _ = argument;
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> HostCommand {
        let _ = arguments;
        self
    }

    /// Sets a variable of the environment.
    pub fn env(self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> HostCommand {
        let _ = (name, value);
        self
    }

    /// Sets the folder to start in.
    pub fn working_directory(self, folder: impl AsRef<Path>) -> HostCommand {
        let _ = folder;
        self
    }

    /// Sets how long it may take; ten minutes if not set.
    pub fn time_limit(self, limit: Duration) -> HostCommand {
        let _ = limit;
        self
    }

    /// Sends the standard output to a file.
    pub fn stdout_to(self, file: File) -> HostCommand {
        let _ = file;
        self
    }

    /// Gives each line of standard output and standard error to a function as it comes.
    pub fn on_line(self, line: impl FnMut(&str) + Send + 'static) -> HostCommand {
        let _ = line;
        self
    }

    /// Returns the command in a form that can be pasted into a shell.
    pub fn display(&self) -> String {
        format!("{:?}", self.program)
    }

    /// Runs it to its end. An exit code other than 0 is an error. Dropping the future ends its process group.
    pub async fn run(self) -> Result<HostOutput, HostError> {
        unimplemented!()
    }
}
