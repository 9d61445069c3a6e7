//! Which files of Aminator's there are.

use std::io;
use std::path::{Path, PathBuf};

use crate::site::FileKind;

/// A file of Aminator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is: its name says what is in it.
    pub path: PathBuf,
    /// What is in it.
    pub content: Vec<u8>,
}

/// Returns the files of Aminator's in a folder such as `/etc/aminator`, weakest first.
///
/// They are `environments.yml`, `aminator.yml`, `logging.yml`, and `aminator.plugins.KIND.NAME.yml` in the folder and in its
/// `plugins`, where they count more. A `.yaml` counts less than the `.yml` that Aminator reads.
///
/// # Errors
///
/// If the folder or a file cannot be read, or if no file of Aminator's is there.
pub fn find(folder: &Path) -> io::Result<Vec<Source>> {
    let mut paths = list(folder)?;
    paths.extend(match list(&folder.join("plugins")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    });
    if paths.is_empty() {
        let message =
            format!("no file of Aminator's is in `{}`: it would hold an `environments.yml`", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let read = |path: PathBuf| {
        let content = std::fs::read(&path).map_err(|error| cannot_read(&path, &error))?;
        Ok(Source { path, content })
    };
    paths.into_iter().map(read).collect()
}

/// The files of a folder that have a name of Aminator's, by name: `x.yaml` comes before `x.yml`.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| cannot_read(folder, &error)));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| FileKind::of(path).is_some() && path.is_file());
    paths.sort();
    Ok(paths)
}

fn cannot_read(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read `{}`: {error}", path.display()))
}
