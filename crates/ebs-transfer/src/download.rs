//! Downloading a snapshot into a file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiError, BlockPage, ErrorClass, SnapshotApi};
use crate::block::{BLOCK_SIZE, Digest, is_zero};
use crate::error::{TransferError, TransferResult};
use crate::index::DigestIndex;
use crate::journal::{Header, Journal};
use crate::pace::Pace;
use crate::patience::{Patience, Tries};
use crate::upload::joined;

const GIB: u64 = 1 << 30;

/// What is downloaded, and where to.
#[derive(Clone, Debug)]
pub struct Download {
    /// The snapshot.
    pub snapshot: String,
    /// The file. What is in it is kept only as far as the journal says that it was fetched.
    pub file: PathBuf,
    /// Where to note what is done.
    pub journal: PathBuf,
    /// How patient to be.
    pub patience: Patience,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Downloaded {
    /// Bytes of the volume, and of the file.
    pub size: u64,
    /// The digests of all blocks.
    pub digests: DigestIndex,
}

/// Fetches every block of a snapshot and checks its digest. Blocks that nobody wrote, and blocks of zeros, are holes.
///
/// Called again after a failure, also by another process, it goes on where it was. The file is synced at the end. `progress`
/// hears of the bytes that are there and of all.
///
/// # Errors
///
/// If the service refuses, or fails for longer than patience lasts; if the file cannot be written; if a block is not what its
/// digest says, again and again.
pub async fn download<A: SnapshotApi>(
    api: &Arc<A>,
    download: Download,
    progress: impl Fn(u64, u64),
    cancel: &CancellationToken,
) -> TransferResult<Downloaded> {
    tokio::select! {
        done = fetch_all(api, &download, progress) => done,
        () = cancel.cancelled() => Err(TransferError::Cancelled),
    }
}

async fn fetch_all<A: SnapshotApi>(
    api: &Arc<A>,
    download: &Download,
    progress: impl Fn(u64, u64),
) -> TransferResult<Downloaded> {
    let listed = list(api.as_ref(), download).await?;
    let Target { file, mut journal } = Target::open(download, listed.size)?;
    let mut digests = DigestIndex::of_size(listed.size);
    let told = TransferError::file("write", &download.file);

    let (total, mut done) = (listed.blocks.len(), 0);
    let pace = Arc::new(Pace::new());
    let mut waiting = listed.blocks.into_iter();
    let mut fetches = JoinSet::new();
    loop {
        while fetches.len() < pace.limit() {
            let Some((index, token)) = waiting.next() else { break };
            match journal.done.get(&index) {
                Some(digest) => {
                    digests.set(index, *digest);
                    done += 1;
                }
                None => {
                    let tries = download.patience.tries(std::time::Duration::ZERO);
                    let (api, pace, file) = (Arc::clone(api), Arc::clone(&pace), Arc::clone(&file));
                    let (snapshot, path) = (download.snapshot.clone(), download.file.clone());
                    fetches.spawn(async move {
                        let (digest, data) = fetch(api.as_ref(), &pace, &snapshot, (index, token), tries).await?;
                        let write = move || match is_zero(&data) {
                            true => Ok(()),
                            false => file.write_all_at(&data, u64::from(index) * BLOCK_SIZE as u64),
                        };
                        let written = tokio::task::spawn_blocking(write).await.expect("it does not panic");
                        written.map_err(TransferError::file("write", &path))?;
                        Ok((index, digest))
                    });
                }
            }
        }
        let Some(fetched) = fetches.join_next().await else { break };
        let (index, digest) = joined(fetched)?;
        journal.note(index, digest).map_err(TransferError::file("write", &download.journal))?;
        digests.set(index, digest);
        done += 1;
        progress((done * BLOCK_SIZE) as u64, (total * BLOCK_SIZE) as u64);
    }
    let syncing = Arc::clone(&file);
    tokio::task::spawn_blocking(move || syncing.sync_all()).await.expect("it does not panic").map_err(told)?;
    Ok(Downloaded { size: listed.size, digests })
}

struct Target {
    file: Arc<File>,
    journal: Journal,
}

impl Target {
    /// Opens file and journal. Without blocks that the journal knows, the file begins empty: what is in it is not ours.
    fn open(download: &Download, size: u64) -> TransferResult<Self> {
        let header = Header { snapshot: download.snapshot.clone(), parent: None, size, changed: None };
        let journal = Journal::open(&download.journal, &header);
        let mut journal = journal.map_err(TransferError::file("open", &download.journal))?;
        let told = || TransferError::file("open", &download.file);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&download.file).map_err(told())?;
        if file.metadata().map_err(told())?.len() != size {
            file.set_len(0).and_then(|()| file.set_len(size)).map_err(told())?;
            journal.done.clear();
        } else if journal.done.is_empty() {
            file.set_len(0).and_then(|()| file.set_len(size)).map_err(told())?;
        }
        Ok(Self { file: Arc::new(file), journal })
    }
}

