//! How things appear all at once or not at all.
//!
//! A thing is made in a folder of its own beside its final place, `.making-<id>`, whose maker holds a lock on it, and
//! appears by a rename. Readers skip names that begin with a dot. A maker that dies loses its lock with its process, so
//! a folder that can be locked is a leftover: [`sweep`] removes it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{StoreError, StoreResult};

const MAKING: &str = ".making-";
const REMOVING: &str = ".removing-";

/// A folder in which something is being made. Dropping it removes everything.
#[must_use = "dropping it removes what was made"]
#[derive(Debug)]
pub(crate) struct Making {
    folder: PathBuf,
    target: PathBuf,
    /// Held until the thing has appeared or is gone.
    _lock: File,
    finished: bool,
}

/// How a making begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The thing is not there yet.
    New(Making),
    /// An earlier try of the same operation made it.
    There,
}

impl Making {
    /// Begins to make `id` on a shelf. Leftovers of makers that died are removed from the shelf first.
    pub(crate) fn begin(shelf: &Path, id: &str) -> StoreResult<Begun> {
        make_folder(shelf).map_err(StoreError::io("create the folder", shelf))?;
        if let Err(error) = sweep(shelf) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a leftover of a dead process stays");
        }
        let target = shelf.join(id);
        let folder = shelf.join(format!("{MAKING}{id}"));
        if is_there(&target)? {
            return Ok(Begun::There);
        }
        let lock = match make_locked(&folder).map_err(StoreError::io("create the folder", &folder))? {
            Some(lock) => lock,
            None => return Err(StoreError::BeingMade(id.into())),
        };
        let making = Self { folder, target, _lock: lock, finished: false };
        // Whoever held the lock a moment ago may have finished since the first look.
        if is_there(&making.target)? { Ok(Begun::There) } else { Ok(Begun::New(making)) }
    }

    /// The folder to make it in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it appear. The content of its files must be synced already, as far as it has to survive a power cut.
    pub(crate) fn finish(mut self) -> StoreResult<PathBuf> {
        let shelf = self.target.parent().expect("a thing stands on a shelf");
        let target = self.target.clone();
        fs::rename(&self.folder, &target).map_err(StoreError::io("create", &target))?;
        if let Err(error) = sync_folder(shelf) {
            // An error must mean that nothing was made. Best effort: the disk is failing under us.
            let _back = fs::rename(&target, &self.folder);
            return Err(StoreError::io("sync the folder", shelf)(error));
        }
        self.finished = true;
        Ok(target)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Err(error) = remove_tree(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "a half-made folder stays until the next sweep");
        }
    }
}

/// Makes a folder for root's eyes only, and those above it: disks hold password hashes and private keys.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes a folder disappear all at once, then removes what was in it. Gone already is well.
pub(crate) fn remove(target: &Path) -> StoreResult<()> {
    let (shelf, name) = (target.parent(), target.file_name());
    let (shelf, name) = shelf.zip(name).expect("a thing stands on a shelf and has a name");
    let removing = shelf.join(format!("{REMOVING}{}", name.to_string_lossy()));
    match fs::rename(target, &removing) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A leftover of an earlier removal of the same id is in the way.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            remove_tree(&removing).map_err(StoreError::io("remove", &removing))?;
            fs::rename(target, &removing).map_err(StoreError::io("remove", target))?;
        }
        Err(error) => return Err(StoreError::io("remove", target)(error)),
    }
    sync_folder(shelf).map_err(StoreError::io("sync the folder", shelf))?;
    remove_tree(&removing).map_err(StoreError::io("remove", &removing))
}

/// Removes what makers and removers that died have left on a shelf. Returns how many there were.
pub(crate) fn sweep(shelf: &Path) -> StoreResult<usize> {
    let entries = match fs::read_dir(shelf) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(StoreError::io("read the folder", shelf)(error)),
    };
    let mut swept = 0;
    for entry in entries {
        let entry = entry.map_err(StoreError::io("read the folder", shelf))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(MAKING) && !name.starts_with(REMOVING) {
            continue;
        }
        swept += usize::from(sweep_one(&entry.path())?);
    }
    Ok(swept)
}

/// Tells whether somebody is making `id` at this moment. What a maker of it that died has left is removed.
pub(crate) fn is_being_made(shelf: &Path, id: &str) -> StoreResult<bool> {
    let folder = shelf.join(format!("{MAKING}{id}"));
    Ok(!sweep_one(&folder)? && is_there(&folder)?)
}

/// Removes a folder of a maker or remover unless it is at work. Tells whether there was one to remove.
fn sweep_one(folder: &Path) -> StoreResult<bool> {
    let Some(_lock) = lock_if_idle(folder).map_err(StoreError::io("lock", folder))? else { return Ok(false) };
    remove_tree(folder).map_err(StoreError::io("remove the leftover", folder))?;
    tracing::info!(folder = %folder.display(), "removed what a dead process had left");
    Ok(true)
}

/// Writes a folder's names through to the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn is_there(path: &Path) -> StoreResult<bool> {
    path.try_exists().map_err(StoreError::io("look at", path))
}

/// Makes an empty folder and locks it; `None` while another process holds it.
fn make_locked(folder: &Path) -> io::Result<Option<File>> {
    loop {
        match DirBuilder::new().mode(0o755).create(folder) {
            Ok(()) => {}
            // A sweeper or another maker is at it, or its maker died since the sweep.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match lock_if_idle(folder)? {
                Some(_lock) => remove_tree(folder)?,
                None if folder.try_exists()? => return Ok(None),
                None => {}
            },
            Err(error) => return Err(error),
        }
        // Nobody makes anything in a folder that is ours, so whoever holds it is about to remove it, and we begin anew.
        if let Some(lock) = lock_when_idle(folder)? {
            return Ok(Some(lock));
        }
    }
}

