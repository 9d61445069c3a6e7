use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bake_engine::{StepContext, StepResult};
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
    pub file: std::fs::File,
    /// Where it was, for messages.
    pub path: PathBuf,
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
