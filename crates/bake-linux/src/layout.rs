//! Where the root filesystem is on a disk.

use std::fs::File;

use serde::{Deserialize, Serialize};

use crate::error::SystemError;
use crate::filesystem::FilesystemKind;

/// Which partition holds the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionChoice {
    /// The only one that can.
    #[default]
    OnlyRoot,
    /// The one with this number, as the kernel would count it.
    Number(u32),
    /// The one whose filesystem label or partition name is this.
    Label(String),
}

/// A filesystem on a disk that could be the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its partition; `None` if it fills the disk.
    pub partition: Option<u32>,
    /// What it is.
    pub filesystem: FilesystemKind,
    /// Its label; empty if it has none.
    pub label: String,
    /// The name of its partition; empty if it has none.
    pub partition_name: String,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// The root filesystem's place on a disk.
pub type RootPartition = Candidate;

/// Why there is no root to be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LayoutError {
    /// Not a single filesystem that could be baked on.
    #[error("the disk has no ext4, xfs or btrfs filesystem")]
    NoRoot,
    /// More than one.
    #[error("the disk has {} filesystems that may be the root: {}; hint: name one by number or label", candidates.len(), list(candidates))]
    Ambiguous {
        /// All of them.
        candidates: Vec<Candidate>,
    },
    /// None that fits the choice.
    #[error("the disk has no filesystem {wanted}; it has {}", list(candidates))]
    NotThere {
        /// What was asked for.
        wanted: String,
        /// What there is.
        candidates: Vec<Candidate>,
    },
    /// The partition table contradicts itself or the disk.
    #[error("the partition table cannot be trusted: {why}")]
    BadTable {
        /// What is wrong.
        why: String,
    },
    /// The disk cannot be read.
    #[error(transparent)]
    System(#[from] SystemError),
}

fn list(candidates: &[Candidate]) -> String {
    candidates.iter().map(|candidate| format!("{candidate:?}")).collect::<Vec<_>>().join(", ")
}

/// Finds the root filesystem of a disk by reading it. Total on hostile input: no panic, bounded memory.
pub fn find_root(disk: &File, choice: &PartitionChoice) -> Result<RootPartition, LayoutError> {
    unimplemented!("{disk:?} {choice:?}")
}