/// Locks a folder unless somebody holds it, or it is gone or another one by now.
fn lock_if_idle(folder: &Path) -> io::Result<Option<File>> {
    let Some(file) = open_folder(folder)? else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => still_there(folder, file),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a folder as soon as nobody holds it, unless it is gone or another one by then.
fn lock_when_idle(folder: &Path) -> io::Result<Option<File>> {
    let Some(file) = open_folder(folder)? else { return Ok(None) };
    file.lock()?;
    still_there(folder, file)
}

fn open_folder(folder: &Path) -> io::Result<Option<File>> {
    match File::open(folder) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Between opening and locking, the folder may have been removed or renamed; the lock would then protect nothing.
fn still_there(folder: &Path, locked: File) -> io::Result<Option<File>> {
    let held = locked.metadata()?;
    match fs::metadata(folder) {
        Ok(now) => Ok((now.dev() == held.dev() && now.ino() == held.ino()).then_some(locked)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(shelf: &Path) -> Making {
        match Making::begin(shelf, "vol-1").unwrap() {
            Begun::New(making) => making,
            Begun::There => panic!("it is there"),
        }
    }

    fn names(shelf: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(shelf).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_thing_appears_when_it_is_finished() {
        let shelf = tempfile::tempdir().unwrap();
        let making = begin(shelf.path());
        fs::write(making.folder().join("file"), "content").unwrap();
        assert_eq!(names(shelf.path()), [".making-vol-1"]);
        let place = making.finish().unwrap();
        assert_eq!(names(shelf.path()), ["vol-1"]);
        assert_eq!(fs::read(place.join("file")).unwrap(), b"content");
        assert!(matches!(Making::begin(shelf.path(), "vol-1"), Ok(Begun::There)));
        assert_eq!(names(shelf.path()), ["vol-1"], "looking leaves nothing");
    }

    #[test]
    fn a_thing_that_is_not_finished_is_gone() {
        let shelf = tempfile::tempdir().unwrap();
        drop(begin(shelf.path()));
        assert!(names(shelf.path()).is_empty());
    }

    #[test]
    fn one_maker_at_a_time_and_sweeping_spares_it() {
        let shelf = tempfile::tempdir().unwrap();
        let making = begin(shelf.path());
        assert!(matches!(Making::begin(shelf.path(), "vol-1"), Err(StoreError::BeingMade(id)) if id == "vol-1"));
        assert_eq!(sweep(shelf.path()).unwrap(), 0);
        assert!(is_being_made(shelf.path(), "vol-1").unwrap());
        assert_eq!(names(shelf.path()), [".making-vol-1"]);
        drop(making);
        assert!(!is_being_made(shelf.path(), "vol-1").unwrap());
        drop(begin(shelf.path()));
    }

    #[test]
    fn leftovers_of_dead_processes_are_swept() {
        let shelf = tempfile::tempdir().unwrap();
        for left in [".making-vol-1", ".making-vol-2", ".removing-vol-3", "vol-4"] {
            fs::create_dir(shelf.path().join(left)).unwrap();
            fs::write(shelf.path().join(left).join("disk.raw"), "half").unwrap();
        }
        let making = begin(shelf.path());
        assert_eq!(fs::read_dir(making.folder()).unwrap().count(), 0, "nothing of the dead maker is taken over");
        drop(making);
        assert_eq!(names(shelf.path()), ["vol-4"]);
    }

    #[test]
    fn who_asks_whether_a_thing_is_being_made_clears_what_a_dead_maker_left() {
        let shelf = tempfile::tempdir().unwrap();
        for left in [".making-vol-1", ".making-vol-2"] {
            fs::create_dir(shelf.path().join(left)).unwrap();
        }
        assert!(!is_being_made(shelf.path(), "vol-1").unwrap());
        assert_eq!(names(shelf.path()), [".making-vol-2"]);
    }

    #[test]
    fn removing_twice_is_well_and_old_leftovers_do_not_matter() {
        let shelf = tempfile::tempdir().unwrap();
        let thing = shelf.path().join("vol-1");
        for left in ["vol-1", ".removing-vol-1"] {
            fs::create_dir(shelf.path().join(left)).unwrap();
            fs::write(shelf.path().join(left).join("disk.raw"), "").unwrap();
        }
        remove(&thing).unwrap();
        remove(&thing).unwrap();
        assert!(names(shelf.path()).is_empty());
    }

    #[test]
    fn makers_of_different_things_never_stand_in_each_others_way() {
        let shelf = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let shelf = shelf.path();
                scope.spawn(move || {
                    for m in 0..50 {
                        match Making::begin(shelf, &format!("vol-{n}-{m}")) {
                            Ok(Begun::New(making)) => drop(making),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn many_makers_and_sweepers_at_once_make_one_thing() {
        let shelf = tempfile::tempdir().unwrap();
        let finished = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            match Making::begin(shelf.path(), "vol-1") {
                                Ok(Begun::New(making)) => break making.finish().map(|_| 1).unwrap(),
                                Ok(Begun::There) => break 0,
                                Err(StoreError::BeingMade(_)) => std::thread::yield_now(),
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                    })
                })
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).sum::<i32>()
        });
        assert_eq!(finished, 1);
        assert_eq!(names(shelf.path()), ["vol-1"]);
    }
}
