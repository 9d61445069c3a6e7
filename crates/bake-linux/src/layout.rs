//! Where the root filesystem is on a disk. Knows nothing of loop devices, and believes nothing that the disk says of itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use gptman::{GPTHeader, GPTPartitionEntry};
use serde::{Deserialize, Serialize};

use crate::error::{Attempt, SystemError};
use crate::filesystem::FilesystemKind;

/// Which partition holds the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionChoice {
    /// The only one that can: marked as a root by its type, or else the only filesystem but for separate boot partitions.
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
    /// What its partition's type says it is for.
    pub purpose: Purpose,
}

/// What the type of a partition says it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A root, by the Discoverable Partitions Specification.
    Root,
    /// A separate `/boot`.
    Boot,
    /// Anything.
    Data,
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.partition {
            Some(number) => write!(f, "partition {number}")?,
            None => f.write_str("the whole disk")?,
        }
        write!(f, " ({}, {} MiB", self.filesystem, self.size >> 20)?;
        for label in [&self.label, &self.partition_name] {
            if !label.is_empty() {
                write!(f, ", `{label}`")?;
            }
        }
        f.write_str(")")
    }
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
    #[error(
        "the disk has {} filesystems that may be the root: {}",
        candidates.len(),
        list(candidates)
    )]
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
    if candidates.is_empty() {
        return "none".to_owned();
    }
    candidates.iter().map(Candidate::to_string).collect::<Vec<_>>().join(", ")
}

fn bad_table(why: impl Into<String>) -> LayoutError {
    LayoutError::BadTable { why: why.into() }
}

/// Finds the root filesystem of a disk by reading it. Total on hostile input: no panic, bounded memory.
pub fn find_root(disk: &File, choice: &PartitionChoice) -> Result<RootPartition, LayoutError> {
    find_root_in(&mut &*disk, choice)
}

/// Like [`find_root`], in anything that reads like a disk.
fn find_root_in(disk: &mut (impl Read + Seek), choice: &PartitionChoice) -> Result<RootPartition, LayoutError> {
    let size = disk.seek(SeekFrom::End(0)).attempt("find the size of the disk")?;
    let mut candidates = Vec::new();
    for partition in partitions(disk, size)? {
        let Some((filesystem, label)) = identify(disk, &partition)? else { continue };
        candidates.push(Candidate {
            partition: partition.number,
            filesystem,
            label,
            partition_name: partition.name,
            offset: partition.offset,
            size: partition.size,
            purpose: partition.purpose,
        });
    }
    choose(candidates, choice)
}

fn choose(candidates: Vec<Candidate>, choice: &PartitionChoice) -> Result<RootPartition, LayoutError> {
    let fits = |candidate: &&Candidate| match choice {
        PartitionChoice::OnlyRoot => true,
        PartitionChoice::Number(number) => candidate.partition == Some(*number),
        PartitionChoice::Label(label) => &candidate.label == label || &candidate.partition_name == label,
    };
    let mut fitting: Vec<_> = candidates.iter().filter(fits).cloned().collect();
    if *choice == PartitionChoice::OnlyRoot {
        if fitting.iter().any(|candidate| candidate.purpose == Purpose::Root) {
            fitting.retain(|candidate| candidate.purpose == Purpose::Root);
        } else {
            fitting.retain(|candidate| candidate.purpose != Purpose::Boot);
        }
    }
    let wanted = match choice {
        PartitionChoice::OnlyRoot if candidates.is_empty() => return Err(LayoutError::NoRoot),
        PartitionChoice::OnlyRoot => "that may be the root".to_owned(),
        PartitionChoice::Number(number) => format!("in partition {number}"),
        PartitionChoice::Label(label) => format!("or partition named `{label}`"),
    };
    match fitting.len() {
        0 => Err(LayoutError::NotThere { wanted, candidates }),
        1 => Ok(fitting.remove(0)),
        _ => Err(LayoutError::Ambiguous { candidates: fitting }),
    }
}

/// A part of the disk that lies within it.
struct Partition {
    number: Option<u32>,
    name: String,
    offset: u64,
    size: u64,
    purpose: Purpose,
}

/// Lists the partitions: of a GPT, of no table at all, or of an MBR, in this order.
fn partitions(disk: &mut (impl Read + Seek), size: u64) -> Result<Vec<Partition>, LayoutError> {
    // Disks with sectors of 4096 bytes have theirs at 4096.
    for sector in [512, 4096] {
        if read_array::<8>(disk, sector)? == Some(*b"EFI PART") {
            return gpt::partitions(disk, size, sector);
        }
    }
    let whole = Partition { number: None, name: String::new(), offset: 0, size, purpose: Purpose::Data };
    if identify(disk, &whole)?.is_some() {
        return Ok(vec![whole]);
    }
    mbr::partitions(disk, size)
}

