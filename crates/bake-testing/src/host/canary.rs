use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Settings of the kernel that belong to the whole machine.
const SETTINGS: [&str; 7] = [
    "kernel/core_pattern",
    "kernel/hostname",
    "kernel/domainname",
    "kernel/panic",
    "kernel/sysrq",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
];

/// Files of every host that a careless bake would change.
const FILES: [&str; 7] = [
    "/etc/fstab",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/usr/sbin/policy-rc.d",
];

/// How the host was before a bake; [`assert_unchanged`](Canary::assert_unchanged) compares.
///
/// Watched are mounts, kernel settings with the hostname, the nodes in `/dev` and some files. Loop devices are not,
/// since tests that run at the same time rightly have some: ask [`Leftovers`](super::Leftovers) for yours.
#[derive(Debug)]
pub struct Canary {
    files: Vec<PathBuf>,
    before: BTreeSet<String>,
}

impl Default for Canary {
    fn default() -> Self {
        Self::new()
    }
}

impl Canary {
    /// Remembers how the host is now.
    pub fn new() -> Self {
        Self::watching([])
    }

    /// Remembers how the host is now, these files of it included.
    pub fn watching<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let files: Vec<_> = FILES.iter().map(PathBuf::from).chain(files.into_iter().map(Path::to_owned)).collect();
        let before = look(&files);
        Self { files, before }
    }

    /// Returns what differs now, a line each: `- ` as it was, `+ ` as it is; empty if nothing does.
    pub fn differences(&self) -> String {
        let now = look(&self.files);
        let mut text = String::new();
        for line in self.before.difference(&now) {
            writeln!(text, "- {line}").expect("a string takes all that is written");
        }
        for line in now.difference(&self.before) {
            writeln!(text, "+ {line}").expect("a string takes all that is written");
        }
        text
    }

    /// Ends the test if anything differs.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let differences = self.differences();
        assert!(differences.is_empty(), "the host was changed:\n{differences}");
    }
}

fn look(files: &[PathBuf]) -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let mounts = mounts.lines().map(|line| format!("mount {line}"));
    let settings =
        SETTINGS.iter().map(|name| format!("setting {name} = {}", content(&Path::new("/proc/sys").join(name))));
    let files = files.iter().map(|path| format!("file {} {}", path.display(), file_state(path)));
    mounts.chain(settings).chain(devices()).chain(files).collect()
}

/// Nodes directly in `/dev`, with mode and owner: binding one into a root exposes it to that root's `chmod`.
fn devices() -> Vec<String> {
    let nodes = fs::read_dir("/dev").into_iter().flatten().flatten();
    let named = nodes.map(|node| (node.file_name().to_string_lossy().into_owned(), node.path()));
    // Loop devices come and go with other tests.
    let lasting = named.filter(|(name, _)| !name.starts_with("loop"));
    lasting.map(|(name, path)| format!("device {name} {}", owner_and_mode(&path))).collect()
}

fn owner_and_mode(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(data) => format!("{}:{} {:o}", data.uid(), data.gid(), data.mode()),
        Err(error) => error.to_string(),
    }
}

fn file_state(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let digest: String = Sha256::digest(&bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{} {} bytes, sha256 {digest}…", owner_and_mode(path), bytes.len())
        }
        Err(error) => error.to_string(),
    }
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_left_alone_is_unchanged() {
        Canary::new().assert_unchanged();
    }

    #[test]
    fn a_changed_file_is_shown_before_and_after() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("canary");
        fs::write(&file, "alive").unwrap();
        let canary = Canary::watching([file.as_path()]);
        assert_eq!(canary.differences(), "");

        fs::write(&file, "dead!").unwrap();
        let differences = canary.differences();
        assert!(differences.starts_with(&format!("- file {}", file.display())), "{differences}");
        assert!(differences.contains(&format!("\n+ file {}", file.display())), "{differences}");

        fs::remove_file(&file).unwrap();
        assert!(canary.differences().contains("No such file"), "{}", canary.differences());
    }
}
