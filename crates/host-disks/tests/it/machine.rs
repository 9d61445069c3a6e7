//! A machine that is a folder: its `/sys`, its `/dev` and its `/run`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use host_disks::Host;
use tempfile::TempDir;

/// One GiB.
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) struct Machine {
    root: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sys/block", "sys/class/block", "sys/class/nvme", "dev"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(self.root.path())
    }

    /// Adds a disk as the kernel shows it, with its node.
    pub(crate) fn disk(&self, name: &str, size: u64) -> &Self {
        self.disk_without_node(name, size).write(&format!("dev/{name}"), "")
    }

    pub(crate) fn disk_without_node(&self, name: &str, size: u64) -> &Self {
        self.write(&format!("sys/block/{name}/size"), &format!("{}\n", size / 512));
        let link = self.root.path().join("sys/class/block").join(name);
        if !link.is_symlink() {
            symlink(format!("../../block/{name}"), link).unwrap();
        }
        self
    }

    /// Adds an NVMe disk with its serial, padded as the kernel shows it.
    pub(crate) fn nvme(&self, name: &str, serial: &str, size: u64) -> &Self {
        self.write(&format!("sys/block/{name}/device/serial"), &format!("{serial:<20}\n")).disk(name, size)
    }

    /// Adds a partition of a disk, which the kernel lists among all block devices.
    pub(crate) fn partition(&self, name: &str, size: u64) -> &Self {
        self.write(&format!("sys/class/block/{name}/partition"), "1\n")
            .write(&format!("sys/class/block/{name}/size"), &format!("{}\n", size / 512))
            .write(&format!("dev/{name}"), "")
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Takes a disk away.
    pub(crate) fn unplug(&self, name: &str) {
        let root = self.root.path();
        fs::remove_dir_all(root.join("sys/block").join(name)).unwrap();
        fs::remove_file(root.join("sys/class/block").join(name)).unwrap();
        fs::remove_file(root.join("dev").join(name)).unwrap();
    }
}
