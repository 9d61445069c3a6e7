//! Uploading a disk into a snapshot that was begun.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiError, ErrorClass, SnapshotApi, SnapshotState};
use crate::block::{BLOCK_SIZE, Digest, linear_checksum};
use crate::error::{TransferError, TransferResult};
use crate::index::DigestIndex;
use crate::journal::{Header, Journal};
use crate::pace::Pace;
use crate::patience::{Patience, Tries};
use crate::scan::{Changed, Scan};

/// Blocks between those who read and those who send.
const QUEUE: usize = 4;

/// What is uploaded, and where to.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The snapshot, begun with the parent's blocks if there is one.
    pub snapshot: String,
    /// How long ago it was begun: at first the service may not know it everywhere.
    pub age: Duration,
    /// The disk; nobody may write to it meanwhile.
    pub disk: PathBuf,
    /// The snapshot that it begins with, and its digests.
    pub parent: Option<(String, DigestIndex)>,
    /// Byte ranges that may differ from the parent; all if not given.
    pub candidates: Option<Vec<Range<u64>>>,
    /// Where to note what is done.
    pub journal: PathBuf,
    /// How patient to be.
    pub patience: Patience,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Uploaded {
    /// Blocks that were written, in this process or before.
    pub written: u32,
    /// The digests of all blocks of the snapshot.
    pub digests: DigestIndex,
}

/// Writes the blocks in which a disk differs from the parent, and waits until the service says that the snapshot is complete.
///
/// Called again after a failure, also by another process, it goes on where it was. `progress` hears of the bytes looked at and
/// of all that are to be looked at.
///
/// # Errors
///
/// If the service refuses, or fails for longer than patience lasts; if the disk cannot be read, or is changed meanwhile.
pub async fn upload<A: SnapshotApi>(
    api: &Arc<A>,
    upload: Upload,
    progress: impl Fn(u64, u64),
    cancel: &CancellationToken,
) -> TransferResult<Uploaded> {
    let disk = File::open(&upload.disk).map_err(TransferError::file("open", &upload.disk))?;
    let before = Stamp::of(&disk).map_err(TransferError::file("look at", &upload.disk))?;
    let (parent, index) = upload.parent.clone().map_or((None, DigestIndex::default()), |(id, index)| (Some(id), index));
    let header = Header { snapshot: upload.snapshot.clone(), parent, size: before.size, changed: Some(before.changed) };
    let journal = Journal::open(&upload.journal, &header).map_err(TransferError::file("open", &upload.journal))?;

    let mut digests = DigestIndex::of_size(before.size.max(index.len() as u64 * BLOCK_SIZE as u64));
    index.present().for_each(|(block, digest)| digests.set(block, digest));
    let scan = Scan::new(disk, before.size, index, upload.candidates.as_deref());
    let scan = Arc::new(scan.map_err(TransferError::file("read", &upload.disk))?);

    let mut sender = Sender { api, upload: &upload, journal, pace: Arc::new(Pace::new()), begun: Instant::now() };
    let written = tokio::select! {
        written = sender.send(&scan, &progress) => written?,
        () = cancel.cancelled() => return Err(TransferError::Cancelled),
    };
    let disk = File::open(&upload.disk).and_then(|file| Stamp::of(&file));
    if disk.map_err(TransferError::file("look at", &upload.disk))? != before {
        return Err(TransferError::Changed { path: upload.disk });
    }
    written.iter().for_each(|(block, digest)| digests.set(*block, *digest));
    tokio::select! {
        completed = complete(api.as_ref(), &upload, &written) => completed?,
        () = cancel.cancelled() => return Err(TransferError::Cancelled),
    }
    let written = u32::try_from(written.len()).expect("a volume has fewer blocks");
    Ok(Uploaded { written, digests })
}

