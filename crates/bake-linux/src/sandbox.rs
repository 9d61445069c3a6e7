//! The sandbox as its owner sees it.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::client::Client;
use crate::command::Network;
use crate::entry;
use crate::error::{Attempt, OpenError, SandboxError, SandboxLost, SystemError};
use crate::filesystem::Filesystem;
use crate::open::OpenOptions;
use crate::root::Root;
use crate::spawn;
use crate::wire::Request;
use crate::worker::WORKSHOP;

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

/// A child with its own mount, PID, IPC and UTS namespaces. When this value or its process ends, so do all loops, mounts and
/// processes in it.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) client: Client,
    pub(crate) patience: Duration,
}

impl Sandbox {
    /// Starts the child. Cancel-safe: a dropped future leaves nothing.
    pub async fn start(options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        let entry = entry::entry().ok_or(SandboxError::NoEntry)?;
        // To mount on, later and elsewhere. It stays, empty, as `/run` itself does.
        std::fs::create_dir_all(WORKSHOP).attempt(format!("make the folder `{WORKSHOP}`"))?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .attempt("make a socket")?;
        // Ours alone: the worker's end is to block.
        rustix::io::ioctl_fionbio(&ours, true).attempt("make a socket")?;
        let child = spawn::spawn(entry, options.network, theirs).await?;
        let mut client = Client::new(ours, child).attempt("watch a socket")?;
        let request = Request::Setup { hostname: options.hostname, network: options.network };
        let (ready, _) = client.call::<Result<(), SystemError>>(&request, &[]).await?;
        ready?;
        Ok(Sandbox { client, patience: options.patience })
    }

    /// Attaches the disk (a file or block device, opened for reading and writing), finds and checks its root filesystem, mounts it,
    /// and prepares the commands' view. Refuses before any change if there is not exactly one root, or if it is damaged.
    ///
    /// On an error, or when the future is dropped, the sandbox ends.
    pub async fn open(mut self, disk: File, options: OpenOptions) -> Result<Root, OpenError> {
        let request = Request::Open(options);
        let answer = self.client.call::<Result<Filesystem, OpenError>>(&request, &[disk.as_fd()]).await;
        match answer.map_err(OpenError::from).and_then(|(result, _)| result) {
            Ok(filesystem) => Ok(Root::new(self, filesystem)),
            Err(error) => {
                // So that the disk is free again when the caller reads the error; how the sandbox ends adds nothing to that.
                let _ = self.close().await;
                Err(error)
            }
        }
    }

    /// Returns the child's process number on the host.
    pub fn pid(&self) -> u32 {
        self.client.child.pid
    }

    /// Ends the child, and waits until it and all it held are gone.
    pub async fn close(mut self) -> Result<(), SandboxError> {
        self.client.child.kill();
        match tokio::time::timeout(self.patience, self.client.child.ended()).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let how = format!("not at all, {} s after it was killed", self.patience.as_secs_f32());
                Err(SandboxLost { how }.into())
            }
        }
    }
}
