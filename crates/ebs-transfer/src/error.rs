use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::{ApiError, ErrorClass};
use crate::index::IndexError;

/// The result of a transfer.
pub type TransferResult<T> = Result<T, TransferError>;

/// A transfer that failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A block could not be written or fetched.
    #[error("cannot {action} block {index} of snapshot `{snapshot}` after {tries} tries in {elapsed:.1?}")]
    Block {
        /// What was tried: `write`, `fetch`.
        action: &'static str,
        /// Which block.
        index: u32,
        /// Of which snapshot.
        snapshot: String,
        /// How often.
        tries: u32,
        /// For how long.
        elapsed: Duration,
        /// How the last try failed.
        source: ApiError,
    },
    /// Another call failed.
    #[error("cannot {action} snapshot `{snapshot}`")]
    Snapshot {
        /// What was tried.
        action: &'static str,
        /// Which snapshot.
        snapshot: String,
        /// How it failed.
        source: ApiError,
    },
    /// The service did not take what was written.
    #[error("the snapshot `{snapshot}` failed: {reason}")]
    Failed {
        /// Which snapshot.
        snapshot: String,
        /// Why, as the service says it.
        reason: String,
    },
    /// The service did not say `completed` in time.
    #[error("the snapshot `{snapshot}` was not complete after {elapsed:.0?}")]
    TooSlow {
        /// Which snapshot.
        snapshot: String,
        /// How long it was waited for.
        elapsed: Duration,
    },
    /// The service echoed another checksum, or sent other bytes than it said.
    #[error("block {index} of snapshot `{snapshot}` was damaged on its way")]
    Damaged {
        /// Which block.
        index: u32,
        /// Of which snapshot.
        snapshot: String,
    },
    /// A file of this machine.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// The disk was written to while it was read.
    #[error("`{}` was changed while it was uploaded", path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// A disk that is no multiple of anything, or a snapshot that is not as the service makes them.
    #[error("{0}")]
    Unfit(String),
    /// The digests of the parent cannot be used.
    #[error("the digests of the parent cannot be used")]
    Index(#[from] IndexError),
    /// Somebody does not want it any more.
    #[error("cancelled")]
    Cancelled,
}

impl TransferError {
    /// Tells whether another try may work: what has been transferred is not transferred again.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Block { source, .. } | Self::Snapshot { source, .. } => source.class != ErrorClass::Fatal,
            Self::TooSlow { .. } | Self::Damaged { .. } | Self::File { .. } => true,
            Self::Failed { .. } | Self::Changed { .. } | Self::Unfit(_) | Self::Index(_) | Self::Cancelled => false,
        }
    }

    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}
