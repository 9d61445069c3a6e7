//! EBS snapshots as blocks: downloaded to a file, and uploaded from one, whole or as what differs from a parent.
//!
//! Start with [`upload`] and [`download`]. The calls they make are those of [`SnapshotApi`], which somebody else implements over
//! a client of the EBS direct API: this library names none. It is the one layer that repeats them.
//!
//! - A block is 512 KiB. [`Digest`] is its SHA-256, and [`DigestIndex`] holds those of a whole snapshot: it is what a later
//!   upload is compared with, so that only what was changed is sent.
//! - Nothing is held in memory but the blocks in flight and 32 bytes for each block of the disk.
//! - Both directions keep a [`journal`](mod@journal) of the blocks that are done, so that a transfer that was killed goes on.
//! - An upload is done when the service says `completed`, and not before: it checks count and digests after it has said yes.
//!
//! Protocol: <https://docs.aws.amazon.com/ebs/latest/userguide/ebs-accessing-snapshot.html>.

mod api;
mod block;
mod download;
mod error;
mod index;
pub mod journal;
mod pace;
mod patience;
mod scan;
mod upload;

pub use api::{ApiError, Block, BlockPage, ErrorClass, SnapshotApi, SnapshotState, StartSnapshot};
pub use block::{BLOCK_SIZE, Digest, linear_checksum};
pub use download::{Download, Downloaded, download};
pub use error::{TransferError, TransferResult};
pub use index::{DigestIndex, IndexError};
pub use patience::Patience;
pub use upload::{Upload, Uploaded, upload};
