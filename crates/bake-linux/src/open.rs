//! How to open a disk.

use serde::{Deserialize, Serialize};

use crate::layout::PartitionChoice;

/// How to open a disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenOptions {
    /// Which partition holds the root.
    pub partition: PartitionChoice,
    /// The `resolv.conf` that commands see instead of the image's; the image keeps its own.
    pub resolv_conf: Option<Vec<u8>>,
    /// Shows a `policy-rc.d` to commands that forbids maintainer scripts to start services; the image keeps its own.
    pub block_service_starts: bool,
}
