use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Deb;
use crate::run::{or_panic, run};

/// A folder of packages with the indexes that apt reads, not signed.
#[derive(Debug, Clone)]
pub struct Repository {
    folder: PathBuf,
}

impl Repository {
    /// Makes a repository of these packages in the folder, which is made if it is missing.
    #[track_caller]
    pub fn create(folder: &Path, packages: &[Deb]) -> Self {
        or_panic(Self::try_create(folder, packages).context("cannot make a repository"))
    }

    pub(crate) fn try_create(folder: &Path, packages: &[Deb]) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        for package in packages {
            package.try_write(folder)?;
        }
        let repository = Self::open(folder);
        repository.try_index()?;
        Ok(repository)
    }

    /// Takes a folder that is a repository already.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Adds a package, or a new version of one.
    #[track_caller]
    pub fn add(&self, package: &Deb) {
        package.write(&self.folder);
        or_panic(self.try_index());
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the line for `sources.list`, for whoever sees the folder at its own path.
    pub fn source(&self) -> String {
        Self::source_at(&self.folder)
    }

    /// Returns the line for `sources.list`, for whoever sees the folder at another path.
    pub fn source_at(folder: &Path) -> String {
        format!("deb [trusted=yes] file:{} ./", folder.display())
    }

    /// Returns the file of one version of a package.
    #[track_caller]
    pub fn file(&self, name: &str, version: &str) -> PathBuf {
        let start = format!("{name}_{version}_");
        let files = fs::read_dir(&self.folder).expect("a repository is a folder");
        let found = files.flatten().find(|file| file.file_name().to_string_lossy().starts_with(&start));
        found.unwrap_or_else(|| panic!("`{}` has no {name} {version}", self.folder.display())).path()
    }

    fn try_index(&self) -> Result<()> {
        let ftparchive = |what: &str| run(Command::new("apt-ftparchive").args([what, "."]).current_dir(&self.folder));
        let packages = ftparchive("packages")?;
        ensure!(!packages.is_empty(), "no package in `{}`", self.folder.display());
        let _ = fs::remove_file(self.folder.join("Release")); // else it would list itself
        fs::write(self.folder.join("Packages"), packages).context("cannot write `Packages`")?;
        run(Command::new("gzip").args(["--force", "--keep", "--no-name", "Packages"]).current_dir(&self.folder))?;
        fs::write(self.folder.join("Release"), ftparchive("release")?).context("cannot write `Release`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs;

    #[test]
    fn a_repository_lists_its_packages_and_takes_new_ones() {
        needs!(fixtures());
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::create(&folder.path().join("repository"), &[Deb::new("a-bake", "1:1.0")]);
        let index = || fs::read_to_string(repository.folder().join("Packages")).unwrap();
        assert!(index().contains("Version: 1:1.0\n") && index().contains("Filename: ./a-bake_1.0_all.deb\n"));

        repository.add(&Deb::new("a-bake", "1:2.0"));
        assert!(index().contains("Version: 1:1.0\n") && index().contains("Version: 1:2.0\n"));
        assert!(repository.file("a-bake", "2.0").ends_with("a-bake_2.0_all.deb"));
        let release = fs::read_to_string(repository.folder().join("Release")).unwrap();
        assert!(release.contains(" Packages.gz\n") && !release.contains(" Release\n"), "{release}");
    }

    #[test]
    fn the_source_line_is_for_a_flat_trusted_folder() {
        assert_eq!(Repository::open(Path::new("/srv/debs")).source(), "deb [trusted=yes] file:/srv/debs ./");
    }
}
