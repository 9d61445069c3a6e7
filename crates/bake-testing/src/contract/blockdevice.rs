use std::any::Any;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bake_core::{Attachment, BlockDevice, Cloud, Disk, Volume};
use bake_engine::{Class, StepResult};

use super::{cx, promise};

/// A block device with a volume of its own.
pub struct DiskCase {
    /// What is tried.
    pub blockdevice: Arc<dyn BlockDevice>,
    /// Where the volume is.
    pub cloud: Arc<dyn Cloud>,
    /// The volume to open.
    pub volume: Volume,
    /// How it was attached, if it was.
    pub attachment: Option<Attachment>,
    /// Whatever must live as long as these.
    pub keep: Box<dyn Any>,
}

impl DiskCase {
    async fn open(&self) -> StepResult<Disk> {
        self.blockdevice.open(cx(), self.cloud.clone(), &self.volume, self.attachment.as_ref()).await
    }

    async fn disk(&self, when: &str) -> Disk {
        self.open().await.unwrap_or_else(|error| panic!("the disk does not open {when}: {error:?}"))
    }
}

/// Tries what [`BlockDevice`] promises. `make` makes the plugin and a volume that nobody uses.
pub async fn blockdevice(make: impl AsyncFn() -> DiskCase) {
    promise("its medium is one that the cloud offers");
    let case = make().await;
    assert!(case.cloud.kinds().volumes.contains_key(&case.blockdevice.medium()), "the case itself is wrong");

    promise("an open disk is read and written, and has the volume's size");
    can_be_read_and_written(&make().await).await;
    promise("a disk in use is refused, and another try is well when it is free");
    refuses_a_disk_in_use(&make().await).await;
    promise("what is written is there when the disk is opened again");
    keeps_what_is_written(&make().await).await;
}

async fn can_be_read_and_written(case: &DiskCase) {
    let disk = case.disk("the first time").await;
    let size = disk.file.metadata().expect("an open file has metadata").len();
    // A device has no size there.
    assert!(size == case.volume.size || size == 0, "the disk has {size} bytes, the volume {}", case.volume.size);
    write(&disk, b"written");
    assert_eq!(read(&disk, 7), b"written");
    assert!(!disk.path.as_os_str().is_empty(), "messages cannot name the disk");
}

async fn refuses_a_disk_in_use(case: &DiskCase) {
    let disk = case.disk("the first time").await;
    for _ in 0..2 {
        let Err(error) = case.open().await else { panic!("a disk was opened twice at a time") };
        assert!(!matches!(error.class(), Class::Bug | Class::Cancelled), "a disk in use is no mistake: {error:?}");
    }
    // Whoever holds the open file holds the disk, be it in another process.
    let copy = disk.file.try_clone().expect("a file can be shared");
    drop(disk);
    assert!(case.open().await.is_err(), "a disk was opened while a sandbox had it");
    drop(copy);
    case.disk("after it was closed").await;
}

async fn keeps_what_is_written(case: &DiskCase) {
    write(&case.disk("the first time").await, b"kept");
    assert_eq!(read(&case.disk("the second time").await, 4), b"kept");
}

fn write(disk: &Disk, bytes: &[u8]) {
    disk.file.write_all_at(bytes, 0).unwrap_or_else(|error| panic!("`{}`: {error}", disk.path.display()));
}

fn read(disk: &Disk, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    disk.file.read_exact_at(&mut bytes, 0).unwrap_or_else(|error| panic!("`{}`: {error}", disk.path.display()));
    bytes
}
