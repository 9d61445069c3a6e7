//! Disks of the direct way: a file of this machine that begins with the bytes of the base's snapshot.
//!
//! ```text
//! FOLDER/disk-…/{disk.json, disk.raw}
//! ```
//!
//! Who works on a disk holds a `flock` on the open file, exclusive, and so does every process that inherited it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bake_core::{BaseId, CreateVolume, SnapshotId, Volume, VolumeId};
use bake_engine::{Calls, Class, Found, Keep, Mutation, Op, Resend, RunId, StepContext, StepError, StepResult, Undone};
use bake_linux::copy::{CloneError, clone_file_with};
use serde::{Deserialize, Serialize};

use crate::aws::connection::Address;
use crate::aws::context::Ec2;

const DISK: &str = "disk.raw";
const RECORD: &str = "disk.json";

/// What the ids of disks begin with.
const PREFIX: &str = "disk-";

/// What is known of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskRecord {
    /// The AMI whose bytes it began with.
    pub(crate) base: BaseId,
    /// The snapshot that these bytes are in.
    pub(crate) snapshot: SnapshotId,
    /// Where that is.
    pub(crate) address: Address,
    /// The run that made it.
    pub(crate) run: RunId,
    /// When.
    pub(crate) created: jiff::Timestamp,
}

/// The folder of all disks.
#[derive(Clone, Debug)]
pub(crate) struct DiskFolder(PathBuf);

/// A disk that was made: enough to remove it from another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeDisk {
    /// The folder of all disks.
    pub folder: PathBuf,
    /// The disk's id.
    pub id: String,
}

impl DiskFolder {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    fn id(op: &Op) -> String {
        format!("{PREFIX}{}", op.id())
    }

    /// Tells whether a volume of this id is such a disk.
    pub(crate) fn is_id(id: &str) -> bool {
        id.starts_with(PREFIX)
    }

    fn place(&self, id: &str) -> PathBuf {
        self.0.join(id)
    }

    /// Returns the file of a disk.
    pub(crate) fn file(&self, id: &str) -> PathBuf {
        self.place(id).join(DISK)
    }

