//! Snapshots on their own, without a bake: a disk file uploaded into one, and one downloaded to a file.
//!
//! ```text
//! FOLDER/upload-…/{upload.json, journal}
//! ```
//!
//! An upload that did not end is gone on with by whoever asks for the same again: the same file, unchanged, on top of the same
//! parent in the same region.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bake_core::{Account, Region, SnapshotId, Tags};
use bake_engine::{Class, StepContext, StepError, StepResult};
use ebs_transfer::{Download, StartSnapshot, download};
use serde::{Deserialize, Serialize};

use crate::aws::blocks::Blocks;
use crate::aws::cache::{Sending, failed, patience};
use crate::aws::calls::GIB;
use crate::aws::connection::Place;
use crate::aws::context::{Ec2, Folders};
use crate::aws::disks::{blocking, local, make_private};
use crate::aws::snapshots::{self, UNTOUCHED, gib};
use crate::settings::Ec2Settings;

/// How often beginning a snapshot is tried.
const TRIES: u32 = 5;

/// Uploads and downloads of snapshots.
pub struct SnapshotTransfers {
    ec2: Ec2,
    uploads: PathBuf,
}

/// What to upload.
#[derive(Clone, Debug)]
pub struct UploadSnapshot {
    /// The disk. Nobody may write to it meanwhile.
    pub disk: PathBuf,
    /// Where to; the usual region if nobody says.
    pub region: Option<Region>,
    /// A snapshot that it is like: only what differs is sent.
    pub parent: Option<SnapshotId>,
    /// For people.
    pub description: String,
    /// Tags of the snapshot.
    pub tags: Tags,
}

/// A snapshot that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UploadedSnapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Where it is.
    pub region: Region,
    /// Whose it is.
    pub account: Account,
    /// Size of its volume in bytes.
    pub size: u64,
    /// Blocks of 512 KiB that were sent.
    pub blocks_sent: u32,
}

/// What tells an upload from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    disk: PathBuf,
    size: u64,
    changed: (i64, i64),
    account: Account,
    region: Region,
    parent: Option<SnapshotId>,
}

/// An upload that is going on in this process.
struct Claim {
    folder: PathBuf,
    token: String,
    _lock: File,
}

impl SnapshotTransfers {
    /// Prepares transfers. Nothing is asked of anybody before the first.
    pub fn new(settings: Ec2Settings, folders: &Folders) -> Self {
        Self { ec2: Ec2::new(settings, folders, None), uploads: folders.uploads.clone() }
    }

    /// Uploads a disk, and waits until the snapshot is complete. `progress` hears of the bytes looked at and of all.
    ///
    /// # Errors
    ///
    /// Fails when the disk cannot be read or the service refuses. Unless that is for good, the same call goes on where it was.
    pub async fn upload(
        &self,
        cx: &StepContext,
        upload: &UploadSnapshot,
        progress: impl Fn(u64, u64),
    ) -> StepResult<UploadedSnapshot> {
        let place = self.ec2.home(upload.region.as_ref()).await?;
        let subject = subject(upload, &place).map_err(|error| unreadable(error, &upload.disk))?;
        let size = subject.size;
        let parent = match &upload.parent {
            Some(parent) => {
                check_there(&place, parent).await?;
                Some((parent.to_string(), self.ec2.cache().digests(cx, &place, parent).await?))
            }
            None => None,
        };
        let uploads = self.uploads.clone();
        let claim = blocking(move || claim(&uploads, &subject)).await?;
        let outcome = async {
            let id = begin(cx, &place, upload, gib(size)?, &claim.token).await?;
            let journal = claim.folder.join("journal");
            let sending = Sending { snapshot: &id, disk: upload.disk.clone(), parent, journal };
            let uploaded = self.ec2.upload(cx, &place, sending, progress).await?;
            self.ec2.cache().keep_digests(&place, &id, uploaded.digests).await?;
            Ok((id, uploaded.written))
        };
        let outcome: StepResult<_> = outcome.await;
        // Whoever asks again after a failure for good begins anew.
        if outcome.as_ref().err().is_none_or(|error| error.class() == Class::Permanent) {
            fs::remove_dir_all(&claim.folder).map_err(|error| local(error, &claim.folder))?;
        }
        let (id, blocks_sent) = outcome?;
        Ok(UploadedSnapshot {
            id: SnapshotId::new(id),
            region: place.region().clone(),
            account: place.account().clone(),
            size: u64::from(gib(size)?) * GIB,
            blocks_sent,
        })
    }

