//! Looking into disks, with the kernel's and the host's tools only: the code under test has no part in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde::Deserialize;

use crate::run::{or_panic, pause, run};

/// Far longer than any program takes to start; whoever is busy then forgot to close something.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Mounts the only filesystem of the disk, read-only, and shows it to `look`. Needs root and loop devices.
///
/// The mount is seen by the calling test alone, and ends with it, even if it panics or is killed. A filesystem that was not
/// cleanly unmounted does not mount: a baked image may not need a repair.
#[track_caller]
pub fn inspect<T: Send>(disk: &Path, look: impl FnOnce(&ImageRoot) -> T + Send) -> T {
    or_panic(only_filesystem(disk).and_then(|found| {
        let kind = found.kind.clone();
        mounted(disk, &found, Access::ReadOnly, move |path| {
            look(&ImageRoot { path: path.to_owned(), filesystem: kind })
        })
    }))
}

/// Checks the only filesystem of the disk without changing it, and ends the test if anything is wrong with it.
#[track_caller]
pub fn check(disk: &Path) {
    or_panic(try_check(disk));
}

/// The file tree of an image. Paths are looked up inside: absolute links lead to the image's own files.
#[derive(Debug)]
pub struct ImageRoot {
    path: PathBuf,
    filesystem: String,
}

/// A package, as the image's own database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageState {
    /// Its version, with the epoch.
    pub version: String,
    /// Three words: what is wanted, whether there was an error, what is: `install ok installed`.
    pub status: String,
}

impl PackageState {
    /// Tells whether it is all there.
    pub fn is_installed(&self) -> bool {
        self.status.ends_with(" ok installed")
    }
}

impl ImageRoot {
    /// Returns where the tree is mounted, for the thread that looks and the programs it runs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of the filesystem: `ext4`, `xfs`.
    pub fn filesystem(&self) -> &str {
        &self.filesystem
    }

    /// Returns what the file holds, links followed.
    #[track_caller]
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        or_panic(self.read(path))
    }

    /// Returns what the file holds as text.
    #[track_caller]
    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap_or_else(|error| panic!("`{path}` is not text: {error}"))
    }

    /// Tells whether there is anything at the path, links not followed at its end.
    pub fn has(&self, path: &str) -> bool {
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        let Some(name) = Path::new(path).file_name() else { return true };
        let Ok(folder) = self.open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY) else { return false };
        openat2(&folder, name, OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)).is_ok()
    }

    /// Returns all paths of the tree, sorted, each beginning with `/`.
    #[track_caller]
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        or_panic(walk(&self.path, &self.path, &mut paths));
        paths.sort();
        paths
    }

    /// Returns the packages of the dpkg database by name.
    #[track_caller]
    pub fn packages(&self) -> BTreeMap<String, PackageState> {
        packages_of(&self.text("/var/lib/dpkg/status"))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = self.open(Path::new(path), OFlag::O_RDONLY)?;
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read `{path}` of the image"))?;
        Ok(bytes)
    }

    fn open(&self, path: &Path, flags: OFlag) -> Result<File> {
        let root = File::open(&self.path).context("cannot open the root of the image")?;
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let file =
            openat2(root.as_fd(), path, how).with_context(|| format!("the image has no `{}`", path.display()))?;
        Ok(file.into())
    }
}

/// A filesystem on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filesystem {
    pub(crate) kind: String,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// Finds the filesystem of a disk, on it or in one of its partitions.
pub(crate) fn only_filesystem(disk: &Path) -> Result<Filesystem> {
    let mut found = filesystems(disk)?;
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => bail!("`{}` has no filesystem", disk.display()),
        (Some(_), more) => bail!("`{}` has {} filesystems", disk.display(), more + 1),
    }
}

fn filesystems(disk: &Path) -> Result<Vec<Filesystem>> {
    let size = fs::metadata(disk).with_context(|| format!("no disk `{}`", disk.display()))?.len();
    let places = partitions(disk)?.unwrap_or_else(|| vec![(0, size)]);
    let found = places.into_iter().filter_map(|(offset, size)| {
        let kind = probe(disk, offset, size)?;
        Some(Filesystem { kind, offset, size })
    });
    Ok(found.collect())
}

