//! What is known of the filesystem in a root.

use serde::{Deserialize, Serialize};

/// A filesystem that can be baked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FilesystemKind {
    /// ext2, ext3 or ext4; the kernel's ext4 serves all three.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs. It is mounted and sealed without a check.
    Btrfs,
}

impl FilesystemKind {
    /// Returns the name the kernel knows it by.
    pub fn name(self) -> &'static str {
        match self {
            FilesystemKind::Ext4 => "ext4",
            FilesystemKind::Xfs => "xfs",
            FilesystemKind::Btrfs => "btrfs",
        }
    }
}

impl std::fmt::Display for FilesystemKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a filesystem check found. Damage is an error instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// Nothing to complain about.
    Clean,
    /// Not checked, and why.
    Skipped(String),
}

/// The root filesystem of an opened disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// What it is.
    pub kind: FilesystemKind,
    /// The number of its partition; `None` if it fills the disk without a partition table.
    pub partition: Option<u32>,
    /// Where it begins on the disk, in bytes.
    pub offset: u64,
    /// The size of its partition, in bytes.
    pub size: u64,
    /// Its label; empty if it has none.
    pub label: String,
    /// What the check before mounting found.
    pub check: Check,
    /// The device number it is mounted from, as `stat` shows it for files in the root.
    pub device: u64,
}

/// How much room a root has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes that root may still write.
    pub bytes_free: u64,
    /// Files that can still be made. Filesystems that make inodes as they need them report a large number.
    pub inodes_free: u64,
}

impl Space {
    /// Tells whether so little is left that a failed command has most likely run out of it.
    pub fn is_full(self) -> bool {
        self.bytes_free < 1 << 20 || self.inodes_free < 16
    }
}
