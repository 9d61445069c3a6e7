//! What can go wrong with the journal.

use std::path::{Path, PathBuf};

use crate::id::RunId;

/// The journal cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The database cannot be opened.
    #[error("cannot open the journal `{path}`")]
    Open {
        /// Where it is.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The database was made by another version.
    #[error("the journal `{path}` has version {found}, and this program knows versions up to {known}")]
    Version {
        /// Where it is.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// The database cannot be read.
    #[error("cannot read the journal `{path}`")]
    Read {
        /// Where it is.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The database was opened for reading alone.
    #[error("the journal `{path}` was opened for reading alone")]
    ReadOnly {
        /// Where it is.
        path: PathBuf,
    },
    /// A write failed, so nothing more is written: what the disk holds is not known any more.
    #[error("the journal cannot be written: {reason}")]
    Poisoned {
        /// What the first failed write said.
        reason: String,
    },
    /// Another process opened the run after this one, so this one may not write of it any more.
    #[error("another process has gone on with the run `{run}`")]
    TakenOver {
        /// The run.
        run: RunId,
    },
}

impl JournalError {
    pub(crate) fn poisoned(reason: impl Into<String>) -> JournalError {
        JournalError::Poisoned { reason: reason.into() }
    }

    pub(super) fn reading(path: &Path) -> impl Fn(rusqlite::Error) -> JournalError + '_ {
        move |source| JournalError::Read { path: path.to_owned(), source }
    }
}
