//! A service in memory: snapshots of blocks, with faults that are due at chosen calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ebs_transfer::{
    ApiError, BLOCK_SIZE, Block, BlockPage, Digest, DigestIndex, ErrorClass, Patience, SnapshotApi, SnapshotState,
    Upload, linear_checksum,
};
use tempfile::TempDir;

/// Blocks of a snapshot by their index.
pub(crate) type Blocks = BTreeMap<u32, Vec<u8>>;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It does not happen.
    Refused(ErrorClass),
    /// It happens, and nobody hears of it.
    AnswerLost,
    /// The checksum that comes back is another one, or the bytes are.
    Garbled,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) parent: Blocks,
    pub(crate) written: Blocks,
    /// Writes of each block.
    pub(crate) puts: BTreeMap<u32, u32>,
    pub(crate) completed: Option<(u32, Option<String>)>,
    /// What the service says in the end, if it is not content.
    pub(crate) refuses: Option<String>,
    /// Looks at the state until it says how that ended.
    pub(crate) pending: u32,
    /// Faults by the number of the call, counted over all calls from 0.
    pub(crate) faults: BTreeMap<u32, Wrong>,
    /// What every call meets from its number on, if nothing else does.
    pub(crate) always: Option<Wrong>,
    pub(crate) calls: u32,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    /// Tokens of the list that are not good any more.
    pub(crate) stale: BTreeSet<String>,
    lists: u32,
}

/// The service, and a folder for disks.
pub(crate) struct Service {
    pub(crate) state: Mutex<State>,
    pub(crate) folder: TempDir,
}

impl Service {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a reader of the finished snapshot gets.
    pub(crate) fn child(&self) -> Blocks {
        let state = self.state();
        let all = state.parent.iter().chain(&state.written);
        all.map(|(index, data)| (*index, data.clone())).collect()
    }

    /// Notes a call and tells what goes wrong with it.
    fn call(&self) -> Option<Wrong> {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        state.faults.get(&number).copied().or(state.always)
    }
}

pub(crate) fn error(class: ErrorClass) -> ApiError {
    ApiError { class, message: format!("{class:?}") }
}

impl SnapshotApi for Service {
    async fn put_block(&self, _: &str, index: u32, data: Bytes, digest: Digest) -> Result<Option<Digest>, ApiError> {
        let wrong = self.call();
        {
            let mut state = self.state();
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
        }
        tokio::task::yield_now().await;
        let mut state = self.state();
        state.in_flight -= 1;
        if let Some(Wrong::Refused(class)) = wrong {
            return Err(error(class));
        }
        assert_eq!((data.len(), Digest::of(&data)), (BLOCK_SIZE, digest));
        assert!(state.completed.is_none(), "block {index} was written after the end");
        *state.puts.entry(index).or_default() += 1;
        state.written.insert(index, data.to_vec());
        match wrong {
            Some(Wrong::AnswerLost) => Err(error(ErrorClass::Passing)),
            Some(Wrong::Garbled) => Ok(Some(Digest::ZERO)),
            _ => Ok(Some(digest)),
        }
    }

    async fn complete(&self, _: &str, written: u32, checksum: Option<String>) -> Result<(), ApiError> {
        let wrong = self.call();
        if let Some(Wrong::Refused(class)) = wrong {
            return Err(error(class));
        }
        let mut state = self.state();
        state.completed.get_or_insert((written, checksum));
        if wrong == Some(Wrong::AnswerLost) { Err(error(ErrorClass::Passing)) } else { Ok(()) }
    }

    /// The service checks when it has said yes.
    async fn state(&self, _: &str) -> Result<SnapshotState, ApiError> {
        if let Some(Wrong::Refused(class)) = self.call() {
            return Err(error(class));
        }
        let mut state = self.state();
        let Some((count, checksum)) = state.completed.clone() else { return Ok(SnapshotState::Pending) };
        if state.pending > 0 {
            state.pending -= 1;
            return Ok(SnapshotState::Pending);
        }
        let digests: Vec<Digest> = state.written.values().map(|data| Digest::of(data)).collect();
        let right = (!digests.is_empty()).then(|| linear_checksum(&digests));
        Ok(match state.refuses.clone() {
            Some(reason) => SnapshotState::Failed { reason },
            None if checksum != right => SnapshotState::Failed { reason: "Checksum mismatch for snapshot".into() },
            None if count as usize != digests.len() => SnapshotState::Failed { reason: "count mismatch".into() },
            None => SnapshotState::Completed,
        })
    }

