use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{or_panic, run};

/// A Debian package to be made.
///
/// ```no_run
/// # let folder = std::path::Path::new("/tmp");
/// let file = bake_testing::packages::Deb::new("greeter", "2:1.0-1")
///     .depends("hello-bake (>= 1.0)")
///     .file("/usr/share/greeter/grüße", "hallo\n", 0o644)
///     .postinst("echo installed")
///     .write(folder);
/// ```
#[derive(Debug, Clone)]
pub struct Deb {
    name: String,
    version: String,
    architecture: String,
    fields: Vec<(String, String)>,
    scripts: Vec<(&'static str, String)>,
    conffiles: Vec<String>,
    files: Vec<(String, Vec<u8>, u32)>,
}

impl Deb {
    /// Describes an empty package, for all architectures. The version may have an epoch.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            architecture: "all".into(),
            fields: Vec::new(),
            scripts: Vec::new(),
            conffiles: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Sets the architecture.
    pub fn architecture(mut self, architecture: &str) -> Self {
        self.architecture = architecture.into();
        self
    }

    /// Sets the dependencies, as the control file has them.
    pub fn depends(self, dependencies: &str) -> Self {
        self.field("Depends", dependencies)
    }

    /// Adds a field to the control file.
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Sets what runs after the files are in place: lines of shell.
    pub fn postinst(self, lines: &str) -> Self {
        self.script("postinst", lines)
    }

    /// Sets what runs before the files are in place: lines of shell.
    pub fn preinst(self, lines: &str) -> Self {
        self.script("preinst", lines)
    }

    /// Sets what runs before the package is removed: lines of shell.
    pub fn prerm(self, lines: &str) -> Self {
        self.script("prerm", lines)
    }

    /// Adds a file with its mode. The path is absolute, and may have any characters but a line feed.
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>, mode: u32) -> Self {
        assert!(path.starts_with('/') && !path.contains('\n'), "not a path for a package: {path:?}");
        self.files.push((path.into(), content.as_ref().into(), mode));
        self
    }

    /// Adds a configuration file: one that dpkg asks about, if both sides changed it.
    pub fn conffile(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.conffiles.push(path.into());
        self.file(path, content, 0o644)
    }

    /// Returns the name of the file that [`write`](Self::write) makes. As everywhere in Debian, the epoch is not in it.
    pub fn file_name(&self) -> String {
        let version = self.version.split_once(':').map_or(self.version.as_str(), |(_epoch, rest)| rest);
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }

    /// Writes the package file into the folder, and returns its path.
    #[track_caller]
    pub fn write(&self, folder: &Path) -> PathBuf {
        or_panic(self.try_write(folder).with_context(|| format!("cannot make the package `{}`", self.name)))
    }

    pub(crate) fn try_write(&self, folder: &Path) -> Result<PathBuf> {
        let staging = tempfile::tempdir().context("no temporary folder")?;
        let tree = staging.path().join("tree");
        write_file(&tree, "/DEBIAN/control", self.control().as_bytes(), 0o644)?;
        for (name, lines) in &self.scripts {
            write_file(&tree, &format!("/DEBIAN/{name}"), format!("#!/bin/sh\nset -e\n{lines}\n").as_bytes(), 0o755)?;
        }
        if !self.conffiles.is_empty() {
            write_file(&tree, "/DEBIAN/conffiles", (self.conffiles.join("\n") + "\n").as_bytes(), 0o644)?;
        }
        for (path, content, mode) in &self.files {
            write_file(&tree, path, content, *mode)?;
        }
        let file = folder.join(self.file_name());
        // gzip: half the time of the default, and every dpkg can read it.
        let build = ["--build", "--root-owner-group", "-Zgzip", "-z1"];
        run(Command::new("dpkg-deb").args(build).args([&tree, &file]))?;
        Ok(file)
    }

    fn script(mut self, name: &'static str, lines: &str) -> Self {
        self.scripts.push((name, lines.into()));
        self
    }

