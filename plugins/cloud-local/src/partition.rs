//! The partition table of new base images: one root partition.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use bake_core::Architecture;
use gptman::{GPT, GPTPartitionEntry};

use crate::error::{StoreError, StoreResult};
use crate::random;

const SECTOR: u64 = 512;
const MEBIBYTE: u64 = 1 << 20;

/// Types of root partitions by architecture, from the discoverable partitions specification, in GPT's byte order.
const ROOT_TYPES: [(&str, [u8; 16]); 2] = [
    // 4f68bce3-e8cd-4db1-96e7-fbcaf984b709
    ("x86_64", [0xe3, 0xbc, 0x68, 0x4f, 0xcd, 0xe8, 0xb1, 0x4d, 0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09]),
    // b921b045-1df0-41c3-af44-4c6f280d3fae
    ("aarch64", [0x45, 0xb0, 0x21, 0xb9, 0xf0, 0x1d, 0xc3, 0x41, 0xaf, 0x44, 0x4c, 0x6f, 0x28, 0x0d, 0x3f, 0xae]),
];

/// 0fc63daf-8483-4772-8e79-3d69d8477de4: a Linux filesystem, whatever is in it.
const LINUX_TYPE: [u8; 16] =
    [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4];

/// Writes a table with one partition that fills the disk, and returns its range in bytes.
///
/// The partition begins and ends on whole mebibytes. `disk` must be larger than two of them.
pub(crate) fn write_root_partition(
    disk: &mut File,
    path: &Path,
    architecture: &Architecture,
) -> StoreResult<Range<u64>> {
    let size = disk.metadata().map_err(StoreError::io("look at", path))?.len();
    // The last mebibyte holds the backup table.
    let range = MEBIBYTE..size / MEBIBYTE * MEBIBYTE - MEBIBYTE;
    let known = ROOT_TYPES.iter().find(|(name, _)| *name == architecture.as_str());
    let root = GPTPartitionEntry {
        partition_type_guid: known.map_or(LINUX_TYPE, |(_, guid)| *guid),
        unique_partition_guid: random::guid()?,
        starting_lba: range.start / SECTOR,
        ending_lba: range.end / SECTOR - 1,
        attribute_bits: 0,
        partition_name: "root".into(),
    };
    let guid = random::guid()?;
    let written = GPT::new_from(disk, SECTOR, guid).and_then(|mut table| {
        table[1] = root;
        table.write_into(disk)?;
        GPT::write_protective_mbr_into(disk, SECTOR)
    });
    written.map_err(|source| StoreError::PartitionTable { path: path.to_owned(), source })?;
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read_back() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(64 * MEBIBYTE).unwrap();
        let path = Path::new("disk.raw");
        let range = write_root_partition(&mut file, path, &Architecture::new("x86_64")).unwrap();
        assert_eq!(range, MEBIBYTE..63 * MEBIBYTE);
        let table = GPT::find_from(&mut file).unwrap();
        assert_eq!(table.get_partition_byte_range(1).unwrap(), range.start..=range.end - 1);
        assert_eq!(table[1].partition_type_guid, ROOT_TYPES[0].1);
        assert_eq!(table.iter().filter(|(_, partition)| partition.is_used()).count(), 1);
        // Version 4, variant 10.
        assert_eq!((table[1].unique_partition_guid[7] >> 4, table[1].unique_partition_guid[8] >> 6), (4, 2));
    }
}