    /// Two blocks a page, an empty page before each, and sizes on the first only.
    async fn list_blocks(&self, _: &str, page: Option<String>, from: u32) -> Result<BlockPage, ApiError> {
        if let Some(Wrong::Refused(class)) = self.call() {
            return Err(error(class));
        }
        let first = page.is_none();
        let (from, empty) = match &page {
            None => (from, true),
            Some(page) => (page.trim_start_matches('e').parse().unwrap(), !page.starts_with('e')),
        };
        let blocks = self.child();
        let mut state = self.state();
        state.lists += u32::from(first);
        let mut rest = blocks.keys().filter(|index| **index >= from);
        if empty {
            let next = rest.next().map(|index| format!("e{index}"));
            let sizes = first.then_some((1, BLOCK_SIZE));
            let (volume_size_gib, block_size) = sizes.unzip();
            return Ok(BlockPage { blocks: Vec::new(), next, volume_size_gib, block_size });
        }
        let lists = state.lists;
        let blocks = rest.by_ref().take(2).map(|index| (*index, format!("{lists}-_{index}"))).collect();
        let next = rest.next().map(ToString::to_string);
        Ok(BlockPage { blocks, next, volume_size_gib: None, block_size: None })
    }

    async fn get_block(&self, _: &str, index: u32, token: &str) -> Result<Block, ApiError> {
        let wrong = self.call();
        tokio::task::yield_now().await;
        if let Some(Wrong::Refused(class)) = wrong {
            return Err(error(class));
        }
        if self.state().stale.contains(token) {
            return Err(error(ErrorClass::TokenExpired));
        }
        let mut data = self.child()[&index].clone();
        let digest = Some(Digest::of(&data));
        if wrong == Some(Wrong::Garbled) {
            data[7] ^= 1;
        }
        if wrong == Some(Wrong::AnswerLost) {
            return Err(error(ErrorClass::Passing));
        }
        Ok(Block { data: data.into(), digest })
    }
}

/// Short waits, so that a test of the real clock is quick too.
pub(crate) fn patience() -> Patience {
    Patience { shortest: Duration::from_millis(1), pace: Duration::from_millis(1), ..Patience::default() }
}

/// A block that is full of a byte; none for 0.
pub(crate) fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_SIZE]
}

/// A disk of so many blocks: each is full of its byte, and 0 is a hole.
pub(crate) fn disk(path: &Path, blocks: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len((blocks.len() * BLOCK_SIZE) as u64).unwrap();
    for (index, byte) in blocks.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        file.write_all_at(&block(*byte), (index * BLOCK_SIZE) as u64).unwrap();
    }
}

/// The same as blocks of a snapshot: nobody writes a hole.
pub(crate) fn blocks(bytes: &[u8]) -> Blocks {
    let there = (0..).zip(bytes).filter(|(_, byte)| **byte != 0);
    there.map(|(index, byte)| (index, block(*byte))).collect()
}

pub(crate) fn index(blocks: &Blocks, count: usize) -> DigestIndex {
    let mut index = DigestIndex::of_size((count * BLOCK_SIZE) as u64);
    blocks.iter().for_each(|(number, data)| index.set(*number, Digest::of(data)));
    index
}

impl Service {
    /// An upload of the disk `disk` over the parent that the service has.
    pub(crate) fn upload(&self) -> Upload {
        let parent = self.state().parent.clone();
        let count = parent.keys().next_back().map_or(0, |last| *last as usize + 1);
        let parent = (!parent.is_empty()).then(|| ("snap-parent".to_owned(), index(&parent, count)));
        Upload {
            snapshot: "snap-1".into(),
            age: Duration::ZERO,
            disk: self.path("disk"),
            parent,
            candidates: None,
            journal: self.path("journal"),
            patience: patience(),
        }
    }
}
