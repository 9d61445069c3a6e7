//! What the user asks to be installed, taken apart before anything is touched.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One package that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageSpec {
    /// A name for the package manager to look up, with the version where one was given after `=`.
    Name {
        /// The name.
        name: String,
        /// The exact version, epoch and revision included.
        version: Option<String>,
    },
    /// A package file on this machine.
    File {
        /// Its absolute path.
        path: PathBuf,
    },
}

impl std::fmt::Display for PackageSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name { name, version: Some(version) } => write!(f, "{name}={version}"),
            Self::Name { name, version: None } => f.write_str(name),
            Self::File { path } => write!(f, "{}", path.display()),
        }
    }
}

/// A package request that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nothing to install.
    #[error("no package was named")]
    Nothing,
    /// A character that no package name has; it would reach the package manager as something else.
    #[error("`{spec}` is no package name: {reason}")]
    BadName {
        /// As written.
        spec: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file that is not there, or cannot be read.
    #[error("cannot read the package file `{path}`")]
    NoFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something that cannot be fetched yet.
    #[error("`{spec}` is an address; this version installs names and local files only")]
    Address {
        /// As written.
        spec: String,
    },
    /// A file whose first bytes are not those of a package.
    #[error("`{path}` is not a Debian package")]
    NotAPackage {
        /// The file.
        path: PathBuf,
    },
    /// Several packages, and none was said to name the image.
    #[error("{count} packages were named, and none of them was said to name the image")]
    NoMain {
        /// How many.
        count: usize,
    },
    /// One package was asked for twice, perhaps in two versions.
    #[error("`{name}` was named twice")]
    Twice {
        /// Which one.
        name: String,
    },
    /// The one that should name the image is not among them.
    #[error("`{main}` should name the image, but it is not among the packages to install: {packages}")]
    UnknownMain {
        /// As written.
        main: String,
        /// What is to be installed.
        packages: String,
    },
}

impl RequestError {
    /// Returns what the user can do, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoMain { .. } => Some("say which one with `--main NAME`".into()),
            Self::BadName { spec, .. } if spec.ends_with(".deb") || spec.ends_with(".rpm") => {
                Some(format!("a package file is written with its path: `./{spec}`"))
            }
            Self::Address { .. } => Some("download it first, then give its path".into()),
            Self::NotAPackage { .. } => {
                Some("a download that failed often leaves a web page under the package's name".into())
            }
            _ => None,
        }
    }
}

/// Everything that was asked for, and which of it names the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageRequest {
    /// In the order of the command line.
    pub packages: Vec<PackageSpec>,
    /// Index into `packages` of the one that names the image.
    pub main: usize,
}

impl PackageRequest {
    /// Reads package specs as they stand on a command line.
    ///
    /// A spec that holds a `/`, or ends in `.deb` or `.rpm` and is a file here, is a local file: it is looked at now, so
    /// that a typo costs a second and not a bake. `main` may be left out where there is one package.
    pub fn parse(specs: &[String], main: Option<&str>, folder: &Path) -> Result<Self, RequestError> {
        let packages = specs.iter().map(|spec| parse_spec(spec, folder)).collect::<Result<Vec<_>, _>>()?;
        if let Some(twice) = named_twice(&packages) {
            return Err(RequestError::Twice { name: twice.into() });
        }
        let main = match (main, packages.len()) {
            (_, 0) => return Err(RequestError::Nothing),
            (None, 1) => 0,
            (None, count) => return Err(RequestError::NoMain { count }),
            (Some(wanted), _) => specs
                .iter()
                .zip(&packages)
                .position(|(spec, parsed)| spec == wanted || is_named(parsed, wanted))
                .ok_or_else(|| RequestError::UnknownMain { main: wanted.into(), packages: specs.join(" ") })?,
        };
        Ok(Self { packages, main })
    }

