//! Reading a disk: which of its blocks differ from the parent's. One thread for each processor reads and hashes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::fs::SeekFrom;
use tokio::sync::mpsc::Sender;

use crate::block::{BLOCK_SIZE, Digest, is_zero};
use crate::index::DigestIndex;

/// A block that has to be sent.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) index: u32,
    pub(crate) digest: Digest,
    pub(crate) data: Bytes,
}

/// What is scanned, and how far that is.
pub(crate) struct Scan {
    file: File,
    size: u64,
    parent: DigestIndex,
    /// Blocks to look at, in order.
    blocks: Vec<Look>,
    next: AtomicUsize,
    pool: Arc<Pool>,
}

#[derive(Clone, Copy)]
enum Look {
    /// There may be data.
    Read(u32),
    /// It is a hole where the parent has data.
    Zero(u32),
}

impl Scan {
    /// Finds out what has to be looked at. Where `candidates` are given, everything outside of these byte ranges is known to be as
    /// in the parent.
    pub(crate) fn new(
        file: File,
        size: u64,
        parent: DigestIndex,
        candidates: Option<&[Range<u64>]>,
    ) -> io::Result<Self> {
        let blocks = looks(&data_blocks(&file, size)?, size, &parent, candidates);
        Ok(Self { file, size, parent, blocks, next: AtomicUsize::new(0), pool: Arc::default() })
    }

    /// Returns how many blocks are looked at in all.
    pub(crate) fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Returns how many blocks were looked at.
    pub(crate) fn done(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.total())
    }

    /// Looks at blocks until there is none left or nobody listens. Several threads may do so at once.
    pub(crate) fn work(&self, sink: &Sender<io::Result<Changed>>) {
        while let Some(look) = self.blocks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let sent = match self.look(*look) {
                Ok(None) => continue,
                Ok(Some(changed)) => sink.blocking_send(Ok(changed)),
                Err(error) => sink.blocking_send(Err(error)),
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn look(&self, look: Look) -> io::Result<Option<Changed>> {
        let (Look::Read(index) | Look::Zero(index)) = look;
        let parent = self.parent.get(index);
        if let Look::Read(_) = look {
            let buffer = self.read(index)?;
            if !is_zero(&buffer.0) {
                let digest = Digest::of(&buffer.0);
                let changed = parent != Some(digest);
                return Ok(changed.then(|| Changed { index, digest, data: Bytes::from_owner(buffer) }));
            }
        }
        // Zeros are what a block is that nobody wrote; where the parent has something else they have to be said.
        let hides = parent.is_some_and(|digest| digest != Digest::ZERO);
        Ok(hides.then(|| Changed { index, digest: Digest::ZERO, data: Bytes::from_static(&ZEROS) }))
    }

    /// Reads a block; what is behind the end of the disk is zeros.
    fn read(&self, index: u32) -> io::Result<Buffer> {
        let mut buffer = Buffer::from(&self.pool);
        let start = u64::from(index) * BLOCK_SIZE as u64;
        let length = usize::try_from((self.size - start).min(BLOCK_SIZE as u64)).expect("a block is small");
        self.file.read_exact_at(&mut buffer.0[..length], start)?;
        buffer.0[length..].fill(0);
        Ok(buffer)
    }
}

static ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];

/// The blocks that hold data, as far as the filesystem can tell.
fn data_blocks(file: &File, size: u64) -> io::Result<Vec<Range<u32>>> {
    let block =
        |offset: u64| u32::try_from(offset / BLOCK_SIZE as u64).map_err(|_| io::Error::other("the disk is too large"));
    let (mut ranges, mut offset): (Vec<Range<u32>>, u64) = (Vec::new(), 0);
    while offset < size {
        let (start, end) = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => (start, rustix::fs::seek(file, SeekFrom::Hole(start))?),
            Err(rustix::io::Errno::NXIO) => break,
            // A device, or a filesystem that knows no holes.
            Err(rustix::io::Errno::INVAL) => (offset, size),
            Err(error) => return Err(error.into()),
        };
        let (first, end_block) = (block(start)?, block((end.min(size) - 1).max(start))? + 1);
        match ranges.last_mut() {
            Some(last) if last.end >= first => last.end = end_block,
            _ => ranges.push(first..end_block),
        }
        offset = end;
    }
    Ok(ranges)
}

fn looks(data: &[Range<u32>], size: u64, parent: &DigestIndex, candidates: Option<&[Range<u64>]>) -> Vec<Look> {
    let blocks = u32::try_from(size.div_ceil(BLOCK_SIZE as u64)).expect("it was checked with the data");
    // Blocks of the parent behind the end of a disk that became smaller are hidden as well.
    let all = blocks.max(u32::try_from(parent.len()).unwrap_or(u32::MAX));
    let wanted = |index: u32| {
        let start = u64::from(index) * BLOCK_SIZE as u64;
        let touches = |range: &Range<u64>| range.start < start + BLOCK_SIZE as u64 && range.end > start;
        candidates.is_none_or(|ranges| ranges.iter().any(touches))
    };
    let (mut looks, mut next) = (Vec::new(), 0);
    let zeros = |looks: &mut Vec<Look>, range: Range<u32>| {
        looks.extend(range.filter(|index| parent.get(*index).is_some() && wanted(*index)).map(Look::Zero));
    };
    for range in data {
        zeros(&mut looks, next..range.start);
        looks.extend(range.clone().filter(|index| wanted(*index)).map(Look::Read));
        next = range.end;
    }
    zeros(&mut looks, next..all);
    looks
}

/// Buffers that were used and may be again.
#[derive(Default)]
struct Pool(Mutex<Vec<Box<[u8]>>>);

/// A block's bytes, on loan.
struct Buffer(Box<[u8]>, Arc<Pool>);

impl Buffer {
    fn from(pool: &Arc<Pool>) -> Self {
        let used = pool.0.lock().expect("nothing panics with it").pop();
        Self(used.unwrap_or_else(|| vec![0; BLOCK_SIZE].into()), Arc::clone(pool))
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.1.0.lock().expect("nothing panics with it").push(std::mem::take(&mut self.0));
    }
}
