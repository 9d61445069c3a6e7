//! What can go wrong. The errors of the worker cross the socket as they are, so each is plain data.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holders::{self, Holder};
use crate::layout::LayoutError;
use crate::root_path::RootPath;

/// An error number of the kernel, as plain data that can cross a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl From<nix::errno::Errno> for Errno {
    fn from(errno: nix::errno::Errno) -> Errno {
        Errno(errno as i32)
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        // Errors that std makes itself (a short read, say) carry no number; `EIO` is the honest general one.
        Errno(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
    }
}

/// A system call that failed, and what it was for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("cannot {action}")]
pub struct SystemError {
    /// What was attempted, as in "cannot …".
    pub action: String,
    /// What the kernel said.
    pub source: Errno,
}

/// Turns a failed call into a [`SystemError`] that says what it was for.
pub(crate) trait Attempt<T> {
    fn attempt(self, action: impl Into<String>) -> Result<T, SystemError>;
}

impl<T, E: Into<Errno>> Attempt<T> for Result<T, E> {
    fn attempt(self, action: impl Into<String>) -> Result<T, SystemError> {
        self.map_err(|source| SystemError { action: action.into(), source: source.into() })
    }
}

/// The sandbox ended before it answered. All it held is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the sandbox ended unexpectedly ({how})")]
pub struct SandboxLost {
    /// How its first process ended.
    pub how: String,
}

/// Why a sandbox did not start or end.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The program that wants a sandbox never offered to become one.
    #[error("this program cannot become a sandbox: `main` must begin with `bake_linux::enter_if_sandbox()`")]
    NoEntry,
    /// Not allowed to make namespaces.
    #[error("not allowed to make namespaces")]
    NotAllowed(#[source] Errno),
    /// A step of the setup failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The child ended early.
    #[error(transparent)]
    Lost(#[from] SandboxLost),
}

impl SandboxError {
    /// Says what to do next, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotAllowed(_) => Some("run as root; a container needs `--privileged`".into()),
            Self::NoEntry | Self::System(_) | Self::Lost(_) => None,
        }
    }
}

/// Why a disk was not opened. Nothing on it has changed, except that a journal may have been replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum OpenError {
    /// There is not exactly one root filesystem.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The check found damage.
    #[error("the filesystem is damaged; `{tool}` says: {report}")]
    Damaged {
        /// The program that found it.
        tool: String,
        /// Its last lines.
        report: String,
    },
    /// A program of the host is missing.
    #[error("`{tool}` is not installed on this host")]
    MissingTool {
        /// The program.
        tool: String,
        /// The package that has it, by its Debian name.
        package: String,
    },
    /// The kernel refused to mount the filesystem.
    #[error("cannot mount the {filesystem} filesystem{}", holders::in_brackets(messages))]
    Mount {
        /// Its kind.
        filesystem: String,
        /// What the kernel said about it, if anything.
        messages: String,
        /// The error number.
        source: Errno,
    },
    /// The image has something unusable where a folder or file is needed.
    #[error("`{path}` of the image cannot be used: {why}")]
    Unusable {
        /// The path inside the image.
        path: RootPath,
        /// What is wrong with it.
        why: String,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The sandbox ended.
    #[error(transparent)]
    Lost(#[from] SandboxLost),
}

impl OpenError {
    /// Says what to do next, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::MissingTool { package, .. } => Some(format!("install it: `apt-get install {package}`")),
            Self::Damaged { .. } => Some("repair the base image, or make it anew".into()),
            Self::Layout(_) | Self::Mount { .. } | Self::Unusable { .. } | Self::System(_) | Self::Lost(_) => None,
        }
    }
}

/// Why something about the files of a root failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum RootError {
    /// There is nothing at this path.
    #[error("`{path}` does not exist in the image")]
    NotFound {
        /// The path inside the image.
        path: RootPath,
    },
    /// There is something of another kind at this path, or a link that leads nowhere.
    #[error("`{path}` of the image cannot be used: {why}")]
    Unusable {
        /// The path inside the image.
        path: RootPath,
        /// What is wrong with it.
        why: String,
    },
    /// The file does not fit into memory sensibly.
    #[error("`{path}` has {size} bytes, more than can be read at once")]
    TooLarge {
        /// The path inside the image.
        path: RootPath,
        /// Its size.
        size: u64,
    },
    /// The root's filesystem is full.
    #[error("the root is full: cannot write `{path}`")]
    Full {
        /// The path inside the image.
        path: RootPath,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The sandbox ended.
    #[error(transparent)]
    Lost(#[from] SandboxLost),
}

/// Why a command did not run to its own end. A command that ran and failed is an [`Outcome`](crate::Outcome).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum RunError {
    /// The program could not be executed.
    #[error("cannot run `{command}` in the root")]
    Start {
        /// The command, in a form that can be pasted.
        command: String,
        /// What the kernel said.
        source: Errno,
    },
    /// It ran longer than it may.
    #[error("`{command}` was ended after its time limit of {} s", limit.as_secs_f32())]
    TimeLimit {
        /// The command, in a form that can be pasted.
        command: String,
        /// Its limit.
        limit: Duration,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The sandbox ended.
    #[error(transparent)]
    Lost(#[from] SandboxLost),
}

/// Why a disk was not sealed. It must not be used then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum SealError {
    /// Somebody uses the volume and cannot be ended from inside.
    #[error("the volume is still in use by {}", holders::list(holders))]
    Busy {
        /// Who, as far as it can be seen. Another mount namespace cannot.
        holders: Vec<Holder>,
    },
    /// The final check found damage.
    #[error("the sealed filesystem is damaged; `{tool}` says: {report}")]
    Damaged {
        /// The program that found it.
        tool: String,
        /// Its last lines.
        report: String,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The sandbox ended.
    #[error(transparent)]
    Lost(#[from] SandboxLost),
}
