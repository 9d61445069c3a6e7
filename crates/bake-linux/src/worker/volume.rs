//! The open volume: from a disk to a mounted filesystem.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::{WORKSHOP, inside, tool};
use crate::error::{Attempt, OpenError};
use crate::filesystem::{Check, Filesystem, FilesystemKind};
use crate::layout;
use crate::loop_device::LoopDevice;
use crate::mounts::{self, Made};
use crate::open::OpenOptions;

/// Where the volume is mounted in the worker's view, with nothing mounted on top.
pub(super) const BARE_ROOT: &str = "/run/bake/sandbox/root";

/// A disk whose root is mounted.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) disk: File,
    pub(super) device: LoopDevice,
    pub(super) filesystem: Filesystem,
    /// The bare root.
    pub(super) root: OwnedFd,
    /// The mount namespace of the commands.
    pub(super) inside: OwnedFd,
    /// What was made in the image to mount on.
    pub(super) made: Vec<Made>,
}

impl Volume {
    /// Finds, checks and mounts the root, and prepares the commands' view of it.
    pub(super) fn open(descriptors: Vec<OwnedFd>, options: &OpenOptions) -> Result<Volume, OpenError> {
        let disk = File::from(descriptors.into_iter().next().ok_or(Errno::BADF).attempt("receive the disk")?);
        let found = layout::find_root(&disk, &options.partition)?;
        let device = LoopDevice::attach(disk.as_fd(), found.offset, found.size)?;
        let check = tool::check_before(found.filesystem, &device.path())?;
        let root = mount(found.filesystem, &device)?;
        let device_number = rustix::fs::fstat(&root).attempt("look at the root")?.st_dev;
        let (inside, made) = inside::build(device_number, options)?;
        let filesystem = Filesystem {
            kind: found.filesystem,
            partition: found.partition,
            offset: found.offset,
            size: found.size,
            label: found.label,
            check,
            device: device_number,
        };
        Ok(Volume { disk, device, filesystem, root, inside, made })
    }

    /// Tells whether the host's checker knows this filesystem.
    pub(super) fn can_be_checked(&self) -> bool {
        self.filesystem.kind != FilesystemKind::Ext4 || self.filesystem.check == Check::Clean
    }
}

/// Mounts the device on [`BARE_ROOT`].
fn mount(kind: FilesystemKind, device: &LoopDevice) -> Result<OwnedFd, OpenError> {
    let source = device.path();
    let source = source.to_str().expect("our own words are text");
    let mut options = vec![("source", Some(source))];
    if kind == FilesystemKind::Xfs {
        // Clones of one image have one UUID; without this the second of two bakes at once is refused.
        options.push(("nouuid", None));
    }
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = mounts::new_mount(kind.name(), &options, attributes).map_err(|(errno, messages)| OpenError::Mount {
        filesystem: kind.to_string(),
        messages,
        source: errno.into(),
    })?;
    let attempt = || format!("mount the root on `{WORKSHOP}`");
    rustix::fs::mkdir(BARE_ROOT, Mode::from_raw_mode(0o700)).attempt(attempt())?;
    let target = rustix::fs::open(BARE_ROOT, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).attempt(attempt())?;
    mounts::attach(&mount, &target).attempt(attempt())?;
    // Not the descriptor of the mount itself, so that it is clear what must be closed before it can be unmounted.
    Ok(rustix::fs::open(BARE_ROOT, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .attempt(attempt())?)
}
