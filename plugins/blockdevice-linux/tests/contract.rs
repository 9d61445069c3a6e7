//! Attached volumes keep the contract of block devices: a loop device stands for the disk, as a kernel with NVMe would show it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use bake_core::{Attachment, Region, Volume, VolumeId};
use bake_engine::Mutations;
use bake_linux::LoopDevice;
use bake_testing::contract::{self, DiskCase};
use bake_testing::fake::FakeCloud;
use bake_testing::needs;
use blockdevice_linux::LinuxBlockDevice;
use host_disks::Host;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;
const VOLUME: &str = "vol-0123456789abcdef0";

/// A machine with one disk beside its own, in a folder.
fn machine() -> (TempDir, LoopDevice) {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let disk = File::options().read(true).write(true).create_new(true).open(at("volume")).unwrap();
    disk.set_len(SIZE).unwrap();
    let device = LoopDevice::attach(disk.as_fd(), 0, SIZE).unwrap();
    for (name, serial) in [("nvme0n1", "vol0root"), ("nvme1n1", &*VOLUME.replace('-', ""))] {
        fs::create_dir_all(at(&format!("sys/block/{name}/device"))).unwrap();
        fs::write(at(&format!("sys/block/{name}/size")), format!("{}\n", SIZE / 512)).unwrap();
        fs::write(at(&format!("sys/block/{name}/device/serial")), format!("{serial:<20}\n")).unwrap();
    }
    fs::create_dir(at("dev")).unwrap();
    let number = fs::metadata(device.path()).unwrap().rdev();
    mknodat(CWD, at("dev/nvme1n1"), FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number).unwrap();
    (folder, device)
}

#[tokio::test]
async fn attached_volumes_keep_the_contract() {
    needs!(root(), loops());
    contract::blockdevice(async || {
        let (folder, device) = machine();
        let attachment = Attachment {
            volume: VolumeId::new(VOLUME),
            machine: "i-0123456789abcdef0".into(),
            device: "/dev/sdf".into(),
            before: BTreeSet::from(["nvme0n1".to_owned()]),
        };
        DiskCase {
            blockdevice: Arc::new(LinuxBlockDevice::new(Host::at(folder.path()))),
            cloud: FakeCloud::new(&["base"]).build(&mut Mutations::new()),
            volume: Volume { id: VolumeId::new(VOLUME), region: Region::new("here"), size: SIZE },
            attachment: Some(attachment),
            keep: Box::new((folder, device)),
        }
    })
    .await;
}
