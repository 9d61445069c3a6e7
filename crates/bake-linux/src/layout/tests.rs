use std::io::Cursor;

use gptman::{GPT, GPTPartitionEntry};
use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

/// A disk in memory.
struct Disk(Vec<u8>);

impl Disk {
    fn empty(size: usize) -> Disk {
        Disk(vec![0; size])
    }

    fn ext4(mut self, at: usize, label: &str) -> Disk {
        self.0[at + 1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        self.0[at + 1024 + 0x78..][..label.len()].copy_from_slice(label.as_bytes());
        self
    }

    fn xfs(mut self, at: usize, label: &str) -> Disk {
        self.0[at..][..4].copy_from_slice(b"XFSB");
        self.0[at + 108..][..label.len()].copy_from_slice(label.as_bytes());
        self
    }

    fn btrfs(mut self, at: usize, label: &str) -> Disk {
        self.0[at + 64 * 1024 + 0x40..][..8].copy_from_slice(b"_BHRfS_M");
        self.0[at + 64 * 1024 + 0x12b..][..label.len()].copy_from_slice(label.as_bytes());
        self
    }

    /// Makes a GPT with partitions of 1 MiB each, at 1, 2, … MiB.
    fn gpt(mut self, sector: u64, types: &[[u8; 16]]) -> Disk {
        let mut disk = Cursor::new(&mut self.0);
        let mut table = GPT::new_from(&mut disk, sector, [1; 16]).unwrap();
        for (index, kind) in types.iter().enumerate() {
            let first = (index as u64 + 1) * MIB as u64 / sector;
            table[index as u32 + 1] = GPTPartitionEntry {
                partition_type_guid: *kind,
                unique_partition_guid: [index as u8 + 1; 16],
                starting_lba: first,
                ending_lba: first + MIB as u64 / sector - 1,
                attribute_bits: 0,
                partition_name: format!("part-{}", index + 1).as_str().into(),
            };
        }
        table.write_into(&mut disk).unwrap();
        self
    }

    /// Makes a table of up to four entries (type, first sector, sectors) at a place.
    fn mbr(mut self, at: usize, entries: &[(u8, u32, u32)]) -> Disk {
        for (index, &(kind, start, sectors)) in entries.iter().enumerate() {
            let entry = &mut self.0[at + 446 + 16 * index..][..16];
            entry[4] = kind;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..16].copy_from_slice(&sectors.to_le_bytes());
        }
        self.0[at + 510..][..2].copy_from_slice(&[0x55, 0xaa]);
        self
    }

    fn find(&self, choice: &PartitionChoice) -> Result<RootPartition, LayoutError> {
        find_root_in(&mut Cursor::new(&self.0), choice)
    }

    fn only(&self) -> RootPartition {
        self.find(&PartitionChoice::OnlyRoot).unwrap()
    }

    fn refusal(&self) -> String {
        self.find(&PartitionChoice::OnlyRoot).unwrap_err().to_string()
    }
}

const LINUX: [u8; 16] = [0xaf; 16];
const ROOT: [u8; 16] = [0xe3, 0xbc, 0x68, 0x4f, 0xcd, 0xe8, 0xb1, 0x4d, 0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09];
const BOOT: [u8; 16] = [0xff, 0xc2, 0x13, 0xbc, 0xe6, 0x59, 0x62, 0x42, 0xa3, 0x52, 0xb2, 0x75, 0xfd, 0x6f, 0x71, 0x72];

#[test]
fn a_bare_filesystem_fills_the_disk() {
    for (disk, kind) in [
        (Disk::empty(MIB).ext4(0, "root"), FilesystemKind::Ext4),
        (Disk::empty(MIB).xfs(0, "root"), FilesystemKind::Xfs),
        (Disk::empty(MIB).btrfs(0, "root"), FilesystemKind::Btrfs),
    ] {
        let root = disk.only();
        assert_eq!((root.filesystem, root.partition, root.offset, root.size), (kind, None, 0, MIB as u64));
        assert_eq!(root.label, "root");
    }
}

