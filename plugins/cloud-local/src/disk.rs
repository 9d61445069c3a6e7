//! Disk files: copying, locking, making read-only.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bake_linux::copy::{CloneError, clone_file_with};

use crate::error::{StoreError, StoreResult};

/// Nobody may write it any more.
const SEALED_MODE: u32 = 0o400;

/// Copies a disk, sharing blocks where the filesystem can and keeping holes where it cannot.
///
/// `go_on` hears of the bytes copied so far and in all, and says whether anybody still wants the copy.
pub(crate) fn copy(from: &Path, to: &File, to_path: &Path, mut go_on: impl FnMut(u64, u64) -> bool) -> StoreResult<()> {
    let source = File::open(from).map_err(StoreError::io("open the disk", from))?;
    let answer = |wanted| if wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    match clone_file_with(&source, to, |done, total| answer(go_on(done, total))) {
        Ok(_) => Ok(()),
        Err(CloneError::Stopped) => Err(StoreError::Cancelled),
        Err(source) => Err(StoreError::Copy { path: to_path.to_owned(), source }),
    }
}

/// Makes a disk read-only and writes it through: from here on its bytes stay.
pub(crate) fn seal(path: &Path) -> StoreResult<()> {
    let sealed =
        fs::set_permissions(path, Permissions::from_mode(SEALED_MODE)).and_then(|()| File::open(path)?.sync_all());
    sealed.map_err(StoreError::io("seal the disk", path))
}

/// Tells whether a disk was sealed.
pub(crate) fn is_sealed(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o222 == 0)
}

/// What came of the try to lock a disk.
pub(crate) enum Lock {
    /// Nobody else has it open while the file lives.
    Held(File),
    /// Somebody has it open.
    InUse,
    /// There is no such file.
    Absent,
}

/// Locks a disk, without waiting.
///
/// Whoever works on a volume's disk holds a lock (`flock`) on the open file, and so does every process that inherited it.
pub(crate) fn try_lock(path: &Path) -> StoreResult<Lock> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Absent),
        Err(error) => return Err(StoreError::io("open the disk", path)(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Lock::Held(file)),
        Err(TryLockError::WouldBlock) => Ok(Lock::InUse),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock the disk", path)(error)),
    }
}
