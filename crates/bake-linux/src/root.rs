//! The mounted file tree of a volume, as its owner sees it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::command::{Command, Outcome, OutputSink};
use crate::error::{RootError, RunError, SandboxError, SealError};
use crate::filesystem::{Filesystem, Space};
use crate::holders::Holder;
use crate::root_path::RootPath;
use crate::sandbox::Sandbox;
use crate::sealed::{SealOptions, SealedDisk};

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
        let _ = output;
        unimplemented!("{command:?}")
    }

    /// Shows a host file or folder to the commands, read-only, at a path inside. What has to be made for it is removed when sealing.
    pub async fn bind(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        unimplemented!("{source:?} {at}")
    }

    /// Shows a host file or folder to the commands, writable: for package caches.
    pub async fn bind_writable(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        unimplemented!("{source:?} {at}")
    }

    /// Opens a plain file for reading. Drop it before sealing: an open file keeps the volume busy.
    pub async fn open_file(&mut self, path: &RootPath) -> Result<File, RootError> {
        unimplemented!("{path}")
    }

    /// Reads a plain file of moderate size.
    pub async fn read(&mut self, path: &RootPath) -> Result<Vec<u8>, RootError> {
        unimplemented!("{path}")
    }

    /// Writes a file of root with these permission bits: under a temporary name, then renamed, so that nobody sees half of it.
    /// A link of that name is replaced, not followed.
    pub async fn write(&mut self, path: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError> {
        unimplemented!("{path} {content:?} {mode}")
    }

    /// Makes a folder, and the folders above it, where missing.
    pub async fn create_folder(&mut self, path: &RootPath, mode: u32) -> Result<(), RootError> {
        unimplemented!("{path} {mode}")
    }

    /// Removes a file, a link (not what it points to), or a folder with all in it. Returns how many entries went; 0 if there was nothing.
    pub async fn remove(&mut self, path: &RootPath) -> Result<u64, RootError> {
        unimplemented!("{path}")
    }

    /// Tells whether there is anything at a path, be it a dangling link.
    pub async fn exists(&mut self, path: &RootPath) -> Result<bool, RootError> {
        unimplemented!("{path}")
    }

    /// Describes what is at a path; a link itself, not what it points to. `None` if there is nothing.
    pub async fn metadata(&mut self, path: &RootPath) -> Result<Option<RootEntry>, RootError> {
        unimplemented!("{path}")
    }

    /// Lists everything below a folder, on this filesystem only, parents before children, in the order of names.
    pub async fn walk(&mut self, below: &RootPath) -> Result<Vec<RootEntry>, RootError> {
        unimplemented!("{below}")
    }

    /// Tells how much room is left.
    pub async fn space(&mut self) -> Result<Space, RootError> {
        unimplemented!()
    }

    /// Lists who uses the volume: the processes of the sandbox, then those of the host.
    pub async fn holders(&mut self) -> Result<Vec<Holder>, RootError> {
        unimplemented!()
    }

    /// Ends every process, trims, syncs, unmounts, proves that nobody else has it mounted, checks, flushes, and ends the sandbox.
    pub async fn seal(self, options: SealOptions) -> Result<SealedDisk, SealError> {
        unimplemented!("{options:?}")
    }

    /// Lets go without sync or check, and waits until all is gone; for a failed bake.
    pub async fn abandon(self) -> Result<(), SandboxError> {
        self.sandbox.close().await
    }
}
