//! Open, run, seal.

use std::fs;

use bake_linux::{Check, Command, FilesystemKind, OpenOptions, Sandbox, SandboxOptions, SealOptions, Trim};

use crate::support::{Table, disk, disk_with, loop_number, needs_root, path, shell, tool};

#[tokio::test]
async fn a_disk_is_opened_worked_on_and_sealed() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    assert_eq!((root.filesystem().kind, root.filesystem().partition), (FilesystemKind::Ext4, Some(1)));
    assert_eq!(shell(&mut root, "echo hello > /etc/greeting; id -u; pwd; hostname").await, "0\n/\nlocalhost\n");
    assert_eq!(root.read(&path("/etc/greeting")).await.unwrap(), b"hello\n");
    let sealed = root.seal(SealOptions::default()).await.unwrap();
    assert_eq!((sealed.ended.len(), &sealed.check), (0, &Check::Clean));

    let mut again = disk.root(OpenOptions::default()).await;
    assert_eq!(again.read(&path("/etc/greeting")).await.unwrap(), b"hello\n");
    again.abandon().await.unwrap();
}

#[tokio::test]
async fn every_table_works() {
    needs_root!();
    for table in [Table::Mbr, Table::None] {
        let disk = disk_with(table, 16 << 20, |_| {});
        let mut root = disk.root(OpenOptions::default()).await;
        assert_eq!(shell(&mut root, "cat /etc/hostname").await, "image\n");
        root.seal(SealOptions::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sandboxes_work_at_once() {
    needs_root!();
    let mut bakes = tokio::task::JoinSet::new();
    for number in 0..6 {
        bakes.spawn(async move {
            let disk = disk();
            let mut root = disk.root(OpenOptions::default()).await;
            shell(&mut root, &format!("echo {number} > /etc/number; sleep 0.1")).await;
            root.seal(SealOptions::default()).await.unwrap();
            let mut root = disk.root(OpenOptions::default()).await;
            assert_eq!(shell(&mut root, "cat /etc/number").await, format!("{number}\n"));
            root.abandon().await.unwrap();
        });
    }
    bakes.join_all().await;
}

#[tokio::test]
async fn a_sealed_disk_has_data_only_where_files_are() {
    needs_root!();
    let disk = disk_with(Table::Gpt, 64 << 20, |_| {});
    let mut root = disk.root(OpenOptions::default()).await;
    shell(
        &mut root,
        "dd if=/dev/urandom of=/big bs=1M count=30 && rm /big && dd if=/dev/urandom of=/kept bs=1k count=1",
    )
    .await;
    let sealed = root.seal(SealOptions { trim: Trim::FreeBlocks }).await.unwrap();
    let data: u64 = sealed.data_ranges().map(|range| range.unwrap()).map(|range| range.end - range.start).sum();
    assert!(data < 12 << 20, "{data} bytes of data");
    let written = std::io::Write::write(&mut sealed.into_file(), b"x");
    assert!(written.is_err(), "the sealed disk can be written");
}

#[tokio::test]
async fn two_clones_of_an_xfs_work_at_once() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::File::create(&one).unwrap().set_len(320 << 20).unwrap();
    tool("mkfs.xfs", &["-q", "-L", "root", one.to_str().unwrap()]);
    let open = |path| fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    bake_linux::copy::clone_file(&open(&one), &open(&two)).unwrap();

    let mut roots = Vec::new();
    for path in [&one, &two] {
        let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
        roots.push(sandbox.open(open(path), OpenOptions::default()).await.unwrap());
    }
    for mut root in roots {
        assert_eq!((root.filesystem().kind, root.filesystem().label.as_str()), (FilesystemKind::Xfs, "root"));
        // An empty filesystem: what is mounted on is made, and gone afterwards.
        root.bind(fs::File::open("/usr/bin/busybox").unwrap().into(), &path("/busybox")).await.unwrap();
        let command = Command::new("/busybox").args(["touch", "/made"]);
        assert!(root.run(command, &mut Vec::new()).await.unwrap().success());
        assert_eq!(root.seal(SealOptions::default()).await.unwrap().check, Check::Clean);
    }
    let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
    let mut root = sandbox.open(open(&one), OpenOptions::default()).await.unwrap();
    let made = root.metadata(&path("/made")).await.unwrap();
    assert!(made.is_some());
    assert!(!root.exists(&path("/busybox")).await.unwrap());
    root.abandon().await.unwrap();
}

/// As an attached volume is: then the loop device lies over the whole block device.
#[tokio::test]
async fn a_block_device_is_a_disk_too() {
    needs_root!();
    let disk = disk();
    let attached = attach(&disk.path);
    let open = || fs::File::options().read(true).write(true).open(&attached.0).unwrap();
    let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
    let mut root = sandbox.open(open(), OpenOptions::default()).await.unwrap();
    shell(&mut root, "echo hello > /etc/greeting").await;
    let sealed = root.seal(SealOptions::default()).await.unwrap();
    let ranges: Vec<_> = sealed.data_ranges().map(|range| range.unwrap()).collect();
    assert_eq!(ranges, Vec::from_iter([std::ops::Range { start: 0, end: 18 << 20 }]));
    drop((sealed, attached));
    let mut root = disk.root(OpenOptions::default()).await;
    assert_eq!(root.read(&path("/etc/greeting")).await.unwrap(), b"hello\n");
    root.abandon().await.unwrap();
}

/// A loop device of the host, detached when dropped.
struct Attached(String);

fn attach(disk: &std::path::Path) -> Attached {
    let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(disk).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Attached(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test]
async fn the_device_is_locked_against_udev() {
    needs_root!();
    let disk = disk();
    let root = disk.root(OpenOptions::default()).await;
    let device = fs::File::open(format!("/dev/loop{}", loop_number(&root))).unwrap();
    assert!(matches!(device.try_lock(), Err(fs::TryLockError::WouldBlock)));
    drop(device);
    root.seal(SealOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_be_the_sandbox_is_told_so() {
    // Does not say that it can; so this works without root too.
    let error = Sandbox::start(SandboxOptions::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this program cannot become a sandbox: `main` must begin with `bake_linux::enter_if_sandbox()`"
    );
}