/// What tells that a file was written to.
#[derive(PartialEq, Eq)]
struct Stamp {
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let size = match metadata.size() {
            // A device has its size elsewhere.
            0 => rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?,
            size => size,
        };
        Ok(Self { size, changed: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

struct Sender<'a, A> {
    api: &'a Arc<A>,
    upload: &'a Upload,
    journal: Journal,
    pace: Arc<Pace>,
    begun: Instant,
}

impl<A: SnapshotApi> Sender<'_, A> {
    /// Sends what differs, and returns everything that is written in the snapshot.
    async fn send(&mut self, scan: &Arc<Scan>, progress: &impl Fn(u64, u64)) -> TransferResult<BTreeMap<u32, Digest>> {
        let mut changed = read(scan);
        let mut written = self.journal.done.clone();
        let mut puts = JoinSet::new();
        let mut reading = true;
        let mut told = usize::MAX;
        while reading || !puts.is_empty() {
            tokio::select! {
                // The oldest first, so that what is done is noted soon.
                Some(put) = puts.join_next(), if !puts.is_empty() => {
                    let (index, digest) = joined(put)?;
                    self.journal.note(index, digest).map_err(TransferError::file("write", &self.upload.journal))?;
                    written.insert(index, digest);
                }
                next = changed.recv(), if reading && puts.len() < self.pace.limit() => match next {
                    None => reading = false,
                    Some(Err(error)) => return Err(TransferError::file("read", &self.upload.disk)(error)),
                    Some(Ok(Changed { index, digest, .. })) if written.get(&index) == Some(&digest) => {}
                    Some(Ok(changed)) => drop(puts.spawn(self.put(changed))),
                },
            }
            if scan.done() != told {
                told = scan.done();
                progress((told * BLOCK_SIZE) as u64, (scan.total() * BLOCK_SIZE) as u64);
            }
        }
        Ok(written)
    }

    /// Writes one block, as often as it takes.
    fn put(&self, changed: Changed) -> impl Future<Output = TransferResult<(u32, Digest)>> + Send + use<A> {
        let (api, pace, snapshot) = (Arc::clone(self.api), Arc::clone(&self.pace), self.upload.snapshot.clone());
        let tries = self.upload.patience.tries(self.upload.age + self.begun.elapsed());
        async move {
            let Changed { index, digest, data } = changed;
            put(api.as_ref(), &pace, &snapshot, (index, digest, data), tries).await?;
            Ok((index, digest))
        }
    }
}

async fn put<A: SnapshotApi>(
    api: &A,
    pace: &Pace,
    snapshot: &str,
    (index, digest, data): (u32, Digest, Bytes),
    mut tries: Tries,
) -> TransferResult<()> {
    loop {
        let permit = pace.go().await;
        let begun = Instant::now();
        let answer = api.put_block(snapshot, index, data.clone(), digest).await;
        drop(permit);
        let error = match answer {
            Ok(echo) if echo.is_none_or(|echo| echo == digest) => {
                pace.went_well(begun.elapsed());
                return Ok(());
            }
            Ok(_) => {
                ApiError { class: ErrorClass::BadChecksum, message: "the service has another checksum of it".into() }
            }
            Err(error) => error,
        };
        if error.class == ErrorClass::Throttled {
            pace.was_throttled();
        }
        match tries.next(&error) {
            Some(wait) => {
                tracing::debug!(snapshot, index, error = %error, ?wait, "a block is written again");
                api.pause(wait).await;
            }
            None => {
                let (tries, elapsed) = (tries.count, tries.elapsed());
                let snapshot = snapshot.to_owned();
                return Err(TransferError::Block { action: "write", index, snapshot, tries, elapsed, source: error });
            }
        }
    }
}

/// Reads the disk on as many threads as there are processors.
fn read(scan: &Arc<Scan>) -> mpsc::Receiver<io::Result<Changed>> {
    let (sink, changed) = mpsc::channel(QUEUE);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..threads {
        let (scan, sink) = (Arc::clone(scan), sink.clone());
        // It ends when nobody listens any more.
        drop(tokio::task::spawn_blocking(move || scan.work(&sink)));
    }
    changed
}

pub(crate) fn joined<T>(task: Result<TransferResult<T>, tokio::task::JoinError>) -> TransferResult<T> {
    match task {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(TransferError::Cancelled),
    }
}

/// Ends the writing and waits until the service has checked it.
async fn complete<A: SnapshotApi>(api: &A, upload: &Upload, written: &BTreeMap<u32, Digest>) -> TransferResult<()> {
    let count = u32::try_from(written.len()).expect("a volume has fewer blocks");
    let checksum = (count > 0).then(|| linear_checksum(written.values()));
    let told = |action, source| TransferError::Snapshot { action, snapshot: upload.snapshot.clone(), source };
    // A resumed upload may find that it was complete already.
    if state(api, upload).await.map_err(|error| told("look at", error))? != SnapshotState::Completed {
        let mut tries = upload.patience.tries(upload.age);
        while let Err(error) = api.complete(&upload.snapshot, count, checksum.clone()).await {
            let Some(wait) = tries.next(&error) else { return Err(told("complete", error)) };
            api.pause(wait).await;
        }
    }
    let (begun, mut pace) = (Instant::now(), upload.patience.pace);
    loop {
        match state(api, upload).await.map_err(|error| told("look at", error))? {
            SnapshotState::Completed => return Ok(()),
            SnapshotState::Failed { reason } => {
                return Err(TransferError::Failed { snapshot: upload.snapshot.clone(), reason });
            }
            SnapshotState::Absent if begun.elapsed() > upload.patience.new => {
                let reason = "it is not there any more".to_owned();
                return Err(TransferError::Failed { snapshot: upload.snapshot.clone(), reason });
            }
            SnapshotState::Pending | SnapshotState::Absent => {}
        }
        if begun.elapsed() > upload.patience.completion {
            return Err(TransferError::TooSlow { snapshot: upload.snapshot.clone(), elapsed: begun.elapsed() });
        }
        api.pause(pace).await;
        pace = (pace + pace / 2).min(upload.patience.pace * 8);
    }
}

/// Looks at the snapshot; failures that pass do not end a wait.
async fn state<A: SnapshotApi>(api: &A, upload: &Upload) -> Result<SnapshotState, ApiError> {
    let mut tries = upload.patience.tries(upload.age);
    loop {
        match api.state(&upload.snapshot).await {
            Err(error) if error.class == ErrorClass::Absent => return Ok(SnapshotState::Absent),
            Err(error) => match tries.next(&error) {
                Some(wait) => api.pause(wait).await,
                None => return Err(error),
            },
            state => return state,
        }
    }
}
