use std::any::Any;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bake_core::{Disk, OpenVolume, Root, Volumes};
use bake_engine::{Cancel, StepContext, StepResult};
use bake_linux::{Command, RootPath, RunError};

use super::{cx, promise};
use crate::run::pause;

/// A sandbox that ends takes its processes along in well under a second.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Something that opens volumes, and a disk of its own that has a root with `true`, `false` and `cat`.
pub struct VolumeCase {
    /// What is tried.
    pub volumes: Arc<dyn Volumes>,
    /// The file that is the disk.
    pub disk: PathBuf,
    /// Names what of the case is mounted, attached or running.
    pub left: Box<dyn Fn() -> Vec<String>>,
    /// Whatever must live as long as these.
    pub keep: Box<dyn Any>,
}

impl VolumeCase {
    fn file(&self) -> File {
        let file = File::options().read(true).write(true).open(&self.disk);
        file.unwrap_or_else(|error| panic!("`{}`: {error}", self.disk.display()))
    }

    /// Opens the disk as a block device does: locked for as long as the file is open.
    async fn try_open(&self, cx: StepContext) -> StepResult<Box<dyn OpenVolume>> {
        let file = self.file();
        file.try_lock().unwrap_or_else(|error| panic!("the disk is still in use: {error}"));
        self.volumes.open(cx, Disk { file, path: self.disk.clone() }).await
    }

    async fn open(&self, when: &str) -> Box<dyn OpenVolume> {
        self.try_open(cx()).await.unwrap_or_else(|error| panic!("the volume does not open {when}: {error:?}"))
    }

    fn is_in_use(&self) -> bool {
        matches!(self.file().try_lock(), Err(TryLockError::WouldBlock))
    }

    #[track_caller]
    fn assert_let_go(&self, when: &str) {
        assert!(!self.is_in_use(), "the disk is still held {when}");
        assert_eq!((self.left)(), Vec::<String>::new(), "left {when}");
    }

    /// For what ends by itself a moment later.
    #[track_caller]
    fn wait_let_go(&self, when: &str) {
        let start = Instant::now();
        while (self.is_in_use() || !(self.left)().is_empty()) && start.elapsed() < END_LIMIT {
            pause();
        }
        self.assert_let_go(when);
    }
}

/// Tries what [`Volumes`], [`OpenVolume`] and [`Root`] promise. `make` makes the plugin and a disk that nobody uses.
pub async fn volumes(make: impl Fn() -> VolumeCase) {
    promise("the root is usable: files are read and written");
    files_are_read_and_written(&make()).await;
    promise("the root is usable: programs run and their ends are told");
    programs_run(&make()).await;
    promise("what is bound is seen by programs, and is no part of the image");
    bound_files_stay_out(&make()).await;
    promise("sealing keeps what was written, and lets go of the disk");
    sealing_keeps(&make()).await;
    promise("discarding lets go of the disk, and it can be opened again");
    discarding_lets_go(&make()).await;
    promise("dropping lets go of the disk");
    dropping_lets_go(&make()).await;
    promise("a cancel ends an opening");
    cancelling_lets_go(&make()).await;
    promise("a disk without a root is refused and stays as it is");
    refuses_a_disk_without_root(&make()).await;
}

fn path(path: &str) -> RootPath {
    RootPath::new(path).expect("a legal path")
}

async fn write(root: &mut dyn Root, at: &str, content: &str) {
    let written = root.write(&path(at), content.as_bytes(), 0o644).await;
    written.unwrap_or_else(|error| panic!("`{at}` cannot be written: {error:?}"));
}

async fn read(root: &mut dyn Root, at: &str) -> Option<String> {
    let read = root.read(&path(at)).await.unwrap_or_else(|error| panic!("`{at}` cannot be read: {error:?}"));
    read.map(|bytes| String::from_utf8(bytes).expect("it was text"))
}

/// Runs a program and returns whether it ended well, and what it wrote.
async fn run(root: &mut dyn Root, words: &[&str]) -> Result<(bool, String), RunError> {
    let mut output = Vec::new();
    let outcome = root.run(Command::new(words[0]).args(&words[1..]), &mut output).await?;
    Ok((outcome.success(), String::from_utf8_lossy(&output).into_owned()))
}

async fn files_are_read_and_written(case: &VolumeCase) {
    let mut volume = case.open("the first time").await;
    let root = volume.root();
    assert_eq!(read(root, "/etc/no-such-file").await, None);
    for content in ["first", "second, and longer", ""] {
        write(root, "/etc/contract", content).await;
        assert_eq!(read(root, "/etc/contract").await.as_deref(), Some(content));
    }
    let space = root.space().await.unwrap_or_else(|error| panic!("its space is unknown: {error:?}"));
    assert!(space.bytes_free > 0 && !space.is_full(), "{space:?}");
    assert!(root.filesystem().size > 0);
    volume.discard().await.expect("it can be discarded");
}