    /// Reads what is known of a disk; `None` if there is none of that id.
    pub(crate) fn read(&self, id: &str) -> io::Result<Option<DiskRecord>> {
        match fs::read(self.place(id).join(RECORD)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all disks.
    pub(crate) fn list(&self) -> io::Result<Vec<(String, DiskRecord)>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut disks = Vec::new();
        for entry in entries {
            let Ok(id) = entry?.file_name().into_string() else { continue };
            if let Some(record) = self.read(&id)? {
                disks.push((id, record));
            }
        }
        disks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(disks)
    }

    /// Writes down a disk before there is one, so that what is left of it can be told. The same operation, sent again, changes
    /// nothing.
    fn begin(&self, id: &str, record: &DiskRecord) -> io::Result<()> {
        let place = self.place(id);
        if self.read(id)?.is_some() {
            return Ok(());
        }
        make_private(&place)?;
        let writing = place.join(format!(".{RECORD}"));
        fs::write(&writing, serde_json::to_vec_pretty(record)?)?;
        File::open(&writing)?.sync_all()?;
        fs::rename(writing, place.join(RECORD))?;
        File::open(place)?.sync_all()
    }

    /// Removes a disk, unless somebody works on it.
    pub(crate) fn remove(&self, id: &str) -> io::Result<Undone> {
        let _lock = match File::open(self.file(id)) {
            Ok(file) => match file.try_lock() {
                Ok(()) => Some(file),
                Err(TryLockError::WouldBlock) => return Ok(Undone::InUse),
                Err(TryLockError::Error(error)) => return Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match fs::remove_dir_all(self.place(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Undone::Gone),
        }
    }
}

/// Makes disks.
pub(crate) struct Disks(pub(crate) Ec2);

impl Mutation for Disks {
    type Request = CreateVolume;
    type Made = MadeDisk;
    type Result = Volume;

    fn name(&self) -> &'static str {
        "ec2.disk"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["make disk"],
            settle: &["ListSnapshotBlocks", "GetSnapshotBlock", "copy disk"],
            undo: &["remove disk"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Scaffold
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, op: &Op, request: &CreateVolume) -> StepResult<MadeDisk> {
        let snapshot = request.snapshot.clone().ok_or_else(|| StepError::bug("the base image has no snapshot"))?;
        let place = self.0.place(&request.region).await?;
        let record = DiskRecord {
            base: request.base.clone(),
            snapshot,
            address: place.address(),
            run: op.run().clone(),
            created: op.time(),
        };
        let (folder, id) = (self.0.disks().clone(), DiskFolder::id(op));
        let made = MadeDisk { folder: folder.0.clone(), id: id.clone() };
        blocking(move || folder.begin(&id, &record).map_err(|error| local(error, &folder.place(&id)))).await?;
        Ok(made)
    }

    async fn find(&self, op: &Op, _: &CreateVolume) -> StepResult<Found<MadeDisk>> {
        let made = MadeDisk { folder: self.0.disks().0.clone(), id: DiskFolder::id(op) };
        let there = made.folder.join(&made.id).join(RECORD).exists();
        Ok(if there { Found::Made(made) } else { Found::Absent })
    }

    /// Fetches the base's bytes, if no earlier bake did, and copies them.
    async fn settle(&self, cx: &StepContext, request: &CreateVolume, made: &MadeDisk) -> StepResult<Volume> {
        let folder = DiskFolder::new(&made.folder);
        let (disks, id) = (folder.clone(), made.id.clone());
        let record = blocking(move || disks.read(&id).map_err(|error| local(error, &disks.place(&id)))).await?;
        let record = record.ok_or_else(|| StepError::permanent(format!("the disk `{}` is gone", made.id)))?;
        let place = self.0.place_of(&record.address).await?;
        let base = self.0.cache().fetch(cx, &place, &record.snapshot).await?;
        let size = copy(cx, &base.disk, &folder.file(&made.id)).await?;
        Ok(Volume { id: VolumeId::new(&made.id), region: request.region.clone(), size })
    }

    async fn undo(&self, op: &Op, made: &MadeDisk) -> StepResult<Undone> {
        let (folder, id, run) = (DiskFolder::new(&made.folder), made.id.clone(), op.run().clone());
        blocking(move || {
            let told = |error| local(error, &folder.place(&id));
            match folder.read(&id).map_err(told)? {
                Some(record) if record.run != run => Err(StepError::permanent(format!(
                    "the disk `{id}` was made by run `{}`, not by `{run}`",
                    record.run
                ))),
                _ => folder.remove(&id).map_err(told),
            }
        })
        .await
    }
}

/// Copies a disk, sharing its blocks where the filesystem can. A cancel ends it.
async fn copy(cx: &StepContext, from: &Path, to: &Path) -> StepResult<u64> {
    let wanted = Arc::new(AtomicBool::new(true));
    let _until_dropped = Dropped(Arc::clone(&wanted));
    let (from, to, reporter) = (from.to_owned(), to.to_owned(), cx.clone());
    let copying = blocking(move || {
        let source = File::open(&from).map_err(|error| local(error, &from))?;
        let target = File::create(&to).map_err(|error| local(error, &to))?;
        let go_on = |done, total| {
            reporter.progress(done, Some(total), "bytes");
            if wanted.load(Ordering::SeqCst) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match clone_file_with(&source, &target, go_on) {
            Ok(_) => Ok(target.metadata().map_err(|error| local(error, &to))?.len()),
            Err(CloneError::Stopped) => Err(StepError::cancelled()),
            Err(error) => {
                Err(StepError::wrap(Class::Transient, error).context(format!("cannot copy to `{}`", to.display())))
            }
        }
    });
    tokio::select! {
        copied = copying => copied,
        () = cx.cancelled() => Err(StepError::cancelled()),
    }
}

/// Tells, when it is dropped, that nobody waits any more.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Makes a folder, and those above it that are missing, for nobody else: the disk of an image is for root's eyes.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Runs work on a thread made for blocking.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StepResult<T> + Send + 'static,
) -> StepResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StepError::bug(format!("work on a disk did not end: {error}"))),
    }
}

/// An error of this machine's files, which may pass: a disk that is full is emptied by somebody.
pub(crate) fn local(error: io::Error, path: &Path) -> StepError {
    StepError::wrap(Class::Transient, error).context(format!("cannot work on `{}`", path.display()))
}
