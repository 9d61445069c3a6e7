//! Paths inside an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

/// An absolute path inside an image, without `..`. It is looked up in the image, never on the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RootPath(OsString);

/// A path that is not one inside an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not an absolute path without `..`")]
pub struct RootPathError {
    path: String,
}

impl RootPath {
    /// Checks a path. Doubled slashes and `.` are taken out; `..` is refused, for what it means depends on links.
    pub fn new(path: impl AsRef<Path>) -> Result<RootPath, RootPathError> {
        let path = path.as_ref();
        let refuse = || RootPathError { path: path.display().to_string() };
        if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
            return Err(refuse());
        }
        let mut clean = Vec::new();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    clean.push(b'/');
                    clean.extend_from_slice(name.as_bytes());
                }
                Component::ParentDir | Component::Prefix(_) => return Err(refuse()),
            }
        }
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(RootPath(OsString::from_vec(clean)))
    }

    /// Returns the image's root folder.
    pub fn root() -> RootPath {
        RootPath(OsString::from("/"))
    }

    /// Returns the absolute path, as a command inside sees it.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Returns the folder that holds this path; `None` for the root.
    pub fn parent(&self) -> Option<RootPath> {
        self.as_path().parent().map(|parent| RootPath(parent.as_os_str().to_owned()))
    }

    /// Returns the last name; `None` for the root.
    pub fn file_name(&self) -> Option<&OsStr> {
        self.as_path().file_name()
    }

    /// Appends a relative path.
    pub fn join(&self, below: impl AsRef<Path>) -> Result<RootPath, RootPathError> {
        let below = below.as_ref();
        if below.is_absolute() {
            return Err(RootPathError { path: below.display().to_string() });
        }
        RootPath::new(self.as_path().join(below))
    }

    /// Returns the path as the kernel wants it below a descriptor of the root.
    pub(crate) fn relative(&self) -> &Path {
        let relative = self.as_path().strip_prefix("/").expect("made absolute by `new`");
        if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
    }
}

impl std::str::FromStr for RootPath {
    type Err = RootPathError;

    fn from_str(path: &str) -> Result<RootPath, RootPathError> {
        RootPath::new(path)
    }
}

impl std::fmt::Display for RootPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().display().fmt(f)
    }
}

impl std::fmt::Debug for RootPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_plain() {
        let path = RootPath::new("//etc/./apt//sources.list").unwrap();
        assert_eq!(path.as_path(), Path::new("/etc/apt/sources.list"));
        assert_eq!(path.relative(), Path::new("etc/apt/sources.list"));
        assert_eq!(path.parent().unwrap().as_path(), Path::new("/etc/apt"));
    }

    #[test]
    fn the_root_is_a_path_too() {
        assert_eq!(RootPath::new("/").unwrap(), RootPath::root());
        assert_eq!(RootPath::root().relative(), Path::new("."));
        assert_eq!(RootPath::root().parent(), None);
    }

    #[test]
    fn what_could_mean_something_else_is_refused() {
        for path in ["", "etc", "../etc", "/etc/../..", "/etc/\0"] {
            assert!(RootPath::new(path).is_err(), "{path:?}");
        }
        assert!(RootPath::root().join("/etc").is_err());
        assert!(RootPath::root().join("../etc").is_err());
        assert_eq!(RootPath::root().join("etc").unwrap().as_path(), Path::new("/etc"));
    }
}
