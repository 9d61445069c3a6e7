//! Images that want to lead us astray, and images that are broken.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bake_linux::{OpenError, OpenOptions, Sandbox, SandboxOptions, SealError, SealOptions};

use crate::support::{Table, disk, disk_with, needs_root, path, tool};

const PLACES: [&str; 7] = ["proc", "sys", "dev", "run", "tmp", "etc", "usr/sbin"];

/// What is put in the place of a folder.
const TRICKS: [&str; 7] = ["absolute", "upward", "dangling", "loop", "file", "fifo", "missing"];

fn play(trick: &str, at: &Path, canary: &Path) {
    fs::remove_dir_all(at).unwrap();
    match trick {
        "absolute" => symlink(canary, at).unwrap(),
        "upward" => symlink(Path::new("../../../../../../..").join(canary.strip_prefix("/").unwrap()), at).unwrap(),
        "dangling" => symlink("/no/such/place", at).unwrap(),
        "loop" => symlink(at.file_name().unwrap(), at).unwrap(),
        "file" => fs::write(at, "file").unwrap(),
        "fifo" => tool("mkfifo", &[at.to_str().unwrap()]),
        "missing" => {}
        other => unreachable!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tricks_are_refused_or_harmless() {
    needs_root!();
    let canary = tempfile::tempdir().unwrap();
    fs::write(canary.path().join("resolv.conf"), "canary").unwrap();
    fs::write(canary.path().join("policy-rc.d"), "canary").unwrap();
    let mut cases = tokio::task::JoinSet::new();
    for place in PLACES {
        let canary = canary.path().to_owned();
        cases.spawn(async move {
            for trick in TRICKS {
                let disk = disk_with(Table::None, 8 << 20, |tree| play(trick, &tree.join(place), &canary));
                let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
                let options = OpenOptions {
                    resolv_conf: Some(b"ours".to_vec()),
                    block_service_starts: true,
                    ..Default::default()
                };
                match sandbox.open(disk.open(), options).await {
                    Ok(root) => drop(root.seal(SealOptions::default()).await.unwrap()),
                    Err(OpenError::Unusable { .. }) => assert_ne!(trick, "missing", "{place}"),
                    Err(error) => panic!("{place} {trick}: {error}"),
                }
            }
        });
    }
    cases.join_all().await;
    for name in ["resolv.conf", "policy-rc.d"] {
        assert_eq!(fs::read(canary.path().join(name)).unwrap(), b"canary");
    }
    assert_eq!(fs::read_dir(canary.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn a_damaged_filesystem_is_refused_and_left_as_it_is() {
    needs_root!();
    let disk = disk_with(Table::None, 16 << 20, |_| {});
    tool("debugfs", &["-w", "-R", "clri /etc/hostname", disk.path.to_str().unwrap()]);
    let before = fs::read(&disk.path).unwrap();
    let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
    let error = sandbox.open(disk.open(), OpenOptions::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("the filesystem is damaged; `e2fsck` says: "), "{error}");
    assert!(fs::read(&disk.path).unwrap() == before, "the damaged disk was changed");
}

#[tokio::test]
async fn a_disk_without_a_root_is_refused() {
    needs_root!();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 << 20).unwrap();
    let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
    let disk = fs::File::options().read(true).write(true).open(file.path()).unwrap();
    let error = sandbox.open(disk, OpenOptions::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "the disk has no ext4, xfs or btrfs filesystem");
}

#[tokio::test]
async fn a_superblock_that_lies_gets_the_kernels_words_or_the_checkers() {
    needs_root!();
    let disk = disk_with(Table::None, 16 << 20, |_| {});
    // More blocks than the disk has.
    let mut bytes = fs::read(&disk.path).unwrap();
    bytes[1024 + 4..1024 + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    fs::write(&disk.path, bytes).unwrap();
    let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
    let error = sandbox.open(disk.open(), OpenOptions::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Mount { .. }), "{error}");
}

#[tokio::test]
async fn a_holder_on_the_host_is_named() {
    needs_root!();
    let disk = disk();
    let root = disk.root(OpenOptions::default()).await;
    let inside = format!("/proc/{}/root/run/bake/sandbox/root/etc/hostname", root.sandbox().pid());
    let held = fs::File::open(inside).unwrap();
    let error = root.seal(SealOptions::default()).await.unwrap_err();
    drop(held);
    let SealError::Busy { holders } = &error else { panic!("{error}") };
    assert_eq!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [std::process::id()]);
    let message = error.to_string();
    assert!(message.starts_with("the volume is still in use by `"), "{message}");
    assert!(message.contains("on the host, file `"), "{message}");
}

#[tokio::test]
async fn our_own_open_file_is_named_too() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let held = root.open_file(&path("/etc/hostname")).await.unwrap();
    let holders = root.holders().await.unwrap();
    assert_eq!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [std::process::id()]);
    assert!(matches!(root.seal(SealOptions::default()).await, Err(SealError::Busy { .. })));
    drop(held);
}

#[tokio::test]
async fn a_copy_in_another_mount_namespace_is_not_overlooked() {
    needs_root!();
    let disk = disk();
    let root = disk.root(OpenOptions::default()).await;
    let sandbox = root.sandbox().pid().to_string();
    let mut copy = std::process::Command::new("nsenter")
        .args([
            "-t",
            &sandbox,
            "-m",
            "unshare",
            "-m",
            "--propagation",
            "unchanged",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(copy.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    let result = root.seal(SealOptions::default()).await;
    copy.kill().unwrap();
    copy.wait().unwrap();
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "the volume is still in use by somebody in another mount namespace");
}
