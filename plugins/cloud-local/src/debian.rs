//! Making a Debian base image from the package archives that this machine uses.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use bake_core::{Architecture, Region};
use bake_linux::{HostCommand, HostError};

use crate::apt_sources::{self, Source};
use crate::bases::NewBase;
use crate::error::{StoreError, StoreResult, full_hint};
use crate::partition;
use crate::program::{Listener, Progress, blocking, run, run_aloud};
use crate::record::BaseRecord;
use crate::store::{Maker, Store};

/// A Debian base image to make.
#[derive(Clone, Debug)]
pub struct DebianOptions {
    /// The name the base image gets; `debian-SUITE` if not set.
    pub name: Option<String>,
    /// The release: `bookworm`.
    pub suite: String,
    /// What to start from.
    pub variant: Variant,
    /// Packages to add.
    pub include: Vec<String>,
    /// Size of the disk in bytes. It is sparse: what is not used takes no room.
    pub size: u64,
    /// Lines of a `sources.list` to use in place of this machine's.
    pub sources: Vec<String>,
}

/// How much of Debian is in the base image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Essential packages and apt.
    Apt,
    /// Those of priority `required` and apt: what a `minbase` of debootstrap has.
    #[default]
    MinBase,
}

impl DebianOptions {
    /// What Debian's own cloud images have: room for most packages, and nothing of it is taken before it is used.
    pub const DEFAULT_SIZE: u64 = 8 << 30;

    /// The smallest base image of a release, with the default size.
    pub fn new(suite: impl Into<String>) -> Self {
        Self {
            name: None,
            suite: suite.into(),
            variant: Variant::default(),
            include: Vec::new(),
            size: Self::DEFAULT_SIZE,
            sources: Vec::new(),
        }
    }
}

/// Half of it is what the smallest Debian takes.
const SMALLEST: u64 = 512 << 20;
/// ext4's largest file on the store's own disk.
const LARGEST: u64 = 16 << 40;

/// A slow mirror takes minutes, a dead one for ever.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(60 * 60);

impl Store {
    /// Makes a Debian base image: a GPT disk with one ext4 partition, the root.
    ///
    /// Nothing is mounted on this machine, and nothing of it gets into the image: no host name, no name server, no machine id,
    /// no package lists. Needs root, `mmdebstrap` and `mkfs.ext4`. Dropping the future ends the programs and removes
    /// everything; what a killed process leaves, the next one removes.
    pub async fn create_debian(
        &self,
        region: &Region,
        options: &DebianOptions,
        listen: Listener<'_>,
    ) -> StoreResult<BaseRecord> {
        check(options)?;
        let debian_architecture = debian_architecture().await?;
        let new = NewBase {
            name: options.name.clone().unwrap_or_else(|| format!("debian-{}", options.suite)),
            architecture: kernel_architecture(&debian_architecture),
            source: format!("debian {}", options.suite),
            checksum: None,
        };
        let sources = sources(options, &debian_architecture).await?;
        let proxies = apt_sources::proxies().await?;
        let draft = self.begin_base(region, &new, Maker::outside_runs()?)?;
        let root = draft.folder().join("root");

        listen(Progress::Doing("installing Debian"));
        bootstrap(options, &sources, &proxies, draft.folder(), &root, listen).await?;
        let cleaned = root.clone();
        blocking(move || forget_this_machine(&cleaned)).await?;

        listen(Progress::Doing("writing the disk"));
        write_disk(&root, &draft.disk(), options, &new.architecture).await?;
        let store = self.clone();
        blocking(move || {
            fs::remove_dir_all(&root).map_err(StoreError::io("remove", &root))?;
            draft.finish(&store)
        })
        .await
    }
}

