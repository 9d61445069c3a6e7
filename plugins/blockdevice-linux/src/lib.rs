//! `linux`: a volume attached to the machine that bakes, as the disk to bake on.
//!
//! Two questions are answered here. Before a volume is attached: which device name is free ([`DeviceNames::choose`])? And after:
//! which of this machine's disks is it ([`find`])? A cloud's name for the device is a wish that kernels read as they like, so the
//! answer to the second is never taken from the first.

mod find;
mod host;
mod name;
mod vendor;

use std::time::Duration;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Takes};
use bake_engine::wait::Pace;
use serde::Deserialize;

pub use find::{Evidence, Found, NotFound, Sought, find, look};
pub use host::{Host, SeenDisk};
pub use name::{DeviceName, DeviceNames, HeldName, InvalidName};
pub use vendor::{VendorData, requested_name};

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::BlockDevice,
    name: "linux",
    version: env!("CARGO_PKG_VERSION"),
    summary: "A volume attached to the instance that bake runs on",
    stage: None,
    settings: &[
        Setting {
            name: "name_limit",
            takes: Takes::Duration,
            default: Some("5m"),
            summary: "How long to wait for a free device name",
        },
        Setting {
            name: "appear_limit",
            takes: Takes::Duration,
            default: Some("2m"),
            summary: "How long an attached volume may take to be there as a disk",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of this plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinuxSettings {
    /// How long to wait for a free device name.
    pub name_limit: Duration,
    /// How long an attached volume may take to be there.
    pub appear_limit: Duration,
}

impl Default for LinuxSettings {
    fn default() -> Self {
        Self { name_limit: Duration::from_secs(5 * 60), appear_limit: Duration::from_secs(2 * 60) }
    }
}

impl LinuxSettings {
    /// Returns how often to try for a name: each try asks the cloud.
    pub fn name_pace(&self) -> Pace {
        Pace::slowing(Duration::from_secs(2), Duration::from_secs(15), self.name_limit)
    }

    /// Returns how often to look for a disk: a look is a few small files of the kernel's.
    pub fn appear_pace(&self) -> Pace {
        Pace::slowing(Duration::from_millis(50), Duration::from_secs(1), self.appear_limit)
    }
}