#[test]
fn the_only_filesystem_of_a_gpt_is_found() {
    for sector in [512, 4096] {
        let root = Disk::empty(5 * MIB).gpt(sector, &[LINUX, LINUX]).ext4(2 * MIB, "cloudimg").only();
        assert_eq!((root.partition, root.offset, root.size), (Some(2), 2 * MIB as u64, MIB as u64), "{sector}");
        assert_eq!((root.label.as_str(), root.partition_name.as_str()), ("cloudimg", "part-2"));
    }
}

#[test]
fn a_marked_root_wins_and_a_separate_boot_does_not_count() {
    let two = |types: &[[u8; 16]]| Disk::empty(5 * MIB).gpt(512, types).ext4(MIB, "a").ext4(2 * MIB, "b");
    assert_eq!(two(&[LINUX, ROOT]).only().partition, Some(2));
    assert_eq!(two(&[ROOT, LINUX]).only().partition, Some(1));
    assert_eq!(two(&[LINUX, BOOT]).only().partition, Some(1));
    insta::assert_snapshot!(
        two(&[LINUX, LINUX]).refusal(),
        @"the disk has 2 filesystems that may be the root: partition 1 (ext4, 1 MiB, `a`, `part-1`), partition 2 (ext4, 1 MiB, `b`, `part-2`)"
    );
}

#[test]
fn a_choice_is_by_number_or_label() {
    let disk = Disk::empty(5 * MIB).gpt(512, &[LINUX, LINUX]).ext4(MIB, "a").xfs(2 * MIB, "b");
    let by = |choice| disk.find(&choice).map(|root| root.partition.unwrap());
    assert_eq!(by(PartitionChoice::Number(2)), Ok(2));
    assert_eq!(by(PartitionChoice::Label("a".to_owned())), Ok(1));
    assert_eq!(by(PartitionChoice::Label("part-2".to_owned())), Ok(2));
    insta::assert_snapshot!(
        by(PartitionChoice::Number(7)).unwrap_err(),
        @"the disk has no filesystem in partition 7; it has partition 1 (ext4, 1 MiB, `a`, `part-1`), partition 2 (xfs, 1 MiB, `b`, `part-2`)"
    );
    insta::assert_snapshot!(
        by(PartitionChoice::Label("c".to_owned())).unwrap_err(),
        @"the disk has no filesystem or partition named `c`; it has partition 1 (ext4, 1 MiB, `a`, `part-1`), partition 2 (xfs, 1 MiB, `b`, `part-2`)"
    );
}

#[test]
fn primary_and_logical_partitions_of_an_mbr_are_found() {
    let disk = Disk::empty(5 * MIB).mbr(0, &[(0x83, 2048, 2048)]).ext4(MIB, "root");
    assert_eq!((disk.only().partition, disk.only().offset), (Some(1), MIB as u64));
    let disk = Disk::empty(5 * MIB)
        .mbr(0, &[(0x82, 2048, 2048), (0x05, 4096, 6144)])
        .mbr(2 * MIB, &[(0x82, 1, 10), (0x05, 1024, 4096)])
        .mbr(2 * MIB + MIB / 2, &[(0x83, 1024, 2048)])
        .ext4(3 * MIB, "root");
    assert_eq!((disk.only().partition, disk.only().offset), (Some(6), 3 * MIB as u64));
}

#[test]
fn a_disk_with_nothing_is_refused() {
    for disk in [Disk::empty(0), Disk::empty(511), Disk::empty(MIB), Disk::empty(5 * MIB).gpt(512, &[LINUX])] {
        assert_eq!(disk.refusal(), "the disk has no ext4, xfs or btrfs filesystem");
    }
}

#[test]
fn a_damaged_first_table_has_a_copy() {
    let mut disk = Disk::empty(5 * MIB).gpt(512, &[LINUX]).ext4(MIB, "root");
    disk.0[512 + 60] ^= 1;
    assert_eq!(disk.only().partition, Some(1));
}

