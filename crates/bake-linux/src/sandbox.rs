//! The sandbox as its owner sees it.

use std::fs::File;
use std::time::Duration;

use crate::command::Network;
use crate::error::{OpenError, SandboxError};
use crate::open::OpenOptions;
use crate::root::Root;

/// How to start a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxOptions {
    /// Which network the whole sandbox sees.
    pub network: Network,
    /// The name its processes see; it ends up in keys and configuration files that packages generate.
    pub hostname: String,
    /// How long the end of the sandbox may take before that is an error.
    pub patience: Duration,
}

impl Default for SandboxOptions {
    fn default() -> SandboxOptions {
        SandboxOptions { network: Network::Host, hostname: "localhost".to_owned(), patience: Duration::from_secs(10) }
    }
}

/// A child with its own mount, PID, IPC and UTS namespaces. When this value or its process ends, so do all loops, mounts and processes in it.
#[derive(Debug)]
pub struct Sandbox {}

impl Sandbox {
    /// Starts the child. Cancel-safe: a dropped future leaves nothing.
    pub async fn start(options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        unimplemented!("{options:?}")
    }

    /// Attaches the disk (a file or block device, opened for reading and writing), finds and checks its root filesystem, mounts it, and
    /// prepares the commands' view. Refuses before any change if there is not exactly one root, or if it is damaged.
    ///
    /// On an error, or when the future is dropped, the sandbox ends.
    pub async fn open(self, disk: File, options: OpenOptions) -> Result<Root, OpenError> {
        unimplemented!("{disk:?} {options:?}")
    }

    /// Returns the child's process number on the host.
    pub fn pid(&self) -> u32 {
        unimplemented!()
    }

    /// Ends the child, and waits until it and all it held are gone.
    pub async fn close(self) -> Result<(), SandboxError> {
        unimplemented!()
    }
}
