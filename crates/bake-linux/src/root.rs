//! The mounted file tree of a volume, as its owner sees it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::{Command, Outcome, OutputSink};
use crate::error::{Attempt, RootError, RunError, SandboxError, SealError};
use crate::filesystem::{Filesystem, Space};
use crate::holders::{self, Holder, HolderScope};
use crate::kernel::{self, MountChange};
use crate::mounts;
use crate::root_path::RootPath;
use crate::run;
use crate::sandbox::Sandbox;
use crate::sealed::{SealOptions, SealedDisk};
use crate::wire::Request;
use crate::worker::Sealed;

/// More than this is no configuration file.
const LONGEST_READ: u64 = 64 << 20;

/// The mounted file tree of a volume. All paths are looked up inside it; no link leads out.
///
/// Commands and the file functions see the same volume, with one difference: to a command, `/proc`, `/sys`, `/dev`, `/run` and `/tmp`
/// are temporary and no part of the image; the file functions see what the image itself has there, and what will be sealed.
///
/// Dropping a `Root` ends its sandbox at once, with everything in it; the disk is then as after a power cut.
#[derive(Debug)]
pub struct Root {
    sandbox: Sandbox,
    filesystem: Filesystem,
}

/// A file, folder or link of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootEntry {
    /// Where it is.
    pub path: RootPath,
    /// What it is.
    pub kind: EntryKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// How many names it has.
    pub links: u64,
    /// When its content last changed.
    pub modified: SystemTime,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// A link, and where it points.
    Link(OsString),
    /// A device, socket or FIFO.
    Special,
}

impl Root {
    pub(crate) fn new(sandbox: Sandbox, filesystem: Filesystem) -> Root {
        Root { sandbox, filesystem }
    }

    /// Describes the filesystem: kind, partition, size, what the check said.
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Returns the sandbox that the root lives in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs a program in the root and waits for it, not for the end of its output: a daemon may keep that open.
    /// Dropping the future ends its process group.
    pub async fn run(&mut self, command: Command, output: &mut (dyn OutputSink + Send)) -> Result<Outcome, RunError> {
        run::run(&mut self.sandbox, command, output).await
    }

    /// Shows a host file or folder to the commands, read-only, at a path inside. What has to be made for it is removed when sealing.
    pub async fn bind(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        self.bind_changed(
            source,
            at,
            MountChange { read_only: true, no_devices: true, private: true, recursive: false },
        )
        .await
    }

    /// Shows a host file or folder to the commands, writable: for package caches.
    pub async fn bind_writable(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        self.bind_changed(source, at, MountChange { no_devices: true, private: true, ..Default::default() }).await
    }

    async fn bind_changed(&mut self, source: OwnedFd, at: &RootPath, change: MountChange) -> Result<(), RootError> {
        // Copied here, for the kernel copies only mounts of the caller's own namespace. The copy is attached nowhere on the host.
        let copy = mounts::clone_mount(&source, Path::new("")).attempt("copy the mount of what to bind")?;
        kernel::change_mount(copy.as_fd(), change).attempt("restrict what to bind")?;
        self.ask_with(Request::Bind { at: at.clone() }, &[copy.as_fd()]).await.map(|((), _)| ())
    }

    /// Opens a plain file for reading. Drop it before sealing: an open file keeps the volume busy.
    pub async fn open_file(&mut self, path: &RootPath) -> Result<File, RootError> {
        let ((), mut descriptors) = self.ask_with(Request::OpenFile(path.clone()), &[]).await?;
        let file = descriptors.pop().ok_or(rustix::io::Errno::BADF).attempt(format!("receive `{path}`"))?;
        Ok(file.into())
    }

    /// Reads a plain file of moderate size.
    pub async fn read(&mut self, path: &RootPath) -> Result<Vec<u8>, RootError> {
        let file = self.open_file(path).await?;
        let attempt = || format!("read `{path}`");
        let size = file.metadata().attempt(attempt())?.len();
        if size > LONGEST_READ {
            return Err(RootError::TooLarge { path: path.clone(), size });
        }
        let mut content = Vec::with_capacity(size as usize);
        // Bounded even if it grows meanwhile.
        file.take(LONGEST_READ).read_to_end(&mut content).attempt(attempt())?;
        Ok(content)
    }

