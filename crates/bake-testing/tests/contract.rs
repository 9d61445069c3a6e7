//! The fakes keep the contracts of the plugins that they stand for.

use std::path::Path;
use std::sync::Arc;

use bake_core::{Disk, Region, Volume, VolumeId, Volumes};
use bake_engine::{Cancel, Mutations, StepContext};
use bake_testing::contract::{self, DiskCase, ProvisionerCase, VolumeCase};
use bake_testing::fake::{FakeBlockDevice, FakeCloud, FakeFinalizer, FakeProvisioner, FakeVolumes, Lacks};

const SIZE: u64 = 1 << 16;

fn cx() -> StepContext {
    StepContext::detached("test", &Cancel::new())
}

/// An empty disk file, which is a root for fakes.
fn disk() -> tempfile::NamedTempFile {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(SIZE).unwrap();
    disk
}

#[tokio::test]
async fn the_fake_cloud_keeps_the_contract() {
    contract::cloud(async |bases: &[&str]| FakeCloud::new(bases)).await;
}

#[tokio::test]
async fn so_does_one_whose_volumes_are_files() {
    let disk = disk();
    contract::cloud(async |bases: &[&str]| FakeCloud::new(bases).in_files(disk.path())).await;
}

#[tokio::test]
async fn so_does_one_that_lacks_something() {
    for lacks in [Lacks::Snapshots, Lacks::Images, Lacks::Copies, Lacks::Tags] {
        contract::cloud(async |bases: &[&str]| FakeCloud::new(bases).lacking(lacks)).await;
    }
}

#[tokio::test]
async fn the_fake_block_device_keeps_the_contract() {
    contract::blockdevice(async || DiskCase {
        blockdevice: Arc::new(FakeBlockDevice::default()),
        cloud: FakeCloud::new(&["base"]).build(&mut Mutations::new()),
        volume: Volume { id: VolumeId::new("volume-1"), region: Region::new("here"), size: SIZE },
        attachment: None,
        keep: Box::new(()),
    })
    .await;
}

#[tokio::test]
async fn fake_volumes_keep_the_contract() {
    contract::volumes(|| {
        let (volumes, disk) = (FakeVolumes::default(), disk());
        let counted = volumes.clone();
        VolumeCase {
            volumes: Arc::new(volumes),
            disk: disk.path().to_owned(),
            left: Box::new(move || (0..counted.open_now()).map(|n| format!("open volume {n}")).collect()),
            keep: Box::new(disk),
        }
    })
    .await;
}

async fn open(path: &Path) -> Box<dyn bake_core::OpenVolume> {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    FakeVolumes::default().open(cx(), Disk { file, path: path.to_owned() }).await.unwrap()
}

#[tokio::test]
async fn the_fake_provisioner_keeps_the_contract() {
    contract::provisioner(async || {
        let folder = tempfile::tempdir().unwrap();
        let (disk, package_file) = (folder.path().join("disk"), folder.path().join("hello.fake"));
        std::fs::File::create(&disk).unwrap().set_len(SIZE).unwrap();
        std::fs::write(&package_file, "hello-bake=1.0").unwrap();
        ProvisionerCase {
            provisioner: Arc::new(FakeProvisioner),
            volume: open(&disk).await,
            package_file,
            foreign_file: folder.path().join("hello.deb"),
            liar: FakeProvisioner::LIAR,
            keep: Box::new(folder),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn fake_finalizers_keep_the_contract() {
    contract::finalizer(|cloud| Ok(Arc::new(FakeFinalizer::register(cloud)?))).await;
    contract::finalizer(|cloud| Ok(Arc::new(FakeFinalizer::register_another(cloud)?))).await;
    contract::finalizer(|cloud| Ok(Arc::new(FakeFinalizer::tag(cloud)?))).await;
    contract::finalizer(|_| Ok(Arc::new(FakeFinalizer::look()))).await;
    contract::finalizer(|_| Ok(Arc::new(FakeFinalizer::nothing()))).await;
}
