use async_trait::async_trait;
use bake_engine::{StepContext, StepResult};
use bake_linux::{Command, Filesystem, Outcome, OutputSink, RootError, RootPath, RunError, Space};

use crate::Disk;

/// The file tree of the volume, as a provisioner sees it.
///
/// Every path is looked up inside the root, whatever the links in it say. Programs see temporary folders of their own at
/// `/proc`, `/sys`, `/dev`, `/run` and `/tmp`; the file functions see what the image has there. Dropping a future of
/// [`Root::run`] ends the program and all that it started in its group.
#[async_trait]
pub trait Root: Send {
    /// Returns what the root is made of.
    fn filesystem(&self) -> &Filesystem;

    /// Runs a program inside and waits for it.
    async fn run(&mut self, command: Command, output: &mut (dyn OutputSink + Send)) -> Result<Outcome, RunError>;

    /// Reads a file of the image, of moderate size. `None` where there is none.
    async fn read(&mut self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError>;

    /// Writes a file of the image with the given permission bits, by a temporary name and a rename.
    async fn write(&mut self, path: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError>;

    /// Shows a file or folder of the host to programs, read-only, at a path inside. It is gone when the volume is sealed.
    async fn bind(&mut self, source: std::os::fd::OwnedFd, at: &RootPath) -> Result<(), RootError>;

    /// Returns how much room is left.
    async fn space(&mut self) -> Result<Space, RootError>;
}

/// A volume that is open: its root is mounted in a sandbox of its own.
#[async_trait]
pub trait OpenVolume: Send {
    /// Returns the root to install into.
    fn root(&mut self) -> &mut dyn Root;

    /// Ends all programs inside, unmounts, checks and flushes. Returns what had to be ended, a line for each program.
    ///
    /// After an error the disk must not be snapshotted.
    async fn seal(self: Box<Self>, cx: StepContext) -> StepResult<Vec<String>>;

    /// Lets go of the volume without a word about its content, for a bake that failed.
    async fn discard(self: Box<Self>) -> StepResult<()>;
}

/// Opens volumes: finds the root on a disk, checks it, mounts it in a sandbox.
///
/// `open` changes nothing on the disk before it has found exactly one root that is sound. Whatever it holds of the kernel
/// ends with the process.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Returns the name that environments use: `linux`.
    fn name(&self) -> &'static str;

    /// Opens the root on the disk.
    async fn open(&self, cx: StepContext, disk: Disk) -> StepResult<Box<dyn OpenVolume>>;
}
