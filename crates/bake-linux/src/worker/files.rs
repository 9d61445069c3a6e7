//! The files of the image, looked up inside it.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Attempt, RootError, SystemError};
use crate::filesystem::Space;
use crate::mounts::{open_in_root, unusable};
use crate::root::{EntryKind, RootEntry};
use crate::root_path::RootPath;

/// Temporary names that are taken by somebody else.
const NAME_TRIES: u32 = 100;

/// Opens a plain file for reading, following links inside the image.
pub(super) fn open_plain(root: BorrowedFd<'_>, path: &RootPath) -> Result<OwnedFd, RootError> {
    // Looked at before it is opened: opening a FIFO waits, and opening a device may do anything.
    let found = open_in_root(root, path.relative(), OFlags::PATH).map_err(|errno| unusable(path, errno))?;
    let stat = rustix::fs::fstat(&found).attempt(format!("look at `{path}`"))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(RootError::Unusable { path: path.clone(), why: "it is not a plain file".to_owned() });
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_in_root(root, path.relative(), flags).map_err(|errno| unusable(path, errno))?;
    Ok(file)
}

/// Opens the folder that holds a path.
fn parent_of<'a>(root: BorrowedFd<'_>, path: &'a RootPath) -> Result<(OwnedFd, &'a OsStr), RootError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(unusable(path, Errno::ISDIR));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let parent = open_in_root(root, parent.relative(), flags).map_err(|errno| unusable(&parent, errno))?;
    Ok((parent, name))
}

/// Writes a file under a temporary name, then renames it.
pub(super) fn write(root: BorrowedFd<'_>, path: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError> {
    let (parent, name) = parent_of(root, path)?;
    let (file, temporary) = temporary_file(&parent, path)?;
    let written = fill(file, content, mode)
        .and_then(|()| rustix::fs::renameat(&parent, temporary.as_os_str(), &parent, name))
        .map_err(|errno| unusable(path, errno));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&parent, temporary.as_os_str(), AtFlags::empty());
    }
    written
}

fn temporary_file(parent: &OwnedFd, path: &RootPath) -> Result<(OwnedFd, OsString), RootError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0..NAME_TRIES {
        let name = OsString::from(format!(".bake-{number}"));
        match rustix::fs::openat(parent, name.as_os_str(), flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(unusable(path, errno)),
        }
    }
    Err(unusable(path, Errno::EXIST))
}

fn fill(file: OwnedFd, content: &[u8], mode: u32) -> rustix::io::Result<()> {
    let mut file = std::fs::File::from(file);
    file.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
}

/// Makes a folder and those above it.
pub(super) fn create_folder(root: BorrowedFd<'_>, path: &RootPath, mode: u32) -> Result<(), RootError> {
    let open = |path: &RootPath| open_in_root(root, path.relative(), OFlags::PATH | OFlags::DIRECTORY);
    match open(path) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(unusable(path, errno)),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    create_folder(root, &parent, mode)?;
    let parent = open(&parent).map_err(|errno| unusable(path, errno))?;
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::mkdirat(&parent, name, mode)
        .and_then(|()| rustix::fs::chmodat(&parent, name, mode, AtFlags::empty()))
        .map_err(|errno| unusable(path, errno))
}

/// Removes a file, a link, or a folder with all in it; counts what went.
pub(super) fn remove(root: BorrowedFd<'_>, path: &RootPath) -> Result<u64, RootError> {
    let (parent, name) = match parent_of(root, path) {
        Ok(found) => found,
        Err(RootError::NotFound { .. }) => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    remove_entry(&parent, name, &mut removed).map_err(|errno| unusable(path, errno))?;
    Ok(removed)
}

fn remove_entry(parent: &OwnedFd, name: &OsStr, removed: &mut u64) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => *removed += 1,
        Err(Errno::NOENT) => {}
        Err(Errno::ISDIR) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            for name in names(&folder)? {
                remove_entry(&folder, &name, removed)?;
            }
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
            *removed += 1;
        }
        Err(errno) => return Err(errno),
    }
    Ok(())
}

/// Lists a folder, sorted.
fn names(folder: impl AsFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Describes what is at a path, or says that there is nothing.
pub(super) fn metadata(root: BorrowedFd<'_>, path: &RootPath) -> Result<Option<RootEntry>, RootError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let found = match open_in_root(root, path.relative(), flags) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(unusable(path, errno)),
    };
    let stat = rustix::fs::fstat(&found).attempt(format!("look at `{path}`"))?;
    let target = || rustix::fs::readlinkat(&found, "", Vec::new());
    Ok(Some(entry(path.clone(), &stat, target).map_err(|errno| unusable(path, errno))?))
}

fn entry(
    path: RootPath,
    stat: &Stat,
    target: impl Fn() -> rustix::io::Result<std::ffi::CString>,
) -> rustix::io::Result<RootEntry> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link(OsStr::from_bytes(target()?.as_bytes()).to_owned()),
        _ => EntryKind::Special,
    };
    Ok(RootEntry {
        path,
        kind,
        size: stat.st_size.max(0) as u64,
        mode: stat.st_mode & 0o7777,
        user: stat.st_uid,
        group: stat.st_gid,
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on arm64")]
        links: u64::from(stat.st_nlink),
        modified: UNIX_EPOCH + Duration::from_secs(stat.st_mtime.max(0) as u64),
    })
}

/// Lists everything below a folder on this filesystem, parents first, in the order of names.
pub(super) fn walk(root: BorrowedFd<'_>, below: &RootPath) -> Result<Vec<RootEntry>, RootError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let top = open_in_root(root, below.relative(), flags).map_err(|errno| unusable(below, errno))?;
    let device = rustix::fs::fstat(&top).attempt(format!("look at `{below}`"))?.st_dev;
    let mut found = Vec::new();
    walk_folder(&top, below, device, &mut found)?;
    Ok(found)
}

fn walk_folder(folder: &OwnedFd, at: &RootPath, device: u64, found: &mut Vec<RootEntry>) -> Result<(), RootError> {
    for name in names(folder).map_err(|errno| unusable(at, errno))? {
        let path = at.join(&name).expect("a name from the kernel is one component");
        let stat = rustix::fs::statat(folder, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| unusable(&path, errno))?;
        if stat.st_dev != device {
            continue;
        }
        let target = || rustix::fs::readlinkat(folder, name.as_os_str(), Vec::new());
        found.push(entry(path.clone(), &stat, target).map_err(|errno| unusable(&path, errno))?);
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(folder, name.as_os_str(), flags, Mode::empty())
                .map_err(|errno| unusable(&path, errno))?;
            walk_folder(&folder, &path, device, found)?;
        }
    }
    Ok(())
}

/// Tells how much room is left.
pub(super) fn space(root: BorrowedFd<'_>) -> Result<Space, RootError> {
    let stat = rustix::fs::fstatvfs(root)
        .map_err(|errno| SystemError { action: "look up the free space".to_owned(), source: errno.into() })?;
    // Btrfs makes inodes without end, and says so with a total of 0.
    let inodes_free = if stat.f_files == 0 { u64::MAX } else { stat.f_ffree };
    Ok(Space { bytes_free: stat.f_bfree * stat.f_frsize, inodes_free })
}
