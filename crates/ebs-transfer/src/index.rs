//! The digests of all blocks of a snapshot.
//!
//! The file: `bake-digests-1\n`, the number of blocks as a little-endian `u32`, a byte for each that says whether the block is
//! there, the digests of those that are, and the SHA-256 of all before.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::block::{BLOCK_SIZE, Digest};

const MAGIC: &[u8] = b"bake-digests-1\n";

/// Blocks of the largest volume, 64 TiB.
const MOST_BLOCKS: u32 = 65_536 * 2_048;

/// A file of digests that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// It cannot be read or written.
    #[error("cannot read or write the digests")]
    File(#[from] io::Error),
    /// It is something else, or damaged.
    #[error("this is no file of digests: {0}")]
    Broken(&'static str),
}

/// The digests of all blocks of a snapshot; what was never written has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestIndex {
    digests: Vec<Option<Digest>>,
}

impl DigestIndex {
    /// Makes the index of a volume of so many bytes in which no block is.
    pub fn of_size(bytes: u64) -> Self {
        Self { digests: vec![None; usize::try_from(bytes.div_ceil(BLOCK_SIZE as u64)).expect("volumes are small")] }
    }

    /// Returns the number of blocks of the volume.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Tells whether the volume has no blocks.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Returns the digest of a block; `None` if it was never written, or is beyond the volume.
    pub fn get(&self, index: u32) -> Option<Digest> {
        self.digests.get(index as usize).copied().flatten()
    }

    /// Sets the digest of a block.
    ///
    /// # Panics
    ///
    /// If the block is beyond the volume.
    pub fn set(&mut self, index: u32, digest: Digest) {
        self.digests[index as usize] = Some(digest);
    }

    /// Lists the blocks that are there, in order.
    pub fn present(&self) -> impl Iterator<Item = (u32, Digest)> {
        (0..).zip(&self.digests).filter_map(|(index, digest)| Some((index, (*digest)?)))
    }

    /// Writes the index to a file, which appears at once.
    pub fn write(&self, path: &Path) -> Result<(), IndexError> {
        let mut bytes = MAGIC.to_vec();
        let count = u32::try_from(self.digests.len()).map_err(|_| IndexError::Broken("too many blocks"))?;
        bytes.extend(count.to_le_bytes());
        bytes.extend(self.digests.iter().map(|digest| u8::from(digest.is_some())));
        self.digests.iter().flatten().for_each(|digest| bytes.extend(digest.as_bytes()));
        let checksum = Sha256::digest(&bytes);
        bytes.extend(checksum);
        let writing = path.with_extension("writing");
        let mut file = File::create(&writing)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(fs::rename(writing, path)?)
    }

    /// Reads the index from a file.
    pub fn read(path: &Path) -> Result<Self, IndexError> {
        /// What the file of the largest volume has.
        const MOST_BYTES: u64 = MAGIC.len() as u64 + 4 + MOST_BLOCKS as u64 * 33 + 32;
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let split = bytes.len().checked_sub(32).ok_or(IndexError::Broken("it is too short"))?;
        let (content, checksum) = bytes.split_at(split);
        if Sha256::digest(content).as_slice() != checksum {
            return Err(IndexError::Broken("its checksum is wrong"));
        }
        let rest = content.strip_prefix(MAGIC).ok_or(IndexError::Broken("it begins with something else"))?;
        let (count, rest) = rest.split_first_chunk().ok_or(IndexError::Broken("it is too short"))?;
        let count = u32::from_le_bytes(*count);
        if count > MOST_BLOCKS || rest.len() < count as usize {
            return Err(IndexError::Broken("its count is wrong"));
        }
        let (there, digests) = rest.split_at(count as usize);
        let mut digests = digests.chunks(32);
        let next = |there: &u8| match there {
            0 => Ok(None),
            1 => digests
                .next()
                .and_then(|bytes| bytes.try_into().ok())
                .map(|bytes| Some(Digest::from_bytes(bytes)))
                .ok_or(()),
            _ => Err(()),
        };
        let all = there.iter().map(next).collect::<Result<_, ()>>();
        let all = all.map_err(|()| IndexError::Broken("its digests are not as many as it says"))?;
        match digests.next() {
            None => Ok(Self { digests: all }),
            Some(_) => Err(IndexError::Broken("it goes on behind its end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(blocks: &[Option<u8>]) -> DigestIndex {
        DigestIndex { digests: blocks.iter().map(|byte| byte.map(|byte| Digest::from_bytes([byte; 32]))).collect() }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(blocks in prop::collection::vec(prop::option::of(any::<u8>()), 0..40)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("digests");
            index(&blocks).write(&path).unwrap();
            prop_assert_eq!(DigestIndex::read(&path).unwrap(), index(&blocks));
        }

        #[test]
        fn a_damaged_file_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("digests");
            index(&[Some(1), None, Some(2)]).write(&path).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(DigestIndex::parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..200), sound in any::<bool>()) {
            if sound {
                bytes.splice(0..0, MAGIC.iter().copied());
                let checksum = Sha256::digest(&bytes);
                bytes.extend(checksum);
            }
            let _either = DigestIndex::parse(&bytes);
        }
    }

    #[test]
    fn blocks_that_are_there_are_listed_in_order() {
        let present: Vec<_> = index(&[None, Some(1), None, Some(2)]).present().map(|(index, _)| index).collect();
        assert_eq!(present, [1, 3]);
        assert_eq!(DigestIndex::of_size(BLOCK_SIZE as u64 * 3 + 1).len(), 4);
    }
}