async fn programs_run(case: &VolumeCase) {
    let mut volume = case.open("the first time").await;
    let root = volume.root();
    write(root, "/etc/contract", "seen by programs").await;
    assert_eq!(run(root, &["true"]).await, Ok((true, String::new())));
    assert_eq!(run(root, &["false"]).await, Ok((false, String::new())), "a program that fails is no error of `run`");
    assert_eq!(run(root, &["cat", "/etc/contract"]).await, Ok((true, "seen by programs".into())));
    let nothing = run(root, &["no-such-program"]).await;
    assert!(matches!(nothing, Err(RunError::Start { .. })), "a program that is not there: {nothing:?}");
    volume.discard().await.expect("it can be discarded");
}

async fn bound_files_stay_out(case: &VolumeCase) {
    let mut host = tempfile::NamedTempFile::new().expect("a temporary file");
    host.write_all(b"of the host").expect("a temporary file can be written");
    let bind = host.reopen().expect("it is there");
    let mut volume = case.open("the first time").await;
    let root = volume.root();
    let bound = root.bind(OwnedFd::from(bind), &path("/run/contract")).await;
    bound.unwrap_or_else(|error| panic!("a file cannot be bound: {error:?}"));
    assert_eq!(run(root, &["cat", "/run/contract"]).await, Ok((true, "of the host".into())));
    assert_eq!(read(root, "/run/contract").await, None, "the image itself has what was bound");
    volume.seal(cx()).await.unwrap_or_else(|error| panic!("it cannot be sealed: {error:?}"));

    let mut volume = case.open("after it was sealed").await;
    assert_eq!(read(volume.root(), "/run/contract").await, None, "what was bound was sealed into the image");
    volume.discard().await.expect("it can be discarded");
}

async fn sealing_keeps(case: &VolumeCase) {
    let mut volume = case.open("the first time").await;
    write(volume.root(), "/etc/contract", "kept").await;
    assert!(case.is_in_use(), "the disk of an open volume is not held");
    let ended = volume.seal(cx()).await.unwrap_or_else(|error| panic!("it cannot be sealed: {error:?}"));
    assert_eq!(ended, Vec::<String>::new(), "nothing was running");
    case.assert_let_go("after sealing");

    let mut volume = case.open("after it was sealed").await;
    assert_eq!(read(volume.root(), "/etc/contract").await.as_deref(), Some("kept"));
    volume.discard().await.expect("it can be discarded");
}

async fn discarding_lets_go(case: &VolumeCase) {
    for when in ["the first time", "after it was discarded"] {
        let mut volume = case.open(when).await;
        write(volume.root(), "/etc/contract", "lost, perhaps").await;
        volume.discard().await.unwrap_or_else(|error| panic!("it cannot be discarded: {error:?}"));
        case.assert_let_go("after discarding");
    }
    let volume = case.open("to be sealed").await;
    volume.seal(cx()).await.unwrap_or_else(|error| panic!("it cannot be sealed after that: {error:?}"));
    case.assert_let_go("after sealing");
}

async fn dropping_lets_go(case: &VolumeCase) {
    drop(case.open("the first time").await);
    case.wait_let_go("after dropping");
    case.open("after it was dropped").await.discard().await.expect("it can be discarded");
}

async fn cancelling_lets_go(case: &VolumeCase) {
    let cancel = Cancel::new();
    cancel.raise();
    // It may be open before anybody looks.
    if let Ok(volume) = case.try_open(StepContext::detached("contract", &cancel)).await {
        volume.discard().await.expect("it can be discarded");
    }
    case.wait_let_go("after a cancel");
}

async fn refuses_a_disk_without_root(case: &VolumeCase) {
    let garbage = vec![0x55; 1 << 20];
    let disk = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(disk.path(), &garbage).expect("a temporary file can be written");
    let file = File::options().read(true).write(true).open(disk.path()).expect("it is there");
    let Err(error) = case.volumes.open(cx(), Disk { file, path: disk.path().to_owned() }).await else {
        panic!("a disk without a root was opened")
    };
    let name = disk.path().display().to_string();
    assert!(error.chain().join(": ").contains(&name), "the error does not name the disk: {error:?}");
    assert!(std::fs::read(disk.path()).expect("it is there") == garbage, "a disk that was refused was changed");
}
