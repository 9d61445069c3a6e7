//! A disk after sealing.

use std::fs::File;
use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::copy;
use crate::filesystem::Check;
use crate::holders::Holder;

/// How to seal a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealOptions {
    /// Whether free blocks are given back to the disk file.
    pub trim: Trim,
}

/// Whether free blocks are given back to the disk file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trim {
    /// They are, so that the sealed disk has data only where files are.
    #[default]
    FreeBlocks,
    /// They stay as they are.
    Nothing,
}

/// A disk that is unmounted, checked and synced; read-only.
#[derive(Debug)]
pub struct SealedDisk {
    /// The processes that were still running and were ended.
    pub ended: Vec<Holder>,
    /// What the final check found.
    pub check: Check,
    pub(crate) file: File,
}

impl SealedDisk {
    /// Yields the ranges that hold data, in order; one range on a device that cannot tell.
    pub fn data_ranges(&self) -> impl Iterator<Item = io::Result<Range<u64>>> {
        copy::data_ranges(&self.file)
    }

    /// Returns the disk, opened for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the disk away, opened for reading.
    pub fn into_file(self) -> File {
        self.file
    }
}