    /// Downloads a snapshot to a file, which appears when it is complete, and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Fails when the file is there already or cannot be written, and when the service refuses. The same call goes on where it was.
    pub async fn download(
        &self,
        cx: &StepContext,
        snapshot: &SnapshotId,
        region: Option<&Region>,
        to: &Path,
        progress: impl Fn(u64, u64),
    ) -> StepResult<u64> {
        if to.exists() {
            return Err(StepError::permanent(format!("`{}` is there already", to.display())));
        }
        let place = self.ec2.home(region).await?;
        check_there(&place, snapshot).await?;
        let beside = |ending: &str| {
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            to.with_file_name(format!(".{name}.{snapshot}.{ending}"))
        };
        let (part, journal) = (beside("part"), beside("journal"));
        let asked = Download {
            snapshot: snapshot.to_string(),
            file: part.clone(),
            journal: journal.clone(),
            patience: patience(cx),
        };
        let api = Arc::new(Blocks::new(&place));
        let downloaded = download(&api, asked, progress, &cx.cancel().stop()).await.map_err(failed)?;
        fs::rename(&part, to).map_err(|error| local(error, to))?;
        fs::remove_file(&journal).map_err(|error| local(error, &journal))?;
        Ok(downloaded.size)
    }
}

/// Refuses a snapshot that is not there: an id that somebody typed is not that of a snapshot that is new.
async fn check_there(place: &Place, snapshot: &SnapshotId) -> StepResult<()> {
    let (region, account) = (place.region(), place.account());
    match snapshots::read(place, snapshot.as_str()).await? {
        Some(_) => Ok(()),
        None => Err(StepError::permanent(format!(
            "there is no snapshot `{snapshot}` in region `{region}` that account {account} may read"
        ))),
    }
}

fn unreadable(error: io::Error, disk: &Path) -> StepError {
    StepError::wrap(Class::Permanent, error).context(format!("cannot read the disk `{}`", disk.display()))
}

fn subject(upload: &UploadSnapshot, place: &Place) -> io::Result<Subject> {
    let metadata = fs::metadata(&upload.disk)?;
    Ok(Subject {
        disk: fs::canonicalize(&upload.disk)?,
        size: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
        account: place.account().clone(),
        region: place.region().clone(),
        parent: upload.parent.clone(),
    })
}

/// Takes up what another process left of the same upload, or begins to note a new one.
fn claim(uploads: &Path, subject: &Subject) -> StepResult<Claim> {
    let told = |error| local(error, uploads);
    make_private(uploads).map_err(told)?;
    for entry in fs::read_dir(uploads).map_err(told)? {
        let folder = entry.map_err(told)?.path();
        let Ok(bytes) = fs::read(folder.join(RECORD)) else { continue };
        if serde_json::from_slice::<Subject>(&bytes).is_ok_and(|there| there == *subject) {
            return hold(folder);
        }
    }
    let folder = tempfile::Builder::new().prefix("upload-").rand_bytes(24).tempdir_in(uploads).map_err(told)?.keep();
    let record = serde_json::to_vec_pretty(subject).map_err(|error| StepError::bug(error.to_string()))?;
    fs::write(folder.join(RECORD), record).map_err(told)?;
    hold(folder)
}

/// What an upload is told by.
const RECORD: &str = "upload.json";

fn hold(folder: PathBuf) -> StepResult<Claim> {
    let lock = File::open(folder.join(RECORD)).map_err(|error| local(error, &folder))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StepError::permanent("another process uploads the same disk right now"));
        }
        Err(TryLockError::Error(error)) => return Err(local(error, &folder)),
    }
    let token = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Claim { folder, token, _lock: lock })
}

/// Begins the snapshot. The same token gives the same one.
async fn begin(
    cx: &StepContext,
    place: &Place,
    upload: &UploadSnapshot,
    volume_size_gib: u32,
    token: &str,
) -> StepResult<String> {
    let start = StartSnapshot {
        volume_size_gib,
        parent: upload.parent.as_ref().map(ToString::to_string),
        token: token.to_owned(),
        description: snapshots::description(&upload.description),
        tags: upload.tags.clone(),
        timeout_minutes: UNTOUCHED,
    };
    let mut tries = 1;
    loop {
        match Blocks::new(place).begin(&start).await {
            Err(error) if tries < TRIES && error.class() != Class::Permanent => {
                cx.pause(std::time::Duration::from_secs(1 << tries)).await?;
            }
            outcome => return outcome,
        }
        tries += 1;
    }
}
