//! The machine that a bake runs on: an instance, whose attached volumes are real block devices of this machine.
//!
//! The kernel of an instance shows its disks in `/sys` and `/dev`; here that is below a folder. A node in it is a real one, of a
//! loop device over the volume's bytes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bake_linux::LoopDevice;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// What EBS calls its disks.
const MODEL: &str = "Amazon Elastic Block Store";

/// Bytes of a GiB.
const GIB: u64 = 1 << 30;

/// How many letters further some kernels call a disk.
const SHIFT: u8 = 4;

/// How a machine's kernel calls its disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// `nvme1n1`, in an order that says nothing about the names that were asked for. Their serials are the volumes' ids.
    #[default]
    Nvme,
    /// `xvdf` for `/dev/sdf`.
    Xen,
    /// `xvdj` for `/dev/sdf`.
    XenShifted,
}

/// An instance.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// The region that it is in.
    pub region: String,
    /// The availability zone that it is in.
    pub zone: String,
    /// How its kernel calls disks.
    pub kernel: Kernel,
    /// The folder below which its `/sys`, `/dev` and `/run` are.
    pub folder: PathBuf,
}

impl Machine {
    /// Describes an instance of today.
    pub fn new(account: &str, region: &str, folder: impl Into<PathBuf>) -> Self {
        Self {
            id: "i-0123456789abcdef0".into(),
            account: account.into(),
            region: region.into(),
            zone: format!("{region}b"),
            kernel: Kernel::default(),
            folder: folder.into(),
        }
    }

    /// Gives it another kernel.
    #[must_use]
    pub fn kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// What its root disk is attached as.
    pub(crate) fn root_device(&self) -> &'static str {
        "/dev/xvda"
    }

    /// Makes its folders, and shows its root disk, which nobody reads.
    pub(crate) fn boot(&self) -> io::Result<()> {
        for folder in ["sys/block", "sys/class/block", "dev", "run", "volumes"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        let (name, serial) = match self.kernel {
            Kernel::Nvme => ("nvme0n1", Some("vol0root")),
            Kernel::Xen | Kernel::XenShifted => ("xvda", None),
        };
        self.show_in_sys(name, serial, 8 * GIB)?;
        File::create(self.folder.join("dev").join(name)).map(|_| ())
    }

    /// Returns the file that holds a volume's bytes.
    pub(crate) fn file(&self, volume: &str) -> PathBuf {
        self.folder.join("volumes").join(volume)
    }

    /// Makes a volume a disk of this machine.
    pub(crate) fn plug(&self, volume: &str, device: &str) -> io::Result<Shown> {
        let path = self.file(volume);
        let file = File::options().read(true).write(true).open(&path)?;
        let size = file.metadata()?.len();
        let disk = LoopDevice::attach(file.as_fd(), 0, size).map_err(io::Error::other)?;
        let number = fs::metadata(disk.path())?.rdev();
        let name = self.free_name(device)?;
        let serial = volume.replacen("vol-", "vol", 1);
        self.show_in_sys(&name, (self.kernel == Kernel::Nvme).then_some(&serial), size)?;
        let node = self.folder.join("dev").join(&name);
        mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number)?;
        let shown = self.shown_folders(&name);
        Ok(Shown { node, shown, bound: disk.path(), file: path, disk: Mutex::new(Some(disk)) })
    }

    fn shown_folders(&self, name: &str) -> [PathBuf; 2] {
        [self.folder.join("sys/block").join(name), self.folder.join("sys/class/block").join(name)]
    }

    fn show_in_sys(&self, name: &str, serial: Option<&str>, size: u64) -> io::Result<()> {
        let [block, class] = self.shown_folders(name);
        fs::create_dir_all(block.join("device"))?;
        fs::write(block.join("size"), format!("{}\n", size / 512))?;
        if let Some(serial) = serial {
            fs::write(block.join("device/serial"), format!("{serial:<20}\n"))?;
            fs::write(block.join("device/model"), format!("{MODEL:<40}\n"))?;
        }
        match symlink(&block, class) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// The name that the kernel gives to a new disk.
    fn free_name(&self, device: &str) -> io::Result<String> {
        let letters = slot(device);
        let there = |name: &String| self.folder.join("sys/block").join(name).exists();
        match self.kernel {
            // From above: the first that is attached is not the first that there is.
            Kernel::Nvme => {
                let mut names = (1..=9).rev().map(|number| format!("nvme{number}n1"));
                names.find(|name| !there(name)).ok_or_else(|| io::Error::other("too many disks"))
            }
            Kernel::Xen => Ok(format!("xvd{letters}")),
            Kernel::XenShifted => match letters.as_bytes() {
                // Those of two letters, and those at the end of the alphabet, keep their name.
                [letter @ b'a'..=b'v'] => Ok(format!("xvd{}", char::from(letter + SHIFT))),
                _ => Ok(format!("xvd{letters}")),
            },
        }
    }
}

/// The letters of a device name: the same disk has it as `sd` and as `xvd`.
pub(crate) fn slot(name: &str) -> &str {
    let rest = name.strip_prefix("/dev/").unwrap_or(name);
    let rest = rest.strip_prefix("sd").or_else(|| rest.strip_prefix("xvd")).unwrap_or(rest);
    rest.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// A disk that a machine has.
#[derive(Debug)]
pub(crate) struct Shown {
    node: PathBuf,
    shown: [PathBuf; 2],
    /// The loop device.
    bound: PathBuf,
    /// The file that it shows.
    file: PathBuf,
    disk: Mutex<Option<LoopDevice>>,
}

impl Shown {
    /// Writes what the kernel holds back of the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.bound)?.sync_all()
    }

    /// Takes the disk away from the machine; says whether it is gone. It is not while somebody has it open.
    pub(crate) fn unplug(&self) -> bool {
        // The kernel unbinds it after the last close, ours or somebody else's.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).take();
        let name = self.bound.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let bound = fs::read_to_string(backing).is_ok_and(|file| Path::new(file.trim_end()) == self.file);
        if !bound {
            self.hide();
        }
        !bound
    }

    /// Takes what the kernel shows of it away.
    fn hide(&self) {
        let [block, class] = &self.shown;
        for path in [class, &self.node] {
            let _not_there_any_more = fs::remove_file(path);
        }
        let _not_there_any_more = fs::remove_dir_all(block);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.hide();
    }
}
