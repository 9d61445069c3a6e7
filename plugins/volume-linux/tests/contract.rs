//! Linux roots on real disks keep the contract of volumes.

use std::sync::Arc;

use bake_testing::base::{DiskOptions, disk};
use bake_testing::contract::{self, VolumeCase};
use bake_testing::host::{Canary, Leftovers};
use bake_testing::{copy_disk, needs};
use volume_linux::LinuxVolumes;

bake_linux::sandbox_test_entry!();

async fn keeps_the_contract(options: DiskOptions) {
    use_sandbox();
    let (canary, base) = (Canary::new(), disk(&options));
    contract::volumes(|| {
        let folder = tempfile::Builder::new().prefix("bake-volume-").tempdir().unwrap();
        let (disk, leftovers) = (folder.path().join("disk.raw"), Leftovers::of(folder.path()));
        copy_disk(&base, &disk);
        VolumeCase {
            volumes: Arc::new(LinuxVolumes::default()),
            disk,
            left: Box::new(move || leftovers.find().iter().map(ToString::to_string).collect()),
            keep: Box::new(folder),
        }
    })
    .await;
    canary.assert_unchanged();
}

#[tokio::test]
async fn ext4_in_a_partition_keeps_the_contract() {
    needs!(root(), loops(), fixtures());
    keeps_the_contract(DiskOptions::default()).await;
}

#[tokio::test]
async fn xfs_keeps_the_contract() {
    needs!(root(), loops(), fixtures());
    keeps_the_contract(DiskOptions::xfs()).await;
}