fn check(options: &DebianOptions) -> StoreResult<()> {
    let refuse =
        |reason: String, hint: &str| StoreError::CannotCreate { reason, hint: Some(hint.into()), lines: Vec::new() };
    let legal = |c: char| c.is_ascii_alphanumeric() || "+-.:~".contains(c);
    let word = |text: &str| text.chars().all(legal) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !word(&options.suite) {
        return Err(refuse(format!("`{}` is no release of Debian", options.suite), "such as `--suite bookworm`"));
    }
    if let Some(package) = options.include.iter().find(|package| !word(package)) {
        return Err(refuse(format!("`{package}` is no name of a package"), "such as `--include curl`"));
    }
    if !(SMALLEST..=LARGEST).contains(&options.size) {
        let reason = format!("a disk of {} bytes is too small or too large", options.size);
        return Err(refuse(reason, "512MiB to 16TiB, such as `--size 8GiB`"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(refuse("only root can give files to other users".into(), "run it with `sudo`"));
    }
    Ok(())
}

async fn sources(options: &DebianOptions, architecture: &str) -> StoreResult<Vec<String>> {
    if !options.sources.is_empty() {
        return Ok(options.sources.clone());
    }
    let sources = apt_sources::for_suite(&options.suite, architecture).await?;
    Ok(sources.iter().map(Source::line).collect())
}

async fn debian_architecture() -> StoreResult<String> {
    let asked = HostCommand::new("dpkg").arg("--print-architecture").time_limit(Duration::from_secs(10));
    let output = run("ask dpkg for this machine's architecture", asked).await?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Debian's name of an architecture as the kernel says it.
fn kernel_architecture(debian: &str) -> Architecture {
    Architecture::new(match debian {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "armhf" => "armv7l",
        "i386" => "i686",
        "ppc64el" => "ppc64le",
        same => same,
    })
}

/// Installs Debian into a folder.
///
/// `mmdebstrap` mounts `/proc` and others inside it; they live in a mount namespace that ends with its last process. All of
/// its processes live in a PID namespace that ends with `unshare`, and that one ends with us, killed or not.
async fn bootstrap(
    options: &DebianOptions,
    sources: &[String],
    proxies: &str,
    scratch: &Path,
    root: &Path,
    listen: Listener<'_>,
) -> StoreResult<()> {
    let apt_conf = scratch.join("apt.conf");
    fs::write(&apt_conf, proxies).map_err(StoreError::io("write", &apt_conf))?;
    let mut command = HostCommand::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--uts",
            "--ipc",
            "--pid",
            "--mount-proc",
            "--fork",
            "--kill-child",
        ])
        .args(["mmdebstrap", "--mode=root", "--format=directory"])
        // Keys and certificates that packages generate name the machine they are made on.
        .arg("--setup-hook=hostname localhost")
        .arg(match options.variant {
            Variant::Apt => "--variant=apt",
            Variant::MinBase => "--variant=minbase",
        })
        .env("TMPDIR", scratch)
        .time_limit(BOOTSTRAP_LIMIT);
    if !proxies.is_empty() {
        command = command.arg("--aptopt").arg(&apt_conf);
    }
    if !options.include.is_empty() {
        command = command.arg(format!("--include={}", options.include.join(",")));
    }
    let command = command.arg(&options.suite).arg(root).args(sources);
    run_aloud("install Debian", command, listen).await.map_err(|error| explain(error, options, scratch))?;
    fs::remove_file(&apt_conf).map_err(StoreError::io("remove", &apt_conf))
}

/// Says what `mmdebstrap` stumbled over, in place of its command line and the last thing it happened to say.
fn explain(error: StoreError, options: &DebianOptions, scratch: &Path) -> StoreError {
    let StoreError::Program { source: HostError::Failed { stderr, .. }, .. } = &error else { return error };
    let lines: Vec<_> = stderr.lines().map(str::to_owned).collect();
    let Some(reason) = lines.iter().find_map(|line| line.strip_prefix("E: ")) else { return error };
    let hint = if stderr.contains("No space left on device") {
        Some(full_hint(scratch))
    } else if reason.contains("does not have a Release file") {
        Some(format!("is `{}` a release of Debian that the archives of this machine still have?", options.suite))
    } else if reason.starts_with("Unable to locate package") {
        Some("check the names behind `--include`".into())
    } else if reason.starts_with("Failed to fetch") {
        Some("check the network, and apt's proxy and sources on this machine".into())
    } else {
        None
    };
    StoreError::CannotCreate { reason: reason.trim_end_matches('.').into(), hint, lines }
}

/// Removes from a fresh root what came from this machine or says which machine it is.
fn forget_this_machine(root: &Path) -> StoreResult<()> {
    for path in [
        "etc/hostname",
        "etc/resolv.conf",
        "etc/machine-id",
        "var/lib/dbus/machine-id",
        "etc/apt/apt.conf.d/99mmdebstrap",
    ] {
        let path = root.join(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    // Empty: systemd then makes an id at the first boot, and there is something to bind a name server's address over.
    for path in ["etc/machine-id", "etc/resolv.conf"] {
        let path = root.join(path);
        File::create_new(&path).map_err(StoreError::io("create", &path))?;
    }
    for folder in ["var/lib/apt/lists", "var/cache/apt/archives"] {
        empty(&root.join(folder))?;
    }
    Ok(())
}

/// Removes the files of a folder; folders in it stay, empty.
fn empty(folder: &Path) -> StoreResult<()> {
    for entry in fs::read_dir(folder).map_err(StoreError::io("read the folder", folder))? {
        let entry = entry.map_err(StoreError::io("read the folder", folder))?;
        let path = entry.path();
        match entry.file_type().map_err(StoreError::io("look at", &path))?.is_dir() {
            true => empty(&path)?,
            false => fs::remove_file(&path).map_err(StoreError::io("remove", &path))?,
        }
    }
    Ok(())
}

/// Features that every kernel, GRUB and e2fsck since 2016 (Debian 9) can read.
///
/// Written out, beginning with `none`, since the defaults of this machine's `mkfs.ext4` may be newer than the release that
/// has to live with them, and since naming a feature to switch it off fails where it is not known yet.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,\
     large_file,huge_file,dir_nlink,extra_isize,metadata_csum";

/// The same for the releases before that.
const OLD_FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,sparse_super,\
     large_file,huge_file,dir_nlink,extra_isize";

const OLD_SUITES: [&str; 4] = ["lenny", "squeeze", "wheezy", "jessie"];

async fn write_disk(root: &Path, disk: &Path, options: &DebianOptions, architecture: &Architecture) -> StoreResult<()> {
    let (path, size, architecture) = (disk.to_owned(), options.size, architecture.clone());
    let range = blocking(move || {
        let mut file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(StoreError::io("create the disk", &path))?;
        file.set_len(size).map_err(StoreError::io("create the disk", &path))?;
        partition::write_root_partition(&mut file, &path, &architecture)
    })
    .await?;
    let features = if OLD_SUITES.contains(&options.suite.as_str()) { OLD_FEATURES } else { FEATURES };
    let zeroed = match mke2fs_knows_zeroed_disks().await? {
        true => "assume_storage_prezeroed=1",
        false => "lazy_itable_init=1,lazy_journal_init=1",
    };
    let command = HostCommand::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096", "-I", "256", "-O", features])
        .args(["-E", &format!("offset={},nodiscard,{zeroed}", range.start)])
        .arg("-d")
        .arg(root)
        .arg(disk)
        .arg(format!("{}k", (range.end - range.start) / 1024))
        .time_limit(BOOTSTRAP_LIMIT);
    run("make the root filesystem", command).await.map(drop)
}

/// Since 1.47 it can be told that a new disk is all zeros: tables and journal then cost nothing, now and at the first mount.
async fn mke2fs_knows_zeroed_disks() -> StoreResult<bool> {
    let asked = HostCommand::new("mkfs.ext4").arg("-V").time_limit(Duration::from_secs(10));
    let output = run("ask mkfs.ext4 for its version", asked).await?;
    Ok(mke2fs_version(&output.stderr).is_some_and(|version| version >= (1, 47)))
}

fn mke2fs_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().skip_while(|word| *word != "mke2fs").nth(1)?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{lacks, message};

    #[test]
    fn the_version_of_mke2fs_is_read() {
        let text = "mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0";
        assert_eq!(mke2fs_version(text), Some((1, 47)));
        assert_eq!(mke2fs_version("mke2fs 1.46.5 (30-Dec-2021)"), Some((1, 46)));
        assert_eq!(mke2fs_version("mke2fs 2"), None);
        assert_eq!(mke2fs_version(""), None);
    }

    #[test]
    fn options_that_are_no_words_never_reach_a_command_line() {
        let refused = |change: fn(&mut DebianOptions)| {
            let mut options = DebianOptions::new("bookworm");
            change(&mut options);
            message(&check(&options).unwrap_err())
        };
        insta::assert_snapshot!(refused(|options| options.suite = "--help".into()), @"
        cannot make a base image: `--help` is no release of Debian
        hint: such as `--suite bookworm`
        ");
        insta::assert_snapshot!(refused(|options| options.include = vec!["curl".into(), "a b".into()]), @"
        cannot make a base image: `a b` is no name of a package
        hint: such as `--include curl`
        ");
        insta::assert_snapshot!(refused(|options| options.size = 1 << 20), @"
        cannot make a base image: a disk of 1048576 bytes is too small or too large
        hint: 512MiB to 16TiB, such as `--size 8GiB`
        ");
    }

    #[test]
    fn what_mmdebstrap_stumbled_over_is_said_first() {
        use std::os::unix::process::ExitStatusExt;
        let said = |stderr: &str| {
            let status = std::process::ExitStatus::from_raw(25 << 8);
            let source = HostError::Failed { command: "mmdebstrap …".into(), status, stderr: stderr.into() };
            let error = StoreError::Program { action: "install Debian", source };
            message(&explain(error, &DebianOptions::new("bogus"), Path::new("/store")))
        };
        let no_release =
            "Reading package lists...\nE: The repository 'http://x bogus Release' does not have a Release file.";
        insta::assert_snapshot!(said(no_release), @"
        cannot make a base image: The repository 'http://x bogus Release' does not have a Release file
          Reading package lists...
          E: The repository 'http://x bogus Release' does not have a Release file.
        hint: is `bogus` a release of Debian that the archives of this machine still have?
        ");
        insta::assert_snapshot!(said("E: Unable to locate package nonesuch\nE: mmdebstrap failed to run"), @"
        cannot make a base image: Unable to locate package nonesuch
          E: Unable to locate package nonesuch
          E: mmdebstrap failed to run
        hint: check the names behind `--include`
        ");
        insta::assert_snapshot!(said("E: Write error - write (28: No space left on device)"), @"
        cannot make a base image: Write error - write (28: No space left on device)
          E: Write error - write (28: No space left on device)
        hint: free some space on the disk of `/store`, or keep the store on a larger one with `--state-dir`
        ");
        assert!(said("unshare: unshare failed: Operation not permitted").contains("Operation not permitted"));
    }

    #[test]
    fn a_fresh_root_forgets_where_it_was_made() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "this machine").unwrap();
        };
        for path in
            ["etc/hostname", "etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/apt.conf.d/70debconf"]
        {
            write(path);
        }
        for path in ["var/lib/apt/lists/partial/x", "var/lib/apt/lists/x", "var/cache/apt/archives/x.deb"] {
            write(path);
        }
        forget_this_machine(root.path()).unwrap();
        let content = |path: &str| fs::read_to_string(root.path().join(path)).ok();
        assert_eq!(content("etc/hostname"), None);
        assert_eq!(content("etc/resolv.conf").as_deref(), Some(""));
        assert_eq!(content("etc/machine-id").as_deref(), Some(""));
        assert_eq!(content("etc/apt/apt.conf.d/99mmdebstrap"), None);
        assert!(content("etc/apt/apt.conf.d/70debconf").is_some());
        assert_eq!(fs::read_dir(root.path().join("var/lib/apt/lists")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(root.path().join("var/cache/apt/archives")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_tree_becomes_a_disk_with_one_partition() {
        if lacks("mkfs.ext4") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (root, disk) = (folder.path().join("root"), folder.path().join("disk.raw"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "content").unwrap();
        write_disk(&root, &disk, &DebianOptions::new("bookworm"), &Architecture::new("x86_64")).await.unwrap();
        let used = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&disk).unwrap()) * 512;
        assert!(used < 16 << 20, "{used} bytes of an empty disk are taken");
        // `debugfs` and `dumpe2fs` come with `mkfs.ext4`, and read at an offset.
        let shown = std::process::Command::new("debugfs")
            .args(["-R", "cat /file"])
            .arg(format!("{}?offset=1048576", disk.display()))
            .output()
            .unwrap();
        assert_eq!(shown.stdout, b"content", "{}", String::from_utf8_lossy(&shown.stderr));
        let about = std::process::Command::new("dumpe2fs")
            .arg("-h")
            .arg(format!("{}?offset=1048576", disk.display()))
            .output()
            .unwrap();
        let about = String::from_utf8_lossy(&about.stdout).into_owned();
        assert!(!about.contains("orphan_file") && !about.contains("metadata_csum_seed"), "{about}");
        assert!(about.contains("metadata_csum"), "{about}");
    }
}
