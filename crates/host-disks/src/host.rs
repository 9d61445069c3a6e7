//! The disks that the kernel shows.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kernel counts in sectors of this size, whatever the disk's own is.
const SECTOR: u64 = 512;

/// Where the kernel shows its disks: below `/`, or below another folder in tests.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenDisk {
    /// The kernel's name: `nvme1n1`, `xvdf`.
    pub name: String,
    /// Its serial, where it has one.
    pub serial: Option<String>,
    /// Its size in bytes; 0 while the kernel does not know it yet.
    pub size: u64,
    /// Its node, where that is there already.
    pub node: Option<PathBuf>,
}

impl Default for Host {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Host {
    /// Returns a host whose `/sys`, `/dev` and `/run` are below a folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the whole disks that may be attached volumes, by name. One that vanishes meanwhile is not among them.
    ///
    /// # Errors
    ///
    /// Fails when the kernel shows no disks at all.
    pub fn disks(&self) -> io::Result<Vec<SeenDisk>> {
        let mut disks: Vec<_> =
            names(&self.path("sys/block"))?.into_iter().filter_map(|name| self.disk(name)).collect();
        disks.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(disks)
    }

    /// Returns the names of the disks that are there, to tell later which are new.
    ///
    /// # Errors
    ///
    /// Fails when the kernel shows no disks at all.
    pub fn disk_names(&self) -> io::Result<BTreeSet<String>> {
        Ok(self.disks()?.into_iter().map(|disk| disk.name).collect())
    }

    /// Returns every name that a device or a link to one has: a link such as `/dev/sdf` is udev's, for an attached volume.
    pub(crate) fn device_names(&self) -> io::Result<Vec<String>> {
        let mut all = names(&self.path("dev"))?;
        match names(&self.path("sys/class/block")) {
            Ok(names) => all.extend(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        all.extend(names(&self.path("sys/block"))?);
        Ok(all)
    }

    /// Returns the folder of the locks that all bakes of this host share.
    pub(crate) fn locks(&self) -> PathBuf {
        self.path("run/lock/bake")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn disk(&self, name: String) -> Option<SeenDisk> {
        let shown = self.path("sys/block").join(&name);
        if !is_disk_name(&name) || shown.join("partition").exists() {
            return None;
        }
        let sectors: u64 = text(&shown.join("size"))?.parse().ok()?;
        let node = self.path("dev").join(&name);
        Some(SeenDisk {
            serial: text(&shown.join("device/serial")).or_else(|| self.controller_serial(&name)),
            size: sectors * SECTOR,
            node: node.exists().then_some(node),
            name,
        })
    }

    /// Reads the serial off the NVMe controller that has this disk. Its number need not be the disk's.
    fn controller_serial(&self, disk: &str) -> Option<String> {
        let controllers = self.path("sys/class/nvme");
        let of_disk = names(&controllers).ok()?.into_iter().find(|name| controllers.join(name).join(disk).exists())?;
        text(&controllers.join(of_disk).join("serial"))
    }
}

/// Tells whether this is the name of a whole disk of the kinds that attached volumes are. A Xen disk may be called as a partition
/// is (`xvda1`); such a one is not a disk that we attached.
fn is_disk_name(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = name.strip_prefix("nvme") {
        return rest.split_once('n').is_some_and(|(controller, namespace)| number(controller) && number(namespace));
    }
    name.strip_prefix("xvd").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot list `{}`: {error}", folder.display())))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Reads one small file of the kernel's; `None` when it is not there or says nothing.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}