#[derive(Deserialize)]
struct Dump {
    partitiontable: TableDump,
}

#[derive(Deserialize)]
struct TableDump {
    #[serde(default)]
    partitions: Vec<PartitionDump>,
}

#[derive(Deserialize)]
struct PartitionDump {
    start: u64,
    size: u64,
}

/// The partitions in bytes, or nothing if the disk has no table.
fn partitions(disk: &Path) -> Result<Option<Vec<(u64, u64)>>> {
    let Ok(text) = run(Command::new("sfdisk").arg("--json").arg(disk)) else { return Ok(None) };
    let dump: Dump = serde_json::from_str(&text).context("`sfdisk --json` prints something else")?;
    // It counts in sectors of a disk file, which are always 512 bytes.
    Ok(Some(dump.partitiontable.partitions.iter().map(|found| (found.start * 512, found.size * 512)).collect()))
}

fn probe(disk: &Path, offset: u64, size: u64) -> Option<String> {
    let place = ["-O", &offset.to_string(), "-S", &size.to_string()];
    let found =
        run(Command::new("blkid").args(["-p", "-u", "filesystem", "-s", "TYPE", "-o", "value"]).args(place).arg(disk));
    found.ok().map(|kind| kind.trim().to_owned()).filter(|kind| !kind.is_empty())
}

fn try_check(disk: &Path) -> Result<()> {
    let found = only_filesystem(disk)?;
    if found.kind == "ext4" {
        let place = format!("{}?offset={}", disk.display(), found.offset);
        return run(Command::new("e2fsck").args(["-f", "-n", &place])).map(drop);
    }
    // The checkers of other filesystems want a file to themselves.
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let alone = folder.path().join("filesystem");
    let place = [format!("skip={}", found.offset), format!("count={}", found.size)];
    let mut copy = Command::new("dd");
    copy.arg(format!("if={}", disk.display())).arg(format!("of={}", alone.display())).args(place);
    run(copy.args(["iflag=skip_bytes,count_bytes", "conv=sparse", "bs=1M", "status=none"]))?;
    match found.kind.as_str() {
        "xfs" => run(Command::new("xfs_repair").args(["-n", "-f"]).arg(&alone)).map(drop),
        other => bail!("no checker is known for {other}"),
    }
}

/// Mounts the filesystem for `work` alone: in a thread with a mount namespace of its own, which ends with the thread, and
/// takes mount and loop device with it whatever happens.
pub(crate) fn mounted<T: Send>(
    disk: &Path,
    filesystem: &Filesystem,
    access: Access,
    work: impl FnOnce(&Path) -> T + Send,
) -> Result<T> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Only this thread leaves the host's mount namespace, and only programs that it starts follow it.
            unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace of our own")?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .context("cannot make the mounts private")?;
            let mounted = Mounted::new(disk, filesystem, access, folder.path())?;
            let value = work(mounted.0);
            mounted.end()?;
            Ok(value)
        });
        thread.join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The end of the namespace would unmount as well, but a moment after the thread: a test that then counts loop devices
/// would find one.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(disk: &Path, filesystem: &Filesystem, access: Access, at: &'a Path) -> Result<Self> {
        let Filesystem { kind, offset, size } = filesystem;
        let access = match access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        // All copies of a disk have the same id, and xfs refuses to mount two of them, but for this.
        let nouuid = if kind == "xfs" { ",nouuid" } else { "" };
        let options = format!("{access},loop,offset={offset},sizelimit={size}{nouuid}");
        run(Command::new("mount").args(["--no-mtab", "--types", kind, "--options", &options]).args([disk, at]))?;
        Ok(Self(at))
    }

    fn end(self) -> Result<()> {
        let at = self.0;
        std::mem::forget(self);
        unmount(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // While a panic unwinds; the namespace's end is the net.
        unmount(self.0).ok();
    }
}

/// It may be busy for a moment: a program that another thread is starting has our open files, too, until it runs.
fn unmount(at: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match umount2(at, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) if start.elapsed() < BUSY_LIMIT => pause(),
            ended => return ended.context("somebody still looks at the disk"),
        }
    }
}

fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
        let entry = entry.context("cannot list a folder")?;
        let path = entry.path();
        let inside = path.strip_prefix(root).expect("it lies below the root");
        paths.push(format!("/{}", inside.to_string_lossy()));
        if entry.file_type().context("cannot tell what a file is")?.is_dir() {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

fn packages_of(status: &str) -> BTreeMap<String, PackageState> {
    let stanzas = status.split("\n\n").filter(|stanza| !stanza.trim().is_empty());
    let packages = stanzas.map(|stanza| {
        let field = |name: &str| {
            let value = stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim().to_owned()
        };
        (field("Package"), PackageState { version: field("Version"), status: field("Status") })
    });
    packages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DiskOptions, disk};
    use crate::host::{Canary, Leftovers};
    use crate::needs;

    #[test]
    fn a_status_file_is_read_with_its_epochs() {
        let packages = packages_of(
            "Package: a\nStatus: install ok installed\nVersion: 1:2.0-3\nDescription: x\n Version: of nothing\n\n\
             Package: b\nStatus: install ok unpacked\nVersion: 1\n\n",
        );
        assert_eq!(packages.len(), 2);
        assert_eq!(packages["a"], PackageState { version: "1:2.0-3".into(), status: "install ok installed".into() });
        assert!(packages["a"].is_installed() && !packages["b"].is_installed());
    }

    #[test]
    fn paths_are_looked_up_inside() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |path: &str| folder.path().join(path);
        fs::create_dir_all(inside("etc")).unwrap();
        fs::write(inside("etc/name"), "inside").unwrap();
        std::os::unix::fs::symlink("/etc/name", inside("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../../etc/name", inside("etc/upward")).unwrap();
        std::os::unix::fs::symlink("/nowhere", inside("dangling")).unwrap();
        let root = ImageRoot { path: folder.path().to_owned(), filesystem: "none".into() };
        assert_eq!(root.text("/absolute"), "inside");
        assert_eq!(root.text("/etc/upward"), "inside");
        assert!(root.has("/dangling") && root.has("/etc") && root.has("/"));
        assert!(!root.has("/etc/passwd") && !root.has("/nowhere/name"));
        assert_eq!(root.paths(), ["/absolute", "/dangling", "/etc", "/etc/name", "/etc/upward"]);
    }

    #[test]
    fn a_disk_is_shown_to_the_test_alone_and_nothing_is_left() {
        needs!(loops(), fixtures());
        let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
        let file = folder.path().join("disk");
        crate::copy_disk(&disk(&DiskOptions::default()), &file);
        let leftovers = Leftovers::of(folder.path());
        let paths = inspect(&file, |root| {
            assert!(!leftovers.find().is_empty());
            assert!(canary.differences().is_empty(), "the mount is seen outside");
            assert!(fs::write(root.path().join("new"), "").is_err(), "it can be written to");
            root.paths()
        });
        leftovers.wait_gone(BUSY_LIMIT);
        assert!(paths.contains(&"/usr/bin/apt-get".to_owned()));
    }

    #[test]
    fn nothing_is_left_when_the_test_fails_while_looking() {
        needs!(loops(), fixtures());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        crate::copy_disk(&disk(&DiskOptions::default()), &file);
        let failed = std::panic::catch_unwind(|| inspect(&file, |root| root.text("/no/such/file")));
        let message = *failed.unwrap_err().downcast::<String>().unwrap();
        assert!(message.starts_with("the image has no `/no/such/file`"), "{message}");
        Leftovers::of(folder.path()).wait_gone(BUSY_LIMIT);
    }

    #[test]
    fn damage_is_found() {
        needs!(root(), fixtures());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        crate::copy_disk(&disk(&DiskOptions::default()), &file);
        let found = only_filesystem(&file).unwrap();
        try_check(&file).unwrap();
        let place = format!("{}?offset={}", file.display(), found.offset);
        run(Command::new("debugfs").args(["-w", "-R", "clri /etc/passwd", &place])).unwrap();
        try_check(&file).unwrap_err();
    }

    #[test]
    fn what_is_no_disk_is_told() {
        needs!(fixtures());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        let text = format!("{:#}", only_filesystem(&file).unwrap_err());
        assert_eq!(text, format!("`{}` has no filesystem", file.display()));
    }
}
