//! Loop devices: a part of a file that looks like a disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::fs::FlockOperation;

use crate::error::{Attempt, SystemError};
use crate::kernel;
use crate::worker::pause;

/// Others look for a free device at the same time; with two dozen at once the mean is five tries.
const ATTACH_TRIES: usize = 200;
/// Some kernels, and udev, keep the device for a moment after the last close.
const DETACH_LIMIT: Duration = Duration::from_secs(2);

/// A part of a disk as a block device. The kernel unbinds it after the last close, so it cannot outlive its holders.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    number: u32,
}

impl LoopDevice {
    /// Binds a part of a disk to a free device: `size` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Fails when there is no free loop device, or when the kernel does not take the disk.
    pub fn attach(disk: BorrowedFd<'_>, offset: u64, size: u64) -> Result<LoopDevice, SystemError> {
        let control = File::open("/dev/loop-control").attempt("open `/dev/loop-control`")?;
        for _ in 0..ATTACH_TRIES {
            let number = kernel::free_loop_number(control.as_fd()).attempt("find a free loop device")?;
            let path = format!("/dev/loop{number}");
            let file = match File::options().read(true).write(true).open(&path) {
                Ok(file) => file,
                // Taken away, or not there yet.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::EBUSY)) => {
                    pause(Duration::from_millis(2));
                    continue;
                }
                Err(error) => return Err(error).attempt(format!("open `{path}`")),
            };
            // Before binding: udev leaves a locked device alone, and so never publishes the image's names on the host.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                pause(Duration::from_millis(2));
                continue;
            }
            match kernel::configure_loop(file.as_fd(), disk, offset, size) {
                Ok(()) => return Ok(LoopDevice { file, number }),
                Err(Errno::EBUSY | Errno::ENXIO | Errno::ENOENT) => {}
                Err(errno) => return Err(errno).attempt(format!("bind the disk to `{path}`")),
            }
        }
        Err(Errno::EBUSY).attempt("find a free loop device")
    }

    /// Returns its node.
    pub fn path(&self) -> PathBuf {
        format!("/dev/loop{}", self.number).into()
    }

    pub(crate) fn sync(&self) -> Result<(), SystemError> {
        self.file.sync_all().attempt("write the volume to its disk")
    }

    /// Proves that nobody has this device mounted, in whichever namespace: only then may it be opened exclusively.
    pub(crate) fn is_unmounted(&self) -> Result<bool, SystemError> {
        match File::options().read(true).custom_flags(libc::O_EXCL).open(self.path()) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(error).attempt(format!("open `{}` exclusively", self.path().display())),
        }
    }

    /// Closes the device and waits until the kernel has unbound it.
    pub(crate) fn detach(self) -> Result<(), SystemError> {
        let backing = PathBuf::from(format!("/sys/block/loop{}/loop/backing_file", self.number));
        let bound_to = std::fs::read(&backing).attempt("look up the loop device")?;
        let path = self.path();
        drop(self);
        let deadline = Instant::now() + DETACH_LIMIT;
        // Another sandbox may take the number at once; then it is bound to another file.
        while std::fs::read(&backing).is_ok_and(|now| now == bound_to) {
            if Instant::now() > deadline {
                let busy = Err(io::Error::from_raw_os_error(libc::EBUSY));
                return busy.attempt(format!("release `{}`: somebody else has it open", path.display()));
            }
            pause(Duration::from_millis(1));
        }
        Ok(())
    }
}
