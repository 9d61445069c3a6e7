//! What a transfer has done so far, beside the file that it works on.
//!
//! A line of JSON that says what is transferred, then 36 bytes for each block that is done: its index, a little-endian `u32`,
//! and its digest. Nothing is synced: a lost end costs that its blocks are transferred again. What another transfer has left is
//! not gone on with.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::block::Digest;

/// Bytes of a record.
const RECORD: usize = 36;

/// Longest first line.
const LONGEST_HEADER: u64 = 4096;

/// What is transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot that an upload begins with.
    pub parent: Option<String>,
    /// Bytes of the disk.
    pub size: u64,
    /// What the disk was like: an upload of one that was changed begins anew.
    pub changed: Option<(i64, i64)>,
}

/// The file, open for appending.
pub(crate) struct Journal {
    file: File,
    /// Blocks that were done before.
    pub(crate) done: BTreeMap<u32, Digest>,
}

impl Journal {
    /// Opens the file, or begins it anew if it is of another transfer.
    pub(crate) fn open(path: &Path, header: &Header) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        reader.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut line)?;
        let mut done = BTreeMap::new();
        let mut end = line.len() as u64;
        if serde_json::from_slice::<Header>(&line).is_ok_and(|before| before == *header) && line.ends_with(b"\n") {
            let mut record = [0; RECORD];
            while read_whole(&mut reader, &mut record)? {
                let (index, digest) = record.split_first_chunk().expect("a record is longer");
                let digest = digest.try_into().expect("the rest is a digest");
                done.insert(u32::from_le_bytes(*index), Digest::from_bytes(digest));
                end += RECORD as u64;
            }
        } else {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            let mut line = serde_json::to_vec(header)?;
            line.push(b'\n');
            file.write_all(&line)?;
            end = line.len() as u64;
        }
        // What was torn off is written again, at its place.
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Self { file, done })
    }

    /// Notes that a block is done.
    pub(crate) fn note(&mut self, index: u32, digest: Digest) -> io::Result<()> {
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&index.to_le_bytes());
        record[4..].copy_from_slice(digest.as_bytes());
        self.file.write_all(&record)
    }
}

/// Reads a whole record, or says that there is none any more.
fn read_whole(reader: &mut impl io::Read, record: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(record) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(snapshot: &str) -> Header {
        Header { snapshot: snapshot.into(), parent: None, size: 7, changed: Some((1, 2)) }
    }

    fn digest(byte: u8) -> Digest {
        Digest::from_bytes([byte; 32])
    }

    #[test]
    fn what_was_noted_is_there_again_and_a_torn_end_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, &header("snap-1")).unwrap();
        journal.note(7, digest(1)).unwrap();
        journal.note(1_000_000, digest(2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for torn in 0..=RECORD {
            std::fs::write(&path, &whole[..whole.len() - torn]).unwrap();
            let mut again = Journal::open(&path, &header("snap-1")).unwrap();
            assert_eq!(again.done.len(), if torn == 0 { 2 } else { 1 });
            assert_eq!(again.done[&7], digest(1));
            again.note(9, digest(3)).unwrap();
            assert_eq!(Journal::open(&path, &header("snap-1")).unwrap().done[&9], digest(3));
        }
    }

    #[test]
    fn another_transfer_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::open(&path, &header("snap-1")).unwrap().note(7, digest(1)).unwrap();
        assert!(Journal::open(&path, &header("snap-2")).unwrap().done.is_empty());
        for garbage in [&b"\n"[..], b"{", b"\0\0\0", &[b'x'; 9000]] {
            std::fs::write(&path, garbage).unwrap();
            assert!(Journal::open(&path, &header("snap-1")).unwrap().done.is_empty());
        }
    }
}