    fn control(&self) -> String {
        let mut control = String::new();
        let fixed = [
            ("Package", self.name.as_str()),
            ("Version", &self.version),
            ("Architecture", &self.architecture),
            ("Maintainer", "bake tests <nobody@example.com>"),
            ("Description", "a package that tests bake with"),
        ];
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in fixed.into_iter().chain(own) {
            writeln!(control, "{name}: {value}").expect("a string takes all that is written");
        }
        control
    }
}

fn write_file(tree: &Path, path: &str, content: &[u8], mode: u32) -> Result<()> {
    let file = tree.join(path.trim_start_matches('/'));
    let folder = file.parent().expect("it lies in the tree");
    // dpkg-deb refuses a control folder that is closed, or open to all; whatever the umask, folders are 0755.
    let mut made = folder.to_owned();
    fs::create_dir_all(&made).with_context(|| format!("cannot make `{}`", made.display()))?;
    while made.starts_with(tree) {
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).context("cannot set a mode")?;
        made.pop();
    }
    fs::write(&file, content).with_context(|| format!("cannot write `{}`", file.display()))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).context("cannot set a mode")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs;

    fn dpkg_deb(arguments: &[&str], file: &Path) -> String {
        run(Command::new("dpkg-deb").args(arguments).arg(file)).unwrap()
    }

    #[test]
    fn a_package_has_all_that_was_asked_for() {
        needs!(fixtures());
        let folder = tempfile::tempdir().unwrap();
        let file = Deb::new("greeter", "2:1.0-1")
            .architecture("amd64")
            .depends("hello-bake (>= 1.0)")
            .preinst("echo pre")
            .postinst("echo post")
            .prerm("echo bye")
            .conffile("/etc/greeter.conf", "a=1\n")
            .file("/usr/share/greeter/grüße ☃ 世界", "hallo\n", 0o640)
            .file("/usr/bin/greet", "#!/bin/sh\n", 0o4755)
            .write(folder.path());
        assert_eq!(file.file_name().unwrap(), "greeter_1.0-1_amd64.deb");

        insta::assert_snapshot!(dpkg_deb(&["--field"], &file), @r"
        Package: greeter
        Version: 2:1.0-1
        Architecture: amd64
        Maintainer: bake tests <nobody@example.com>
        Description: a package that tests bake with
        Depends: hello-bake (>= 1.0)
        ");
        let contents = dpkg_deb(&["--contents"], &file);
        let file_line =
            |end: &str| contents.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{contents}"));
        assert!(file_line("./etc/greeter.conf").starts_with("-rw-r--r-- root/root"));
        assert!(file_line("./usr/bin/greet").starts_with("-rwsr-xr-x root/root"));
        assert!(contents.lines().any(|line| line.starts_with("-rw-r-----") && line.contains("share/greeter/gr")));

        let unpacked = folder.path().join("unpacked");
        run(Command::new("dpkg-deb").arg("-R").args([&file, &unpacked])).unwrap();
        assert_eq!(fs::read_to_string(unpacked.join("usr/share/greeter/grüße ☃ 世界")).unwrap(), "hallo\n");
        assert_eq!(fs::read_to_string(unpacked.join("DEBIAN/conffiles")).unwrap(), "/etc/greeter.conf\n");
        for (name, line) in [("preinst", "echo pre"), ("postinst", "echo post"), ("prerm", "echo bye")] {
            assert_eq!(
                fs::read_to_string(unpacked.join("DEBIAN").join(name)).unwrap(),
                format!("#!/bin/sh\nset -e\n{line}\n")
            );
        }
    }

    #[test]
    #[should_panic(expected = "cannot make the package `Bad Name`")]
    fn what_dpkg_refuses_is_told() {
        if crate::skip::fixtures().is_err() {
            panic!("cannot make the package `Bad Name`: skipped");
        }
        Deb::new("Bad Name", "1").write(tempfile::tempdir().unwrap().path());
    }
}
