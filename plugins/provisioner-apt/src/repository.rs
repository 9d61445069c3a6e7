//! A line of `sources.list`, so far as a bake must understand it: whether its packages lie in a folder of the host.

use std::path::{Path, PathBuf};

use crate::AptError;

/// A repository for this bake only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `deb [options]`.
    start: String,
    address: Address,
    /// Suite and components.
    rest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Folder(PathBuf),
    Elsewhere(String),
}

impl Repository {
    /// Takes a one-line source apart (sources.list(5): `deb [options] uri suite [components]`).
    pub(crate) fn parse(line: &str) -> Result<Self, AptError> {
        let bad = |reason| AptError::Repository { line: line.into(), reason };
        if line.contains('\n') {
            return Err(bad("it must be one line"));
        }
        let after_kind = line.trim().strip_prefix("deb ").ok_or_else(|| bad("it must begin with `deb `"))?.trim_start();
        let (options, rest) = match after_kind.strip_prefix('[') {
            None => ("", after_kind),
            Some(_) => {
                let end = after_kind.find(']').ok_or_else(|| bad("the `[` of its options is not closed"))?;
                (&after_kind[..=end], after_kind[end + 1..].trim_start())
            }
        };
        let (address, rest) = rest.split_once(' ').ok_or_else(|| bad("an address and a suite must follow"))?;
        let address = match address.strip_prefix("file:").or_else(|| address.strip_prefix("copy:")) {
            None => Address::Elsewhere(address.into()),
            Some(path) => {
                let path = Path::new(path.strip_prefix("//").unwrap_or(path));
                if !path.is_absolute() {
                    return Err(bad("the path after `file:` must be absolute"));
                }
                Address::Folder(path.into())
            }
        };
        Ok(Self { start: format!("deb {options}").trim_end().into(), address, rest: rest.trim().into() })
    }

    /// The folder of the host that must be shown inside the root.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.address {
            Address::Folder(path) => Some(path),
            Address::Elsewhere(_) => None,
        }
    }

    /// The line for the root's apt, with the folder at the place where it is shown.
    pub(crate) fn line(&self, place: &str) -> String {
        match &self.address {
            Address::Folder(_) => format!("{} file:{place} {}", self.start, self.rest),
            Address::Elsewhere(address) => format!("{} {address} {}", self.start, self.rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_moved_and_addresses_stay() {
        let folder = Repository::parse("deb [trusted=yes] file:/srv/my-repo ./").unwrap();
        assert_eq!(folder.folder(), Some(Path::new("/srv/my-repo")));
        assert_eq!(folder.line("/run/0"), "deb [trusted=yes] file:/run/0 ./");
        assert_eq!(Repository::parse("deb file:///srv/r ./").unwrap().folder(), Some(Path::new("/srv/r")));
        let far = Repository::parse("deb https://example.org/debian bookworm main contrib").unwrap();
        assert_eq!(far.line("/run/0"), "deb https://example.org/debian bookworm main contrib");
    }

    #[test]
    fn what_is_no_repository_is_refused() {
        for bad in [
            "",
            "deb",
            "rpm http://x y",
            "deb [trusted=yes http://x ./",
            "deb http://x",
            "deb file:r ./",
            "deb http://x y\ndeb z",
        ] {
            assert!(Repository::parse(bad).is_err(), "`{bad}` was taken");
        }
    }
}