    /// Returns the words of the request, for titles and messages.
    pub fn title(&self) -> String {
        self.packages.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

fn named_twice(packages: &[PackageSpec]) -> Option<&str> {
    let mut seen = std::collections::BTreeSet::new();
    let mut names = packages.iter().filter_map(|spec| match spec {
        PackageSpec::Name { name, .. } => Some(name.as_str()),
        PackageSpec::File { path } => path.to_str(),
    });
    names.find(|name| !seen.insert(*name))
}

/// Tells whether a package is meant by a name: its own, or for a file its name on disk, `NAME_VERSION_ARCHITECTURE.deb` by
/// custom.
fn is_named(spec: &PackageSpec, wanted: &str) -> bool {
    match spec {
        PackageSpec::Name { name, .. } => name == wanted,
        PackageSpec::File { path } => {
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            file == wanted || file.split('_').next() == Some(wanted)
        }
    }
}

fn parse_spec(spec: &str, folder: &Path) -> Result<PackageSpec, RequestError> {
    if spec.contains("://") {
        return Err(RequestError::Address { spec: spec.into() });
    }
    let looks_like_file = spec.ends_with(".deb") || spec.ends_with(".rpm");
    if spec.contains('/') || (looks_like_file && folder.join(spec).is_file()) {
        return parse_file(&folder.join(spec));
    }
    let (name, version) = match spec.split_once('=') {
        Some((name, version)) => (name, Some(version)),
        None => (spec, None),
    };
    let bad = |reason| Err(RequestError::BadName { spec: spec.into(), reason });
    // The rules of Debian policy 5.6.1 and 5.6.12, widened by what RPM names may hold. What matters here is that nothing
    // can be taken for an option, a pattern or a removal (`name-` and `name+` mean something to apt).
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return bad("a name begins with a letter or a digit");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "+-._:".contains(c)) {
        return bad("a name has letters, digits and `+-._` only");
    }
    if name.ends_with('-') {
        return bad("a trailing `-` tells apt to remove the package");
    }
    if looks_like_file {
        return bad("there is no such file here");
    }
    match version {
        Some("") => return bad("the version after `=` is missing"),
        Some(version) if !version.chars().all(|c| c.is_ascii_alphanumeric() || ".+-:~^_".contains(c)) => {
            return bad("a version has letters, digits and `.+-:~` only");
        }
        _ => {}
    }
    Ok(PackageSpec::Name { name: name.into(), version: version.map(Into::into) })
}

fn parse_file(path: &Path) -> Result<PackageSpec, RequestError> {
    use std::io::Read;
    let failed = |source| RequestError::NoFile { path: path.into(), source };
    let path = path.canonicalize().map_err(failed)?;
    let mut start = Vec::new();
    std::fs::File::open(&path).and_then(|file| file.take(8).read_to_end(&mut start)).map_err(failed)?;
    let is_deb = start == b"!<arch>\n"; // deb(5): an ar archive
    let is_rpm = start.starts_with(&[0xed, 0xab, 0xee, 0xdb]); // the lead's magic number
    if !is_deb && !is_rpm {
        return Err(RequestError::NotAPackage { path });
    }
    Ok(PackageSpec::File { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(specs: &[&str]) -> Result<PackageRequest, RequestError> {
        let specs: Vec<_> = specs.iter().map(ToString::to_string).collect();
        PackageRequest::parse(&specs, None, Path::new("/nowhere"))
    }

    fn name(name: &str, version: Option<&str>) -> PackageSpec {
        PackageSpec::Name { name: name.into(), version: version.map(Into::into) }
    }

    #[test]
    fn dashes_never_begin_a_version() {
        assert_eq!(parse(&["tgt-team-memcached"]).unwrap().packages, [name("tgt-team-memcached", None)]);
        assert_eq!(parse(&["foo=1:2.0~rc1+b2-3"]).unwrap().packages, [name("foo", Some("1:2.0~rc1+b2-3"))]);
        assert_eq!(parse(&["libstdc++6"]).unwrap().packages, [name("libstdc++6", None)]);
    }

    #[test]
    fn nothing_reaches_the_package_manager_as_an_option_or_a_removal() {
        for bad in ["-o", "--purge", "nginx-", "a b", "*", "foo=", "foo=1 2", "", "foo.deb", "./foo.deb"] {
            assert!(parse(&[bad]).is_err(), "`{bad}` was taken");
        }
    }

    #[test]
    fn a_lone_file_name_gets_the_path_as_a_hint() {
        let error = parse(&["foo_1.0_amd64.deb"]).unwrap_err();
        assert_eq!(error.hint().unwrap(), "a package file is written with its path: `./foo_1.0_amd64.deb`");
    }

    #[test]
    fn files_are_told_from_names_and_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("real_1.0_all.deb"), b"!<arch>\ndebian-binary").unwrap();
        std::fs::write(folder.path().join("page.deb"), b"<html>not found</html>").unwrap();
        let parse = |spec: &str| PackageRequest::parse(&[spec.to_owned()], None, folder.path());
        for spec in ["real_1.0_all.deb", "./real_1.0_all.deb"] {
            assert!(matches!(&parse(spec).unwrap().packages[0], PackageSpec::File { path } if path.is_absolute()));
        }
        assert!(matches!(parse("./page.deb"), Err(RequestError::NotAPackage { .. })));
    }

    #[test]
    fn a_package_is_asked_for_once() {
        assert!(matches!(parse(&["a", "a=1"]), Err(RequestError::Twice { name }) if name == "a"));
    }

    #[test]
    fn a_file_names_the_image_by_its_packages_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine_1.0_all.deb"), b"!<arch>\n").unwrap();
        let specs = ["a".to_owned(), "./mine_1.0_all.deb".to_owned()];
        for main in ["mine", "mine_1.0_all.deb", "./mine_1.0_all.deb"] {
            assert_eq!(PackageRequest::parse(&specs, Some(main), folder.path()).unwrap().main, 1, "{main}");
        }
    }

    #[test]
    fn which_package_names_the_image_is_said_and_not_guessed() {
        assert!(matches!(parse(&["a", "b"]), Err(RequestError::NoMain { count: 2 })));
        let specs = ["a".to_owned(), "b=1".to_owned()];
        let request = PackageRequest::parse(&specs, Some("b"), Path::new("/")).unwrap();
        assert_eq!(request.main, 1);
        assert!(matches!(
            PackageRequest::parse(&specs, Some("c"), Path::new("/")),
            Err(RequestError::UnknownMain { .. })
        ));
    }
}
