use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bake_engine::{Classify, StepContext, StepError, StepResult};
use serde::{Deserialize, Serialize};

use crate::{Attachment, Cloud, Volume};

/// How the bytes of a volume come to this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// A disk attached by the cloud, seen as a block device.
    Attached,
    /// A disk file.
    File,
}

/// A disk that is open for reading and writing.
#[derive(Debug)]
pub struct Disk {
    /// The open disk. What it was opened by does not matter any more.
    pub file: File,
    /// Where it was, for messages.
    pub path: PathBuf,
}

impl Disk {
    /// Takes an open disk for this bake alone.
    ///
    /// The lock belongs to the open file and goes with it into the sandbox: as long as anything of this bake lives, others can see
    /// that the disk is in use.
    ///
    /// # Errors
    ///
    /// Fails when another program has it.
    pub fn lock(file: File, path: PathBuf) -> StepResult<Self> {
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path }),
            Err(TryLockError::WouldBlock) => {
                Err(StepError::permanent(format!("the disk `{}` is in use by another program", path.display())))
            }
            Err(TryLockError::Error(error)) => Err(error).permanent(),
        }
    }
}

/// Gives the disk of a volume to bake on.
///
/// `open` may be called again after a failure. Closing is dropping: a block device plugin holds nothing that outlives the
/// [`Disk`], except through a mutation of its own.
#[async_trait]
pub trait BlockDevice: Send + Sync + 'static {
    /// Returns the name that environments use: `loop`, `linux`.
    fn name(&self) -> &'static str;

    /// Returns what it can open. A cloud that does not offer it is refused when the environment is put together.
    fn medium(&self) -> Medium;

    /// Opens the volume's disk. `attachment` is how it was attached, where the cloud has a kind of change for that.
    async fn open(
        &self,
        cx: StepContext,
        cloud: Arc<dyn Cloud>,
        volume: &Volume,
        attachment: Option<&Attachment>,
    ) -> StepResult<Disk>;
}
