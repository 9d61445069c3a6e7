//! From a mounted root to a disk that can be trusted.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};

use super::volume::{BARE_ROOT, Volume};
use super::{pause, tool};
use crate::error::{Attempt, SealError, SystemError};
use crate::filesystem::Check;
use crate::holders::{self, Holder};
use crate::kernel;
use crate::sealed::{SealOptions, Trim};

/// Longer than it takes to write out the memory of a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(20);
/// What has just ended may hold on for a moment.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// What the owner learns of a sealed disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sealed {
    pub(crate) ended: Vec<Holder>,
    pub(crate) check: Check,
}

/// Ends all processes, unmounts, proves it, checks, flushes; returns the disk, opened for reading.
pub(super) fn seal(volume: Volume, options: &SealOptions) -> Result<(Sealed, File), SealError> {
    let ended = end_all()?;
    let can_be_checked = volume.can_be_checked();
    let Volume { disk, device, filesystem, root, inside, made } = volume;
    drop(inside);
    // Newest first: what was made in a folder that was made goes before it.
    for made in made.iter().rev() {
        made.remove(root.as_fd())?;
    }
    // Here, because unmounting does not report what could not be written; and before trimming, because blocks are free only once the
    // removal of their files is on the disk.
    rustix::fs::syncfs(&root).attempt("write the volume")?;
    if options.trim == Trim::FreeBlocks {
        trim(root.as_fd())?;
    }
    drop(root);
    until_free(filesystem.device, unmount)?;
    // A copy of the mount in another namespace survives ours being unmounted, and says nothing.
    until_free(filesystem.device, || device.is_unmounted())?;

    let check = if can_be_checked { tool::check_after(filesystem.kind, &device.path())? } else { filesystem.check };
    device.sync()?;
    disk.sync_all().attempt("write the disk")?;
    let read_only = reopen(&disk)?;
    device.detach()?;
    Ok((Sealed { ended, check }, read_only))
}

fn trim(root: BorrowedFd<'_>) -> Result<(), SystemError> {
    match kernel::trim(root) {
        // A disk that cannot take blocks back keeps them.
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOTTY) => {}
        Err(errno) => return Err(errno).attempt("give free blocks back to the disk"),
    }
    // Trimming leaves notes of its own.
    rustix::fs::syncfs(root).attempt("write the volume")
}

/// Kills until there are only the first process and us. No fork slips through; nested namespaces die with their own first process.
fn end_all() -> Result<Vec<Holder>, SealError> {
    let ended = holders::in_sandbox()?;
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let left = holders::in_sandbox()?;
        if left.is_empty() {
            return Ok(ended);
        }
        if Instant::now() > deadline {
            return Err(SealError::Busy { holders: left });
        }
        // Spares the first process and the one that asks.
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), nix::sys::signal::Signal::SIGKILL) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(errno) => return Err(errno).attempt("end the remaining processes").map_err(SealError::from),
        }
        pause(Duration::from_millis(1));
    }
}

/// Returns whether it worked; `false` if somebody uses the volume.
fn unmount() -> Result<bool, SystemError> {
    // Not by `sys-mount`: its `NOFOLLOW` (3.1.1) is `open`'s flag, which `umount2` refuses.
    match rustix::mount::unmount(BARE_ROOT, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => Err(errno).attempt("unmount the volume"),
    }
}

fn until_free(device: u64, mut attempt: impl FnMut() -> Result<bool, SystemError>) -> Result<(), SealError> {
    let deadline = Instant::now() + BUSY_LIMIT;
    while !attempt()? {
        if Instant::now() > deadline {
            return Err(SealError::Busy { holders: holders::of_device(device, holders::HolderScope::Sandbox) });
        }
        pause(Duration::from_millis(2));
    }
    Ok(())
}

/// Opens the same disk again, for reading only.
fn reopen(disk: &File) -> Result<File, SystemError> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", disk.as_raw_fd())).attempt("open the sealed disk for reading")
}
