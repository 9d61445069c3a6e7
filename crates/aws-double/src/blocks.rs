//! The bytes of a snapshot: a sparse file for what was written in it, over those of its parent.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512 * 1024;

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// The blocks of a snapshot.
pub(crate) struct Blocks {
    file: File,
    written: Mutex<BTreeMap<u32, Digest>>,
    parent: Option<Arc<Blocks>>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks", self.all().len())
    }
}

impl Blocks {
    pub(crate) fn new(parent: Option<Arc<Blocks>>) -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, written: Mutex::default(), parent })
    }

    /// Returns what was written in this snapshot, by index.
    pub(crate) fn written(&self) -> MutexGuard<'_, BTreeMap<u32, Digest>> {
        self.written.lock().expect("nothing panics with it")
    }

    pub(crate) fn put(&self, index: u32, data: &[u8], digest: Digest) -> io::Result<()> {
        self.file.write_all_at(data, u64::from(index) * BLOCK as u64)?;
        self.written().insert(index, digest);
        Ok(())
    }

    /// Returns a block and its digest; `None` if nobody ever wrote it.
    pub(crate) fn get(&self, index: u32) -> io::Result<Option<(Vec<u8>, Digest)>> {
        let own = self.written().get(&index).copied();
        match (own, &self.parent) {
            (Some(digest), _) => {
                let mut data = vec![0; BLOCK];
                // A block of zeros at the end of the file may be a hole behind it.
                let there = self.file.read_at(&mut data, u64::from(index) * BLOCK as u64)?;
                debug_assert!(there == BLOCK || data[there..].iter().all(|byte| *byte == 0));
                Ok(Some((data, digest)))
            }
            (None, Some(parent)) => parent.get(index),
            (None, None) => Ok(None),
        }
    }

    /// Returns the digests of all blocks, those of the parent as well.
    pub(crate) fn all(&self) -> BTreeMap<u32, Digest> {
        let mut all = self.parent.as_ref().map(|parent| parent.all()).unwrap_or_default();
        all.extend(self.written().iter());
        all
    }
}