/// The blocks of a snapshot.
struct Listed {
    blocks: Vec<(u32, String)>,
    size: u64,
}

async fn list<A: SnapshotApi>(api: &A, download: &Download) -> TransferResult<Listed> {
    let told =
        |source| TransferError::Snapshot { action: "list the blocks of", snapshot: download.snapshot.clone(), source };
    let (mut blocks, mut gib, mut page) = (Vec::new(), None, None);
    loop {
        let mut tries = download.patience.tries(std::time::Duration::ZERO);
        let BlockPage { blocks: more, next, volume_size_gib, block_size } = loop {
            match api.list_blocks(&download.snapshot, page.clone(), 0).await {
                Ok(page) => break page,
                Err(error) => match tries.next(&error) {
                    Some(wait) => api.pause(wait).await,
                    None => return Err(told(error)),
                },
            }
        };
        if block_size.is_some_and(|size| size != BLOCK_SIZE) {
            return Err(TransferError::Unfit(format!(
                "the snapshot `{}` has blocks of another size",
                download.snapshot
            )));
        }
        gib = gib.or(volume_size_gib);
        blocks.extend(more);
        page = next;
        if page.is_none() {
            break;
        }
    }
    let size = u64::from(gib.filter(|gib| (1..=65_536).contains(gib)).ok_or_else(|| {
        TransferError::Unfit(format!("nobody says how large the volume of the snapshot `{}` is", download.snapshot))
    })?) * GIB;
    match blocks.iter().any(|(index, _)| u64::from(*index) >= size / BLOCK_SIZE as u64) {
        true => Err(TransferError::Unfit(format!("the snapshot `{}` has blocks behind its end", download.snapshot))),
        false => Ok(Listed { blocks, size }),
    }
}

/// Fetches one block, as often as it takes.
async fn fetch<A: SnapshotApi>(
    api: &A,
    pace: &Pace,
    snapshot: &str,
    (index, mut token): (u32, String),
    mut tries: Tries,
) -> TransferResult<(Digest, Bytes)> {
    loop {
        let permit = pace.go().await;
        let begun = Instant::now();
        let answer = api.get_block(snapshot, index, &token).await;
        let took = begun.elapsed();
        drop(permit);
        let error = match answer {
            Ok(block) => {
                let data = block.data.clone();
                let digest = tokio::task::spawn_blocking(move || Digest::of(&data)).await.expect("it does not panic");
                if block.data.len() == BLOCK_SIZE && block.digest.is_none_or(|said| said == digest) {
                    pace.went_well(took);
                    return Ok((digest, block.data));
                }
                ApiError { class: ErrorClass::BadChecksum, message: "its bytes are not those of its checksum".into() }
            }
            Err(error) if error.class == ErrorClass::TokenExpired => match fresh_token(api, snapshot, index).await {
                Ok(fresh) => {
                    token = fresh;
                    // One new token is enough; if that is refused too, it is not its age.
                    ApiError { class: ErrorClass::BadChecksum, ..error }
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        if error.class == ErrorClass::Throttled {
            pace.was_throttled();
        }
        match tries.next(&error) {
            Some(wait) => api.pause(wait).await,
            None => {
                let (tries, elapsed) = (tries.count, tries.elapsed());
                let snapshot = snapshot.to_owned();
                return Err(TransferError::Block { action: "fetch", index, snapshot, tries, elapsed, source: error });
            }
        }
    }
}

/// Lists the block anew. The first pages may be empty.
async fn fresh_token<A: SnapshotApi>(api: &A, snapshot: &str, index: u32) -> Result<String, ApiError> {
    let mut next = None;
    loop {
        let page = api.list_blocks(snapshot, next, index).await?;
        if let Some((_, token)) = page.blocks.into_iter().find(|(block, _)| *block == index) {
            return Ok(token);
        }
        let gone =
            || ApiError { class: ErrorClass::Fatal, message: format!("block {index} is not in the list any more") };
        next = Some(page.next.ok_or_else(gone)?);
    }
}
