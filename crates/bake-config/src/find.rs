//! Which files there are to read.

use std::path::{Path, PathBuf};

/// The file's name in the working directory and above it, and in the folders.
const FILE_NAME: &str = "environments.yaml";

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// The machine's folder: `/etc/bake`.
    pub system: PathBuf,
    /// The user's folder: `~/.config/bake`.
    pub user: Option<PathBuf>,
    /// The search goes upwards from here.
    pub working_directory: PathBuf,
    /// `--config`: taken in place of what the search would find.
    pub explicit: Option<PathBuf>,
}

/// Finds the files that apply, weakest first. An explicit file is listed whether it is there or not: that it is missing
/// is for the reader to say.
pub fn find_files(places: &Places) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    let folders = [Some(&places.system), places.user.as_ref()];
    files.extend(folders.into_iter().flatten().map(|folder| folder.join(FILE_NAME)).filter(|file| file.is_file()));
    let nearest = places.explicit.clone().or_else(|| find_upwards(&places.working_directory));
    if let Some(file) = nearest {
        // A bake started inside the user's folder must not count that file twice.
        files.retain(|other| *other != file);
        files.push(file);
    }
    files
}

fn find_upwards(from: &Path) -> Option<PathBuf> {
    from.ancestors().map(|folder| folder.join(FILE_NAME)).find(|file| file.is_file())
}
