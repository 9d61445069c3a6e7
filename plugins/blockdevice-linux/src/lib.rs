//! `linux`: a volume attached to the machine that bakes, as the disk to bake on.
//!
//! The cloud attaches it; which of the machine's disks it then is, `host-disks` finds out.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bake_config::{Built, ConfigErrors, PluginInfo, PluginKind, Setting, Settings, Takes};
use bake_core::{Attachment, BlockDevice, Cloud, Disk, Medium, Volume};
use bake_engine::{Class, Classify, StepContext, StepError, StepResult};
use host_disks::{Host, Sought, find};
use serde::Deserialize;

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::BlockDevice,
    name: "linux",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Bakes on a volume that is attached to the instance bake runs on",
    stage: None,
    settings: &[Setting {
        name: "appear_limit",
        takes: Takes::Duration,
        default: Some("2m"),
        summary: "How long an attached volume may take to be there as a disk",
    }],
    usual: &[],
    built: Built::Yes,
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LinuxSettings {
    appear_limit: Duration,
}

impl Default for LinuxSettings {
    fn default() -> Self {
        Self { appear_limit: Duration::from_secs(2 * 60) }
    }
}

/// Opens attached volumes.
#[derive(Debug)]
pub struct LinuxBlockDevice {
    settings: LinuxSettings,
    host: Host,
}

impl LinuxBlockDevice {
    /// Reads the settings of an environment. `host` is where the kernel shows its disks.
    pub fn build(settings: &Settings, host: Host) -> Result<Self, ConfigErrors> {
        Ok(Self { settings: settings.parse()?, host })
    }

    /// Looks for disks on a host, with the usual settings.
    pub fn new(host: Host) -> Self {
        Self { settings: LinuxSettings::default(), host }
    }
}

#[async_trait]
impl BlockDevice for LinuxBlockDevice {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn medium(&self) -> Medium {
        Medium::Attached
    }

    async fn open(
        &self,
        cx: StepContext,
        cloud: Arc<dyn Cloud>,
        volume: &Volume,
        attachment: Option<&Attachment>,
    ) -> StepResult<Disk> {
        let attachment = attachment.ok_or_else(|| {
            StepError::bug(format!("the cloud `{}` did not say how `{}` was attached", cloud.name(), volume.id))
        })?;
        let sought = Sought {
            volume: volume.id.clone(),
            size: volume.size,
            name: attachment.device.clone().try_into().permanent()?,
            before: attachment.before.clone(),
        };
        let found = find(&cx, &self.host, &sought, self.settings.appear_limit).await?;
        cx.log(&format!("disk: `{}` is `{}`, attached as `{}`", volume.id, found.path.display(), sought.name));
        // Exclusive: the kernel refuses it while the disk, or a partition of it, is mounted or opened so by another.
        let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).expect("a flag of `open` fits");
        let file = File::options().read(true).write(true).custom_flags(exclusive).open(&found.path);
        let file = file.map_err(|error| {
            StepError::wrap(Class::Permanent, error).context(format!("cannot open `{}`", found.path.display()))
        })?;
        Disk::lock(file, found.path)
    }
}