/// Changes the header of the first table, and makes its sum right again; the copy is spoiled.
fn forged(change: impl Fn(&mut GPTHeader)) -> Disk {
    let mut disk = Disk::empty(5 * MIB).gpt(512, &[LINUX]).ext4(MIB, "root");
    let mut header = GPTHeader::read_from(&mut Cursor::new(&disk.0[512..1024])).unwrap();
    assert_eq!(crc32(&disk.0[512..604]), header.crc32_checksum, "ours is the sum of the library");
    change(&mut header);
    header.crc32_checksum = header.generate_crc32_checksum();
    let mut bytes = disk.0[512..512 + 92].to_vec();
    bytes[16..20].copy_from_slice(&header.crc32_checksum.to_le_bytes());
    bytes[72..80].copy_from_slice(&header.partition_entry_lba.to_le_bytes());
    bytes[80..84].copy_from_slice(&header.number_of_partition_entries.to_le_bytes());
    bytes[84..88].copy_from_slice(&header.size_of_partition_entry.to_le_bytes());
    disk.0[512..512 + 92].copy_from_slice(&bytes);
    let end = disk.0.len();
    disk.0[end - 512..].fill(0);
    disk
}

#[test]
fn tables_that_would_end_the_library_are_refused() {
    assert_eq!(forged(|_| {}).only().partition, Some(1), "the forgery itself is sound");
    insta::assert_snapshot!(
        forged(|header| header.number_of_partition_entries = u32::MAX).refusal(),
        @"the partition table cannot be trusted: it claims 4294967295 entries of 128 bytes"
    );
    insta::assert_snapshot!(
        forged(|header| header.size_of_partition_entry = 64).refusal(),
        @"the partition table cannot be trusted: it claims 128 entries of 64 bytes"
    );
    insta::assert_snapshot!(
        forged(|header| header.partition_entry_lba = u64::MAX / 2).refusal(),
        @"the partition table cannot be trusted: its entries lie beyond the end of the disk"
    );
}

#[test]
fn partitions_beyond_the_disk_are_refused() {
    let mut disk = Disk::empty(5 * MIB).gpt(512, &[LINUX, LINUX]).ext4(MIB, "root");
    disk.0.truncate(2 * MIB);
    insta::assert_snapshot!(
        disk.refusal(),
        @"the partition table cannot be trusted: partition 2 (sectors 4096 to 6143) is not on the disk"
    );
    let disk = Disk::empty(2 * MIB).mbr(0, &[(0x83, 2048, u32::MAX)]);
    insta::assert_snapshot!(
        disk.refusal(),
        @"the partition table cannot be trusted: partition 1 (sector 2048, 4294967295 sectors) is not on the disk"
    );
}

#[test]
fn a_chain_that_bites_its_tail_ends() {
    let disk = Disk::empty(4 * MIB)
        .mbr(0, &[(0x05, 2048, 4096)])
        .mbr(MIB, &[(0x83, 1, 1), (0x05, 2, 1)])
        .mbr(MIB + 1024, &[(0x83, 1, 1), (0x05, 2, 1)]);
    insta::assert_snapshot!(disk.refusal(), @"the partition table cannot be trusted: its logical partitions have no end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_disk_is_safe(
        base in 0..4u8,
        changes in prop::collection::vec((0..4usize, 0..512usize, any::<u8>()), 0..24),
        sound in any::<bool>(),
    ) {
        let disk = Disk::empty(4 * MIB);
        let mut disk = match base {
            0 => disk.gpt(512, &[LINUX, ROOT]).ext4(MIB, "a"),
            1 => disk.gpt(4096, &[LINUX]).xfs(MIB, "a"),
            2 => disk.mbr(0, &[(0x83, 2048, 2048), (0x05, 4096, 4096)]).mbr(2 * MIB, &[(0x83, 1, 9), (0x05, 9, 9)]),
            _ => disk.btrfs(0, "a"),
        };
        let places = [0, 512, 1024, 2 * MIB];
        for (place, at, value) in changes {
            disk.0[places[place] + at] = value;
        }
        if sound && base == 0 {
            // So that what was changed gets past the sum.
            let sum = crc32(&disk.0[512..604]);
            disk.0[528..532].copy_from_slice(&sum.to_le_bytes());
        }
        let size = disk.0.len() as u64;
        if let Ok(root) = disk.find(&PartitionChoice::OnlyRoot) {
            prop_assert!(root.offset + root.size <= size);
        }
    }
}

/// The sum of a header, whose own field counts as zero.
fn crc32(header: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for (at, &byte) in header.iter().enumerate() {
        sum ^= u32::from(if (16..20).contains(&at) { 0 } else { byte });
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}
