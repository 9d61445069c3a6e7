//! Disks and roots to test with.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bake_linux::{OpenOptions, Root, RootPath, Sandbox, SandboxOptions};
use tempfile::TempDir;

/// Skips the test with a reason where it cannot run; in CI that is a failure.
macro_rules! needs_root {
    () => {
        if let Err(missing) = $crate::support::can_run() {
            assert!(std::env::var_os("CI").is_none(), "cannot run in CI: {missing}");
            eprintln!("skipped: {missing}");
            return;
        }
        $crate::use_sandbox();
    };
}
pub(crate) use needs_root;

pub(crate) fn can_run() -> Result<(), String> {
    bake_linux::preflight().map_err(|error| error.to_string())?;
    for tool in ["/usr/sbin/mkfs.ext4", "/usr/bin/busybox"] {
        fs::metadata(tool).map_err(|_| format!("`{tool}` is not installed"))?;
    }
    Ok(())
}

/// A disk image in a folder of its own.
pub(crate) struct Disk {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Disk {
    pub(crate) fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    /// Starts a sandbox and opens the disk in it.
    pub(crate) async fn root(&self, options: OpenOptions) -> Root {
        let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
        sandbox.open(self.open(), options).await.unwrap()
    }
}

/// Which table to make.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Table {
    Gpt,
    Mbr,
    None,
}

const MIB: u64 = 1 << 20;

/// Makes a disk with a small root of busybox, after `change` had its way with the tree.
pub(crate) fn disk_with(table: Table, size: u64, change: impl FnOnce(&Path)) -> Disk {
    let folder = tempfile::Builder::new().prefix("bake-test-").tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree);
    change(&tree);
    let path = folder.path().join("disk.img");
    let offset = if table == Table::None { 0 } else { MIB };
    File::create(&path).unwrap().set_len(size + 2 * offset).unwrap();
    let kind = match table {
        Table::Gpt => "label: gpt\nstart=1MiB, size=",
        Table::Mbr => "label: dos\nstart=1MiB, size=",
        Table::None => "",
    };
    if table != Table::None {
        feed("sfdisk", &["-q", path.to_str().unwrap()], &format!("{kind}{}MiB, type=linux\n", size / MIB));
    }
    let offset = format!("offset={offset}");
    let blocks = (size / 1024).to_string();
    tool(
        "mkfs.ext4",
        &["-q", "-F", "-b", "1024", "-E", &offset, "-d", tree.to_str().unwrap(), path.to_str().unwrap(), &blocks],
    );
    fs::remove_dir_all(&tree).unwrap();
    Disk { folder, path }
}

/// Makes a disk with a GPT and a small root.
pub(crate) fn disk() -> Disk {
    disk_with(Table::Gpt, 16 * MIB, |_| {})
}

fn make_tree(tree: &Path) {
    for folder in ["bin", "etc", "proc", "sys", "dev", "run", "tmp", "root", "usr/sbin", "var"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    fs::copy("/usr/bin/busybox", tree.join("bin/busybox")).unwrap();
    for applet in [
        "sh", "cat", "echo", "sleep", "id", "ls", "true", "false", "kill", "setsid", "dd", "sync", "mkdir", "rm",
        "stat", "chmod", "mount", "yes", "env", "pwd", "hostname", "ip", "touch", "ln", "readlink", "test", "grep",
        "head", "tr", "wc", "ps",
    ] {
        symlink("busybox", tree.join("bin").join(applet)).unwrap();
    }
    fs::write(tree.join("etc/hostname"), "image\n").unwrap();
    fs::write(tree.join("etc/resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
    fs::set_permissions(tree.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Runs a tool of the host.
pub(crate) fn tool(program: &str, arguments: &[&str]) {
    feed(program, arguments, "");
}

fn feed(program: &str, arguments: &[&str], input: &str) {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn path(path: &str) -> RootPath {
    RootPath::new(path).unwrap()
}

/// Runs a shell script in a root, and returns what it wrote; it must succeed.
pub(crate) async fn shell(root: &mut Root, script: &str) -> String {
    let mut output = Vec::new();
    let command = bake_linux::Command::new("sh").args(["-c", script]);
    let outcome = root.run(command, &mut output).await.unwrap();
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(outcome.success(), "{script}: {:?}: {output}", outcome.status);
    output
}

/// Returns the number of the loop device that a root is mounted from.
pub(crate) fn loop_number(root: &Root) -> u64 {
    let device = root.filesystem().device;
    (device & 0xff) | ((device >> 12) & !0xff)
}
