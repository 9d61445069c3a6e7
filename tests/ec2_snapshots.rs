//! Snapshots uploaded and downloaded without a bake.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use aws_double::Delays;
use bake_testing::needs;

use crate::ec2::{ACCOUNT, Cloud, HOME, THERE};

const MIB: u64 = 1 << 20;

/// A disk of 48 MiB: data, a hole, and a little behind it.
fn disk(cloud: &Cloud) -> PathBuf {
    let path = cloud.house.path().join("disk.raw");
    let file = File::create(&path).expect("a file");
    file.set_len(48 * MIB).expect("room");
    let bytes: Vec<u8> = (0..16 * MIB).map(|n| (n * 31 % 251) as u8).collect();
    file.write_all_at(&bytes, 0).expect("room");
    file.write_all_at(b"the end", 48 * MIB - 7).expect("room");
    path
}

fn puts(cloud: &Cloud) -> usize {
    cloud.double.requests().iter().filter(|call| call.operation == "PutSnapshotBlock" && call.outcome == "200").count()
}

/// The id that an upload prints.
fn id(stdout: &str) -> String {
    let words: Vec<_> = stdout.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[2]), (HOME, ACCOUNT, "snapshot"), "{stdout}");
    words[3].to_owned()
}

#[test]
fn a_disk_comes_back_as_it_was_and_only_changes_are_sent_again() {
    needs!(fixtures());
    let cloud = Cloud::new();
    let (disk, copy) = (disk(&cloud), cloud.house.path().join("copy.raw"));
    let (from, to) = (disk.to_str().unwrap(), copy.to_str().unwrap());
    let first = cloud.run(&["snapshot", "upload", from, "--tag", "Team=red", "--description", "a disk"]);
    let first = id(&first.succeeds().stdout);
    assert_eq!(puts(&cloud), 33, "holes are not sent");
    let snapshots = cloud.double.snapshots(ACCOUNT, HOME);
    let snapshot = snapshots.iter().find(|one| one.id == first).unwrap();
    assert_eq!((snapshot.tags["Team"].as_str(), snapshot.size, snapshot.state().0), ("red", 1, "completed"));

    File::options().write(true).open(&disk).unwrap().write_all_at(b"changed", 5 * MIB).unwrap();
    let second = cloud.run(&["snapshot", "upload", from, "--parent", &first, "--format", "json"]);
    let second: serde_json::Value = serde_json::from_str(&second.succeeds().stdout).unwrap();
    assert_eq!((second["blocks_sent"].as_u64(), puts(&cloud)), (Some(1), 34));
    assert!(cloud.double.requests().iter().all(|call| call.operation != "GetSnapshotBlock"), "the digests are known");

    cloud.run(&["snapshot", "download", second["id"].as_str().unwrap(), to]).succeeds();
    let (wanted, there) = (fs::read(&disk).unwrap(), fs::read(&copy).unwrap());
    assert_eq!(there.len(), 1 << 30);
    assert!(there.starts_with(&wanted));
    let zeros = vec![0; MIB as usize];
    assert!(there[wanted.len()..].chunks(zeros.len()).all(|chunk| *chunk == zeros), "the rest of the volume is empty");
    cloud.run(&["snapshot", "download", &first, to]).ends_with(20).tells("is there already");
    let left: Vec<_> = fs::read_dir(cloud.house.path().join("state/ec2/uploads")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_upload_that_was_killed_goes_on() {
    needs!(fixtures());
    let cloud = Cloud::new();
    let disk = disk(&cloud);
    let words = ["snapshot", "upload", disk.to_str().unwrap()];
    cloud.double.set_delays(Delays { put: Duration::from_millis(300), ..Delays::default() });
    let mut upload = cloud.command(&words).spawn().expect("`bake` starts");
    while puts(&cloud) < 5 {
        std::thread::yield_now();
    }
    upload.kill().unwrap();
    upload.wait().unwrap();
    cloud.double.set_delays(Delays::default());
    let before = cloud.double.snapshots(ACCOUNT, HOME).len();
    let done = cloud.run(&words);
    let id = id(&done.succeeds().stdout);
    let snapshots = cloud.double.snapshots(ACCOUNT, HOME);
    assert_eq!(snapshots.len(), before, "the snapshot that was begun is gone on with");
    let to = cloud.house.path().join("there.raw");
    cloud.double.write_snapshot(HOME, &id, &to).unwrap();
    assert!(fs::read(&to).unwrap().starts_with(&fs::read(&disk).unwrap()));
}

#[test]
fn mistakes_are_told_before_anything_is_made() {
    needs!(fixtures());
    let cloud = Cloud::new();
    let before = cloud.double.requests().len();
    cloud.run(&["snapshot", "upload", "disk.raw", "--tag", "Team"]).ends_with(2).tells("write `--tag KEY=VALUE`");
    assert_eq!(cloud.double.requests().len(), before);
    cloud.run(&["snapshot", "upload", "no-such.raw"]).ends_with(20).tells("cannot read the disk `no-such.raw`");
    let said = cloud.run(&["snapshot", "download", "snap-0123456789abcdef0", "to.raw", "--region", THERE]);
    said.ends_with(20).tells("snap-0123456789abcdef0");
    assert!(cloud.double.snapshots(ACCOUNT, THERE).is_empty());
}