    /// Writes a file of root with these permission bits: under a temporary name, then renamed, so that nobody sees half of it.
    /// A link of that name is replaced, not followed.
    pub async fn write(&mut self, path: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError> {
        self.ask(Request::Write { path: path.clone(), content: content.to_owned(), mode }).await
    }

    /// Makes a folder, and the folders above it, where missing.
    pub async fn create_folder(&mut self, path: &RootPath, mode: u32) -> Result<(), RootError> {
        self.ask(Request::CreateFolder { path: path.clone(), mode }).await
    }

    /// Removes a file, a link (not what it points to), or a folder with all in it. Returns how many entries went; 0 if there was
    /// nothing.
    pub async fn remove(&mut self, path: &RootPath) -> Result<u64, RootError> {
        self.ask(Request::Remove(path.clone())).await
    }

    /// Tells whether there is anything at a path, be it a dangling link.
    pub async fn exists(&mut self, path: &RootPath) -> Result<bool, RootError> {
        Ok(self.metadata(path).await?.is_some())
    }

    /// Describes what is at a path; a link itself, not what it points to. `None` if there is nothing.
    pub async fn metadata(&mut self, path: &RootPath) -> Result<Option<RootEntry>, RootError> {
        self.ask(Request::Metadata(path.clone())).await
    }

    /// Lists everything below a folder, on this filesystem only, parents before children, in the order of names.
    pub async fn walk(&mut self, below: &RootPath) -> Result<Vec<RootEntry>, RootError> {
        self.ask(Request::Walk(below.clone())).await
    }

    /// Tells how much room is left.
    pub async fn space(&mut self) -> Result<Space, RootError> {
        self.ask(Request::Space).await
    }

    /// Lists who uses the volume: the processes of the sandbox, then those of the host.
    pub async fn holders(&mut self) -> Result<Vec<Holder>, RootError> {
        let mut holders: Vec<Holder> = self.ask(Request::Processes).await?;
        let sandbox = self.sandbox.pid();
        let on_host = holders::of_device(self.filesystem.device, HolderScope::Host);
        holders.extend(on_host.into_iter().filter(|holder| !holders::is_in_sandbox(holder.pid, sandbox)));
        Ok(holders)
    }

    /// Ends every process, trims, syncs, unmounts, proves that nobody else has it mounted, checks, flushes, and ends the sandbox.
    pub async fn seal(mut self, options: SealOptions) -> Result<SealedDisk, SealError> {
        let answer = self.sandbox.client.call::<Result<Sealed, SealError>>(&Request::Seal(options), &[]).await;
        let result = answer.map_err(SealError::from).and_then(|(result, descriptors)| Ok((result?, descriptors)));
        // From in there, whoever is outside cannot be seen.
        let result = result.map_err(|error| match error {
            SealError::Busy { mut holders } => {
                holders.extend(holders::of_device(self.filesystem.device, HolderScope::Host));
                SealError::Busy { holders }
            }
            other => other,
        });
        let closed = self.sandbox.close().await;
        let (sealed, mut descriptors) = result?;
        if let Err(SandboxError::Lost(lost)) = closed {
            return Err(lost.into());
        }
        let file = descriptors.pop().ok_or(rustix::io::Errno::BADF).attempt("receive the sealed disk")?.into();
        Ok(SealedDisk { ended: sealed.ended, check: sealed.check, file })
    }

    /// Lets go without sync or check, and waits until all is gone; for a failed bake.
    pub async fn abandon(self) -> Result<(), SandboxError> {
        self.sandbox.close().await
    }

    async fn ask<T: DeserializeOwned>(&mut self, request: Request) -> Result<T, RootError> {
        self.ask_with(request, &[]).await.map(|(value, _)| value)
    }

    async fn ask_with<T: DeserializeOwned>(
        &mut self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(T, Vec<OwnedFd>), RootError> {
        let (result, descriptors) = self.sandbox.client.call::<Result<T, RootError>>(&request, descriptors).await?;
        Ok((result?, descriptors))
    }
}
