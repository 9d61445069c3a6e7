//! The calls of the EBS direct API that a transfer makes, for somebody to implement over a client.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::block::Digest;

/// A request to begin a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSnapshot {
    /// Size of the volume in GiB.
    pub volume_size_gib: u32,
    /// The snapshot whose blocks it begins with.
    pub parent: Option<String>,
    /// Makes a repeated request give the first answer.
    pub token: String,
    /// For people; at most 255 characters, and not empty.
    pub description: Option<String>,
    /// Tags from the start.
    pub tags: BTreeMap<String, String>,
    /// Minutes after which the service gives up what nobody writes to: 10 to 4,320.
    pub timeout_minutes: i32,
}

/// A page of the blocks of a snapshot, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockPage {
    /// Indexes of blocks, and what they are fetched with.
    pub blocks: Vec<(u32, String)>,
    /// What the next page is asked for with; a page may be empty and not the last.
    pub next: Option<String>,
    /// Size of the volume in GiB; not on every page.
    pub volume_size_gib: Option<u32>,
    /// Bytes of a block; not on every page.
    pub block_size: Option<usize>,
}

/// A block as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its bytes.
    pub data: Bytes,
    /// What the service says their digest is.
    pub digest: Option<Digest>,
}

/// How far a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// It is being made.
    Pending,
    /// It is done.
    Completed,
    /// It will never be.
    Failed {
        /// Why, as the service says it.
        reason: String,
    },
    /// It is not there, or not known there yet.
    Absent,
}

/// What kind of failure a call met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// We ask too often.
    Throttled,
    /// It may work the next time: the service stumbled, or the connection did.
    Passing,
    /// What was named is not there, or not known there yet.
    Absent,
    /// The bytes are not those that their checksum is of.
    BadChecksum,
    /// What a block is fetched with has run out.
    TokenExpired,
    /// Asking again cannot help.
    Fatal,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of failure it is.
    pub class: ErrorClass,
    /// What the service said, with its code and the id of the request.
    pub message: String,
}

/// The calls. An implementation makes each of them once: repeating is the business of this library alone.
pub trait SnapshotApi: Send + Sync + 'static {
    /// Writes a block. Returns what the service says the digest of its bytes is.
    fn put_block(
        &self,
        snapshot: &str,
        index: u32,
        data: Bytes,
        digest: Digest,
    ) -> impl Future<Output = Result<Option<Digest>, ApiError>> + Send;

    /// Ends the writing. `checksum` is that of [`linear_checksum`](crate::linear_checksum); `None` where nothing was written.
    fn complete(
        &self,
        snapshot: &str,
        written: u32,
        checksum: Option<String>,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Tells how far a snapshot is.
    fn state(&self, snapshot: &str) -> impl Future<Output = Result<SnapshotState, ApiError>> + Send;

    /// Lists blocks, beginning with an index, or where a page told to go on.
    fn list_blocks(
        &self,
        snapshot: &str,
        page: Option<String>,
        from: u32,
    ) -> impl Future<Output = Result<BlockPage, ApiError>> + Send;

    /// Fetches a block.
    fn get_block(
        &self,
        snapshot: &str,
        index: u32,
        token: &str,
    ) -> impl Future<Output = Result<Block, ApiError>> + Send;

    /// Waits; tests do it faster.
    fn pause(&self, time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }
}
