//! Copies of disk files that stay small.

use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::kernel;
use crate::wire::retry;

/// Between two reports of progress, and between two beginnings to write to the disk.
const STEP: u64 = 16 << 20;

/// How a file was cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloned {
    /// Both files share their blocks until one changes.
    Shared,
    /// The data was copied, this many bytes; holes stayed holes.
    Copied(u64),
}

/// Why a file was not cloned.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The disk of the copy is full.
    #[error("the disk is full after {written} of {needed} bytes")]
    Full {
        /// How much was written.
        written: u64,
        /// How much data the file has.
        needed: u64,
    },
    /// Whoever heard of its progress did not want it any more.
    #[error("the copy was stopped")]
    Stopped,
    /// A system call failed.
    #[error("cannot copy the disk file")]
    System(#[source] io::Error),
}

/// Makes the empty file `to` a copy of `from`: at once where the filesystem can share blocks, else by copying the data and keeping
/// the holes. Blocks for the time of the copy.
pub fn clone_file(from: &File, to: &File) -> Result<Cloned, CloneError> {
    clone_file_with(from, to, |_, _| ControlFlow::Continue(()))
}

/// Like [`clone_file`], and reports the bytes copied so far and in all; the answer may end the copy.
pub fn clone_file_with(
    from: &File,
    to: &File,
    progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Cloned, CloneError> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => Ok(Cloned::Shared),
        // Another filesystem, one that cannot, a block device, or one too old to know the question.
        Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {
            copy_data(from, to, progress)
        }
        Err(errno) => Err(CloneError::System(errno.into())),
    }
}

fn copy_data(
    from: &File,
    to: &File,
    mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Cloned, CloneError> {
    let size = size_of(from).map_err(CloneError::System)?;
    let ranges = data_ranges(from).collect::<io::Result<Vec<_>>>().map_err(CloneError::System)?;
    let needed = ranges.iter().map(|range| range.end - range.start).sum();
    to.set_len(size).map_err(CloneError::System)?;
    let mut written = 0;
    report(&mut progress, written, needed)?;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min(STEP);
            let copied = copy_step(from, to, at, step).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => CloneError::Full { written, needed },
                _ => CloneError::System(error),
            })?;
            // Whoever attaches the copy waits for the disk to have all of it: better it begins now.
            kernel::start_writing(to, at, copied);
            at += copied;
            written += copied;
            report(&mut progress, written, needed)?;
        }
    }
    Ok(Cloned::Copied(written))
}

fn report(progress: &mut impl FnMut(u64, u64) -> ControlFlow<()>, written: u64, needed: u64) -> Result<(), CloneError> {
    match progress(written, needed) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(CloneError::Stopped),
    }
}

/// Copies some bytes, at the same place in both files; never over a hole, which this would fill.
fn copy_step(from: &File, to: &File, at: u64, length: u64) -> io::Result<u64> {
    let (mut read_at, mut write_at) = (at, at);
    let copied =
        retry(|| rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length as usize));
    match copied {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(copied) => Ok(copied as u64),
        // From a block device, or between filesystems of an older kernel.
        Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => copy_by_hand(from, to, at, length),
        Err(errno) => Err(errno.into()),
    }
}

fn copy_by_hand(from: &File, to: &File, at: u64, length: u64) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; length.min(1 << 20) as usize];
    let read = from.read_at(&mut buffer, at)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    to.write_all_at(&buffer[..read], at)?;
    Ok(read as u64)
}

/// Returns the size of a file or block device.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    // Not from the metadata, which say 0 of a block device. No one relies on the position of a disk file.
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Yields the ranges of a file that hold data, in order; one range on a device that cannot tell.
pub fn data_ranges(file: &File) -> impl Iterator<Item = io::Result<Range<u64>>> {
    let mut at = Some(0);
    std::iter::from_fn(move || {
        let next = next_range(file, at?).transpose()?;
        // An error ends the iteration after it was told.
        at = next.as_ref().ok().map(|range| range.end);
        Some(next)
    })
}

fn next_range(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // No data from here on.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => {
            let size = size_of(file)?;
            return Ok((at < size).then_some(at..size));
        }
        Err(errno) => return Err(errno.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..end))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    fn sparse(size: u64, data: &[(u64, usize)]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for &(at, length) in data {
            file.write_all_at(&vec![7; length], at).unwrap();
        }
        file
    }

    #[test]
    fn holes_stay_holes_in_a_copy() {
        let from = sparse(512 << 20, &[(1 << 20, 100_000), (300 << 20, 4096)]);
        let to = tempfile::tempfile().unwrap();
        let mut reports = Vec::new();
        clone_file_with(&from, &to, |done, all| {
            reports.push((done, all));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(to.metadata().unwrap().len(), 512 << 20);
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20, "the holes were filled");
        let ranges = |file| data_ranges(file).collect::<io::Result<Vec<_>>>().unwrap();
        assert_eq!(ranges(&from), ranges(&to));
        let mut content = vec![0; 100_000];
        to.read_exact_at(&mut content, 1 << 20).unwrap();
        assert!(content.iter().all(|&byte| byte == 7));
        assert!(reports.is_sorted() && reports.last().is_none_or(|(done, all)| done == all));
    }

    #[test]
    fn files_without_data_and_without_holes() {
        let ranges = |file: &File| data_ranges(file).collect::<io::Result<Vec<_>>>().unwrap();
        assert_eq!(ranges(&sparse(0, &[])), []);
        assert_eq!(ranges(&sparse(1 << 20, &[])), []);
        assert_eq!(ranges(&sparse(8192, &[(0, 8192)])), Vec::from_iter([Range { start: 0, end: 8192 }]));
    }

    #[test]
    fn a_full_disk_is_said_plainly() {
        let from = sparse(8 << 20, &[(0, 8 << 20)]);
        let to = File::options().write(true).open("/dev/full").unwrap();
        let copied = copy_by_hand(&from, &to, 0, 4096).unwrap_err();
        assert_eq!(copied.raw_os_error(), Some(libc::ENOSPC));
        insta::assert_snapshot!(
            CloneError::Full { written: 1, needed: 2 },
            @"the disk is full after 1 of 2 bytes"
        );
    }
}
