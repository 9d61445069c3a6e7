//! How long things take.

use std::time::Duration;

/// How long things take. All are nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// How long a registered image is `pending`.
    pub image: Duration,
    /// How long a complete snapshot is `pending`.
    pub snapshot: Duration,
    /// How long a new volume is `creating`.
    pub volume: Duration,
    /// How long a volume is `attaching`.
    pub attach: Duration,
    /// How long a volume is `detaching`, at least.
    pub detach: Duration,
    /// How long a copy is `pending`.
    pub copy: Duration,
    /// How long a new id is unknown to calls that name it.
    pub visibility: Duration,
    /// How long a new snapshot is unknown to the EBS direct API, after its begin and after its completion.
    pub blocks: Duration,
    /// How much longer each write of a block takes.
    pub put: Duration,
}