/// Reads some bytes; `None` if the disk ends before.
fn read_array<const N: usize>(disk: &mut (impl Read + Seek), at: u64) -> Result<Option<[u8; N]>, SystemError> {
    let mut bytes = [0; N];
    let read = disk.seek(SeekFrom::Start(at)).and_then(|_| disk.read_exact(&mut bytes));
    match read {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error).attempt("read the disk"),
    }
}

/// Where btrfs has its first superblock; the others have theirs at the beginning (XFS) and after 1024 bytes (ext4).
const BTRFS_SUPERBLOCK: u64 = 64 * 1024;

/// Recognises a filesystem by its superblock, and reads its label.
fn identify(
    disk: &mut (impl Read + Seek),
    partition: &Partition,
) -> Result<Option<(FilesystemKind, String)>, SystemError> {
    // Within the partition, and so never past an offset that fits.
    let mut at = |offset: u64| match partition.size.checked_sub(offset) {
        Some(room) if room >= 512 => read_array::<512>(disk, partition.offset + offset),
        _ => Ok(None),
    };
    if let Some(block) = at(1024)?
        && block[0x38..0x3a] == [0x53, 0xef]
    {
        return Ok(Some((FilesystemKind::Ext4, text(&block[0x78..0x88]))));
    }
    if let Some(block) = at(0)?
        && block.starts_with(b"XFSB")
    {
        return Ok(Some((FilesystemKind::Xfs, text(&block[108..120]))));
    }
    if let Some(block) = at(BTRFS_SUPERBLOCK)?
        && block[0x40..0x48] == *b"_BHRfS_M"
    {
        let label = at(BTRFS_SUPERBLOCK + 0x12b)?.map(|label| text(&label[..256])).unwrap_or_default();
        return Ok(Some((FilesystemKind::Btrfs, label)));
    }
    Ok(None)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

mod gpt {
    use super::*;

    /// What every tool makes; the library is not safe with others.
    const ENTRY_SIZE: u32 = 128;
    /// Eight times what every tool makes.
    const MOST_ENTRIES: u32 = 1024;

    /// The types of a root for x86-64 and arm64, and of a separate boot partition, as they lie on the disk.
    const ROOT_X86_64: [u8; 16] = guid(0x4f68_bce3, 0xe8cd, 0x4db1, [0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09]);
    const ROOT_ARM64: [u8; 16] = guid(0xb921_b045, 0x1df0, 0x41c3, [0xaf, 0x44, 0x4c, 0x6f, 0x28, 0x0d, 0x3f, 0xae]);
    const BOOT: [u8; 16] = guid(0xbc13_c2ff, 0x59e6, 0x4262, [0xa3, 0x52, 0xb2, 0x75, 0xfd, 0x6f, 0x71, 0x72]);

    const fn guid(a: u32, b: u16, c: u16, d: [u8; 8]) -> [u8; 16] {
        let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
        [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
    }

    /// Reads the table at the beginning of the disk, or its copy at the end.
    pub(super) fn partitions(
        disk: &mut (impl Read + Seek),
        size: u64,
        sector: u64,
    ) -> Result<Vec<Partition>, LayoutError> {
        let first = entries(disk, size, sector, sector);
        let last = (size / sector).saturating_sub(1) * sector;
        let entries = first.or_else(|error| entries(disk, size, sector, last).map_err(|_| error))?;
        let used = entries.iter().zip(1..).filter(|(entry, _)| entry.is_used());
        used.map(|(entry, number)| partition(entry, number, size, sector)).collect()
    }

    /// Reads the entries that a header points to. The header is judged before the library may believe it: it would ask for memory
    /// for any number of entries.
    fn entries(
        disk: &mut (impl Read + Seek),
        size: u64,
        sector: u64,
        header_at: u64,
    ) -> Result<Vec<GPTPartitionEntry>, LayoutError> {
        let unreadable = |error: gptman::Error| bad_table(error.to_string());
        disk.seek(SeekFrom::Start(header_at)).attempt("read the disk")?;
        let header = GPTHeader::read_from(disk).map_err(unreadable)?;
        let (count, entry_size) = (header.number_of_partition_entries, header.size_of_partition_entry);
        if entry_size != ENTRY_SIZE || count > MOST_ENTRIES {
            return Err(bad_table(format!("it claims {count} entries of {entry_size} bytes")));
        }
        let length = u64::from(count) * u64::from(entry_size);
        let end = header.partition_entry_lba.checked_mul(sector).and_then(|start| start.checked_add(length));
        if end.is_none_or(|end| end > size) {
            return Err(bad_table("its entries lie beyond the end of the disk"));
        }
        header.read_partitions(disk, sector).map_err(unreadable)
    }

    fn partition(entry: &GPTPartitionEntry, number: u32, size: u64, sector: u64) -> Result<Partition, LayoutError> {
        let (first, last) = (entry.starting_lba, entry.ending_lba);
        let end = last.checked_add(1).and_then(|end| end.checked_mul(sector)).filter(|&end| end <= size);
        let (Some(end), true) = (end, 0 < first && first <= last) else {
            return Err(bad_table(format!("partition {number} (sectors {first} to {last}) is not on the disk")));
        };
        let offset = first * sector;
        let purpose = match entry.partition_type_guid {
            ROOT_X86_64 | ROOT_ARM64 => Purpose::Root,
            BOOT => Purpose::Boot,
            _ => Purpose::Data,
        };
        let name = entry.partition_name.as_str().to_owned();
        Ok(Partition { number: Some(number), name, offset, size: end - offset, purpose })
    }
}

/// Read by hand: it is four entries and a chain, and the library's sums overflow on hostile ones.
mod mbr {
    use super::*;

    const SECTOR: u64 = 512;
    /// As many as Linux gives numbers to. Also ends a chain that bites its tail.
    const MOST_LOGICAL: u32 = 60;
    /// The types of an extended partition: CHS, LBA, Linux.
    const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

    struct Entry {
        kind: u8,
        start: u64,
        sectors: u64,
    }

    impl Entry {
        fn is_extended(&self) -> bool {
            EXTENDED.contains(&self.kind)
        }
    }

    pub(super) fn partitions(disk: &mut (impl Read + Seek), size: u64) -> Result<Vec<Partition>, LayoutError> {
        let mut found = Vec::new();
        let Some(primary) = read_table(disk, 0)? else { return Ok(found) };
        for (entry, number) in primary.iter().zip(1..) {
            if entry.kind != 0 && !entry.is_extended() {
                found.push(partition(number, entry.start, entry.sectors, size)?);
            }
        }
        if let Some(extended) = primary.iter().find(|entry| entry.is_extended()) {
            logical(disk, extended.start, size, &mut found)?;
        }
        Ok(found)
    }

    /// Follows the chain of tables in an extended partition: each has one partition, placed relative to it, and the next link, placed
    /// relative to the whole.
    fn logical(
        disk: &mut (impl Read + Seek),
        extended: u64,
        size: u64,
        found: &mut Vec<Partition>,
    ) -> Result<(), LayoutError> {
        let mut table = extended;
        for number in 5..5 + MOST_LOGICAL {
            let Some([entry, link, ..]) = read_table(disk, table)? else { return Ok(()) };
            if entry.kind != 0 {
                found.push(partition(number, table + entry.start, entry.sectors, size)?);
            }
            if link.kind == 0 || link.start == 0 {
                return Ok(());
            }
            table = extended + link.start;
        }
        Err(bad_table("its logical partitions have no end"))
    }

    /// Reads the four entries of a table; `None` if there is no table.
    fn read_table(disk: &mut (impl Read + Seek), at: u64) -> Result<Option<[Entry; 4]>, SystemError> {
        let Some(sector) = read_array::<512>(disk, at * SECTOR)? else { return Ok(None) };
        if sector[510..] != [0x55, 0xaa] {
            return Ok(None);
        }
        let number = |at: usize| u64::from(u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes")));
        Ok(Some([446, 462, 478, 494].map(|at| Entry {
            kind: sector[at + 4],
            start: number(at + 8),
            sectors: number(at + 12),
        })))
    }

    /// Takes sector numbers, which are sums of at most three 32-bit ones.
    fn partition(number: u32, start: u64, sectors: u64, size: u64) -> Result<Partition, LayoutError> {
        let (offset, length) = (start * SECTOR, sectors * SECTOR);
        if start == 0 || sectors == 0 || offset + length > size {
            return Err(bad_table(format!(
                "partition {number} (sector {start}, {sectors} sectors) is not on the disk"
            )));
        }
        Ok(Partition { number: Some(number), name: String::new(), offset, size: length, purpose: Purpose::Data })
    }
}

#[cfg(test)]
mod tests;
