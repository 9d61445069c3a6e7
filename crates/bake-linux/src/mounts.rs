//! Mounts and look-ups by descriptor, so that no link of an image can lead a path of ours astray.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Attempt, RootError, SystemError};
use crate::root_path::RootPath;

/// A rename elsewhere can disturb a look-up with `..`; more than this is no accident.
const LOOKUP_TRIES: usize = 16;

/// Opens a path below a descriptor as if that were `/`: absolute links and `..` stay inside.
pub(crate) fn open_in_root(root: impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..LOOKUP_TRIES {
        result = rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// Makes a new filesystem, attached nowhere yet. What the kernel says beside the error number comes as text.
pub(crate) fn new_mount(
    filesystem: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, (Errno, String)> {
    let context =
        rustix::mount::fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| (errno, String::new()))?;
    let configured = options
        .iter()
        .try_for_each(|(key, value)| match value {
            Some(value) => rustix::mount::fsconfig_set_string(&context, *key, *value),
            None => rustix::mount::fsconfig_set_flag(&context, *key),
        })
        .and_then(|()| rustix::mount::fsconfig_create(&context))
        .and_then(|()| rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes));
    configured.map_err(|errno| (errno, messages(&context)))
}

/// Reads what the kernel wrote about a mount that failed.
fn messages(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut line = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut line) {
        messages.push(String::from_utf8_lossy(&line[..length]).trim().to_owned());
    }
    messages.join("; ")
}

/// Attaches a mount that is attached nowhere to what a descriptor points to, be it a link.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), "", target.as_fd(), "", flags)
}

/// Copies the mount of one file or folder; the copy is attached nowhere yet.
pub(crate) fn clone_mount(folder: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(folder.as_fd(), path, flags)
}

/// Something made in the image only to mount on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    path: RootPath,
    folder: bool,
    inode: u64,
}

impl Made {
    /// Removes it if it is still what was made, and still empty.
    pub(crate) fn remove(&self, root: BorrowedFd<'_>) -> Result<(), SystemError> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(()) };
        let attempt = || format!("remove `{}`", self.path);
        let parent = match open_in_root(root, parent.relative(), OFlags::PATH | OFlags::DIRECTORY) {
            Ok(parent) => parent,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno).attempt(attempt()),
        };
        let now = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => now,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno).attempt(attempt()),
        };
        if now.st_ino != self.inode || (!self.folder && now.st_size != 0) {
            return Ok(());
        }
        let flags = if self.folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            // A package put something there meanwhile: then the folder is the package's.
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno).attempt(attempt()),
        }
    }
}

/// Finds places to mount on inside a root, making and noting what is missing.
pub(crate) struct MountPoints<'a> {
    root: BorrowedFd<'a>,
    device: u64,
    pub(crate) made: Vec<Made>,
}

impl<'a> MountPoints<'a> {
    /// Starts; only what is made on `device` is noted, for the rest is not part of the image.
    pub(crate) fn new(root: BorrowedFd<'a>, device: u64) -> MountPoints<'a> {
        MountPoints { root, device, made: Vec::new() }
    }

    /// Opens a folder, following links inside the root.
    pub(crate) fn folder(&mut self, path: &RootPath) -> Result<OwnedFd, RootError> {
        let open = |root| open_in_root(root, path.relative(), OFlags::PATH | OFlags::DIRECTORY);
        match open(self.root) {
            Err(Errno::NOENT) => {}
            result => return result.map_err(|errno| unusable(path, errno)),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(unusable(path, Errno::NOENT));
        };
        let parent = self.folder(&parent)?;
        // A dangling link is already there, and stays.
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(|errno| unusable(path, errno))?;
        self.note(path, &parent, name, true)?;
        open(self.root).map_err(|errno| unusable(path, errno))
    }

    /// Opens a plain file or a link itself; never what it points to.
    pub(crate) fn file_or_link(&mut self, path: &RootPath) -> Result<OwnedFd, RootError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(unusable(path, Errno::ISDIR));
        };
        let parent = self.folder(&parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&parent, name, make, Mode::from_raw_mode(0o644))
                    .map_err(|errno| unusable(path, errno))?;
                self.note(path, &parent, name, false)?;
                rustix::fs::openat(&parent, name, flags, Mode::empty())
            }
            result => result,
        };
        let found = found.map_err(|errno| unusable(path, errno))?;
        let kind = rustix::fs::fstat(&found).attempt(format!("look at `{path}`"))?.st_mode;
        match FileType::from_raw_mode(kind) {
            FileType::RegularFile | FileType::Symlink => Ok(found),
            _ => Err(RootError::Unusable { path: path.clone(), why: "it is neither a file nor a link".to_owned() }),
        }
    }

    fn note(&mut self, path: &RootPath, parent: &OwnedFd, name: &OsStr, folder: bool) -> Result<(), SystemError> {
        let made = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).attempt(format!("look at `{path}`"))?;
        if made.st_dev == self.device {
            self.made.push(Made { path: path.clone(), folder, inode: made.st_ino });
        }
        Ok(())
    }
}

/// Says in words why a path cannot be used.
pub(crate) fn unusable(path: &RootPath, errno: Errno) -> RootError {
    let why = match errno {
        Errno::NOENT => return RootError::NotFound { path: path.clone() },
        Errno::NOSPC | Errno::DQUOT => return RootError::Full { path: path.clone() },
        Errno::NOTDIR => "a part of it is not a folder",
        Errno::ISDIR => "it is a folder",
        Errno::LOOP => "its links lead in a circle, or it is a link where none is followed",
        Errno::EXIST => "there is a link that leads nowhere",
        Errno::XDEV => "a link leads out of the image",
        Errno::NAMETOOLONG => "a name is too long",
        _ => {
            return Err::<(), _>(errno).attempt(format!("use `{path}` of the image")).expect_err("is an error").into();
        }
    };
    RootError::Unusable { path: path.clone(), why: why.to_owned() }
}
