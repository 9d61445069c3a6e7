//! `loop`: a disk file as the disk to bake on.
//!
//! The file is only opened here. The loop device itself is made inside the sandbox, so that it ends with the sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use bake_config::{Built, PluginInfo, PluginKind};
use bake_core::{Attachment, BlockDevice, Cloud, Disk, Medium, Volume};
use bake_engine::{Classify, StepContext, StepResult};

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::BlockDevice,
    name: "loop",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Bakes on a disk file, mapped by a loop device inside the sandbox",
    stage: None,
    settings: &[],
    usual: &[],
    built: Built::Yes,
};

/// Opens disk files.
#[derive(Debug, Default)]
pub struct LoopBlockDevice;

#[async_trait]
impl BlockDevice for LoopBlockDevice {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn medium(&self) -> Medium {
        Medium::File
    }

    async fn open(
        &self,
        _: StepContext,
        cloud: Arc<dyn Cloud>,
        volume: &Volume,
        _: Option<&Attachment>,
    ) -> StepResult<Disk> {
        let path = cloud.disk_file(volume).await?;
        let file = std::fs::File::options().read(true).write(true).open(&path).permanent()?;
        Disk::lock(file, path)
    }
}
