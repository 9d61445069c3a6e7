//! The bytes of base snapshots, fetched once for all bakes of this machine.
//!
//! ```text
//! FOLDER/REGION/snap-…/{disk.raw, digests, fetching.lock}
//! ```
//!
//! Of snapshots that were uploaded from here only the digests are there. A snapshot never changes, so what was fetched and checked is good for ever. While it is fetched, the file is `disk.part`, and
//! `journal` says which blocks are in it; whoever comes later goes on with these. The folder can be removed at any time that no
//! bake runs.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bake_core::SnapshotId;
use bake_engine::{Class, StepContext, StepError, StepResult};
use ebs_transfer::{DigestIndex, Download, Patience, TransferError, Upload, Uploaded, download, upload};

use crate::aws::blocks::Blocks;
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::disks::{blocking, local, make_private};
use crate::aws::snapshots;

/// How often to look whether another bake has fetched it.
const LOOK: Duration = Duration::from_millis(200);

/// The file of a snapshot's digests.
const DIGESTS: &str = "digests";

/// The cache's folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache(PathBuf);

/// A snapshot that is there.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    /// Its bytes; nobody writes to them.
    pub(crate) disk: PathBuf,
    /// The digests of its blocks.
    digests: PathBuf,
}

impl Cache {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Fetches a snapshot, unless that was done before. Of several bakes that want the same one fetches it, and the others wait.
    pub(crate) async fn fetch(&self, cx: &StepContext, place: &Place, snapshot: &SnapshotId) -> StepResult<Cached> {
        let folder = self.folder(place, snapshot.as_str());
        let cached = Cached { disk: folder.join("disk.raw"), digests: folder.join(DIGESTS) };
        if cached.disk.exists() {
            return Ok(cached);
        }
        make_private(&folder).map_err(|error| local(error, &folder))?;
        let _lock = lock(cx, &folder.join("fetching.lock")).await?;
        if cached.disk.exists() {
            return Ok(cached);
        }
        let part = folder.join("disk.part");
        let asked = Download {
            snapshot: snapshot.to_string(),
            file: part.clone(),
            journal: folder.join("journal"),
            patience: patience(cx),
        };
        cx.log(&format!("fetching the blocks of `{snapshot}`"));
        let api = Arc::new(Blocks::new(place));
        let progress = |done, total| cx.progress(done, Some(total), "bytes");
        let fetched = download(&api, asked, progress, &cx.cancel().stop()).await.map_err(failed)?;
        let (to, digests) = (cached.clone(), fetched.digests);
        blocking(move || finish(&folder, &part, &to, &digests)).await?;
        Ok(cached)
    }
}

/// Lets a snapshot appear that was fetched whole: the digests first, so that the disk never is without them.
fn finish(folder: &Path, part: &Path, to: &Cached, digests: &DigestIndex) -> StepResult<()> {
    digests.write(&to.digests).map_err(|error| StepError::wrap(Class::Transient, error))?;
    let appear = || {
        let mut permissions = fs::metadata(part)?.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(part, permissions)?;
        fs::rename(part, &to.disk)?;
        File::open(folder)?.sync_all()?;
        fs::remove_file(folder.join("journal"))
    };
    appear().map_err(|error| local(error, folder))
}

/// Waits for a lock, which goes with the process.
async fn lock(cx: &StepContext, path: &Path) -> StepResult<File> {
    let told = |error| local(error, path);
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(told)?;
    let locked = cx.until(LOOK, || async {
        match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(told(error)),
        }
    });
    locked.await?;
    Ok(file)
}

fn read_digests(path: &Path) -> StepResult<DigestIndex> {
    DigestIndex::read(path).map_err(|error| {
        let folder = path.parent().unwrap_or(path).display().to_string();
        StepError::wrap(Class::Permanent, error).hint(format!("remove `{folder}`: it is fetched again"))
    })
}

impl Cache {
    fn folder(&self, place: &Place, snapshot: &str) -> PathBuf {
        self.0.join(place.region().as_str()).join(snapshot)
    }

    /// Returns the digests of a snapshot: those of an upload from here, or of what is fetched now.
    pub(crate) async fn digests(
        &self,
        cx: &StepContext,
        place: &Place,
        snapshot: &SnapshotId,
    ) -> StepResult<DigestIndex> {
        let known = self.folder(place, snapshot.as_str()).join(DIGESTS);
        if !known.exists() {
            self.fetch(cx, place, snapshot).await?;
        }
        blocking(move || read_digests(&known)).await
    }

    /// Keeps the digests of a snapshot that was uploaded from here, for a later upload on top of it.
    pub(crate) async fn keep_digests(&self, place: &Place, snapshot: &str, digests: DigestIndex) -> StepResult<()> {
        let folder = self.folder(place, snapshot);
        blocking(move || {
            make_private(&folder).map_err(|error| local(error, &folder))?;
            digests.write(&folder.join(DIGESTS)).map_err(|error| StepError::wrap(Class::Transient, error))
        })
        .await
    }
}

/// What is uploaded into a snapshot that was begun.
pub(crate) struct Sending<'a> {
    /// The snapshot.
    pub(crate) snapshot: &'a str,
    /// The disk.
    pub(crate) disk: PathBuf,
    /// The snapshot that it was begun on top of, with its digests.
    pub(crate) parent: Option<(String, DigestIndex)>,
    /// Where to note what is done.
    pub(crate) journal: PathBuf,
}

impl Ec2 {
    /// Uploads a disk into a snapshot that was begun.
    pub(crate) async fn upload(
        &self,
        cx: &StepContext,
        place: &Place,
        sending: Sending<'_>,
        progress: impl Fn(u64, u64),
    ) -> StepResult<Uploaded> {
        let Sending { snapshot, disk, parent, journal } = sending;
        // At first the service may not know it everywhere; how long that is so, it tells itself.
        let begun = snapshots::read(place, snapshot).await?.and_then(|snapshot| snapshot.start_time);
        let begun = begun.and_then(|begun| jiff::Timestamp::from_second(begun.secs()).ok());
        let age = begun.map(|begun| jiff::Timestamp::now().duration_since(begun).unsigned_abs());
        let asked = Upload {
            snapshot: snapshot.to_owned(),
            age: age.unwrap_or_default(),
            disk,
            parent,
            candidates: None,
            journal,
            patience: Patience { pace: self.pace(), ..patience(cx) },
        };
        let api = Arc::new(Blocks::new(place));
        upload(&api, asked, progress, &cx.cancel().stop()).await.map_err(failed)
    }
}

/// How patient to be: no longer than the step may take.
pub(crate) fn patience(cx: &StepContext) -> Patience {
    let usual = Patience::default();
    match cx.time_left() {
        Some(left) => Patience { budget: usual.budget.min(left), ..usual },
        None => usual,
    }
}

pub(crate) fn failed(error: TransferError) -> StepError {
    let class = match &error {
        TransferError::Cancelled => return StepError::cancelled(),
        error if error.may_pass() => Class::Transient,
        _ => Class::Permanent,
    };
    let refused =
        matches!(&error, TransferError::Snapshot { source, .. } if source.message.contains("ResourceNotFound"));
    let told = StepError::wrap(class, error);
    match refused {
        true => told.hint(
            "the EBS direct API reads snapshots of your own account, and those shared with it, but no public ones: copy the \
             base image into your account first, with `aws ec2 copy-image`",
        ),
        false => told,
    }
}
