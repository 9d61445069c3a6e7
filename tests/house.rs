//! A place to bake in: a folder with an own state, a base image, and an environment that needs no network.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bake_testing::base::{DiskOptions, disk};
use bake_testing::host::{Canary, Leftovers};
use bake_testing::packages::{Repository, standard};
use tempfile::TempDir;

/// A folder to bake in. When the test ends it is removed, and the host must be as it was before.
pub(crate) struct House {
    folder: TempDir,
    environments: String,
    canary: Canary,
}

/// What a finished `bake` said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl House {
    /// A house with the standard packages and a base image `tiny` of 256 MiB.
    pub(crate) fn new() -> Self {
        Self::with(&standard(), &DiskOptions::default().size_mib(256))
    }

    /// A house with these packages and this disk as the base image.
    pub(crate) fn with(repository: &Repository, options: &DiskOptions) -> Self {
        let house = Self::empty(repository);
        let base = disk(options);
        let base = base.to_str().expect("fixtures have plain names");
        house.run(&["base", "import", base, "--name", "tiny"]).succeeds();
        house
    }

    /// A house without a base image.
    pub(crate) fn empty(repository: &Repository) -> Self {
        let canary = Canary::new();
        let folder = tempfile::Builder::new().prefix("bake-house-").tempdir().expect("a temporary folder");
        let environments = format!(
            "test:\n  extends: local_apt_linux\n  plugins:\n    provisioner:\n      apt:\n        own_sources: false\n        \
             repositories: [\"{}\"]\ndefault: test\nstate_dir: {}\nrun_dir: {}\n",
            repository.source(),
            folder.path().join("state").display(),
            folder.path().join("run").display(),
        );
        std::fs::write(folder.path().join("environments.yaml"), &environments).expect("a new folder can be written to");
        Self { folder, environments, canary }
    }

    /// Changes the environments as this house had them when it was new.
    pub(crate) fn rewrite(&self, change: impl FnOnce(&str) -> String) {
        std::fs::write(self.path().join("environments.yaml"), change(&self.environments))
            .expect("the house can be written to");
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `bake` with these words, ready to start: its working directory is the house, and its environment is empty.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bake"));
        command.args(words).current_dir(self.path()).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        command
    }

    /// Runs `bake` to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words).output().expect("`bake` starts"))
    }

    /// Starts `bake` and lets it run.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("`bake` starts")
    }

    /// Runs lines of shell in the house, where what they mount is seen by them alone. `$1` is `bake`.
    pub(crate) fn script_in_own_mounts(&self, script: &str) -> Said {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_bake")]).current_dir(self.path());
        Said::of(command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().expect("`unshare` starts"))
    }

    /// Exports the only image and returns the disk file.
    pub(crate) fn export(&self, image: &str) -> PathBuf {
        let to = self.path().join(format!("{image}.raw"));
        let said = self.run(&["image", "export", image, "--format", "raw", "--to", to.to_str().expect("plain names")]);
        said.succeeds();
        to
    }

    /// Names what is on a shelf of the store: `volumes`, `snapshots`, `images`.
    pub(crate) fn shelf(&self, name: &str) -> Vec<String> {
        self.shelf_in("local", name)
    }

    /// The same of another region.
    pub(crate) fn shelf_in(&self, region: &str, name: &str) -> Vec<String> {
        let folder = self.path().join("state/store").join(region).join(name);
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// What of this house is mounted, attached or running.
    pub(crate) fn leftovers(&self) -> Leftovers {
        Leftovers::of(self.path())
    }

    /// Ends the test if anything of this house is still on the host, or anything of the host has changed.
    pub(crate) fn assert_clean(&self) {
        self.leftovers().assert_none();
        self.canary.assert_unchanged();
    }
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Ends the test unless the exit code is this one.
    #[track_caller]
    pub(crate) fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        self.ends_with(0)
    }

    /// Ends the test unless standard error holds this.
    #[track_caller]
    pub(crate) fn tells(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "`{text}` is not in stderr:\n{}", self.stderr);
        self
    }

    /// The fields of the only line on standard output: region, account, kind, id, name.
    #[track_caller]
    pub(crate) fn image(&self) -> [String; 5] {
        let lines: Vec<_> = self.stdout.lines().collect();
        assert_eq!(lines.len(), 1, "one image, one line: {lines:?}");
        let fields: Vec<_> = lines[0].split(' ').map(str::to_owned).collect();
        fields.try_into().expect("region account kind id name")
    }
}
