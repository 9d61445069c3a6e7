//! Finding an attached volume among the disks of a machine.

use std::collections::BTreeSet;
use std::time::Duration;

use bake_core::VolumeId;
use bake_engine::{Cancel, Class, StepContext, StepResult};
use host_disks::{DeviceName, Evidence, Found, NotFound, Sought, find, look};
use insta::assert_snapshot;

use crate::machine::{GIB, Machine};

fn sought(volume: &str, name: &str) -> Sought {
    let name = DeviceName::try_from(name.to_owned()).unwrap();
    Sought { volume: VolumeId::new(volume), size: 8 * GIB, name, before: BTreeSet::new() }
}

fn look_at(machine: &Machine, sought: &Sought) -> Result<(String, Evidence), NotFound> {
    look(machine.host().disks().unwrap(), sought).map(|found| (found.name, found.evidence))
}

async fn find_on(machine: &Machine, sought: &Sought, cancel: &Cancel) -> StepResult<Found> {
    find(&StepContext::detached("open", cancel), &machine.host(), sought, Duration::from_secs(60)).await
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

// B13: the volume attached as `sdg` is `nvme2n1`, because the disks answered in the opposite order.
#[test]
fn a_volume_is_found_by_its_serial_whatever_the_order() {
    let machine = Machine::new();
    machine.nvme("nvme0n1", "vol0root", 8 * GIB).nvme("nvme1n1", "vol0bbb", 8 * GIB).nvme(
        "nvme2n1",
        "vol0aaa",
        8 * GIB,
    );
    assert_eq!(look_at(&machine, &sought("vol-0bbb", "/dev/sdg")), Ok(("nvme1n1".into(), Evidence::Serial)));
    assert_eq!(look_at(&machine, &sought("vol-0aaa", "/dev/sdf")), Ok(("nvme2n1".into(), Evidence::Serial)));
}

// B13
#[test]
fn a_disk_whose_id_begins_like_the_volumes_is_not_it() {
    let machine = Machine::new();
    machine.nvme("nvme1n1", "vol0aaa1", 8 * GIB).nvme("nvme2n1", "AWS0aaa", 8 * GIB);
    assert!(look_at(&machine, &sought("vol-0aaa", "/dev/sdf")).is_err());
}

// B13: with several paths to a disk, the serial is the subsystem's or the controller's, whose number is not the disk's.
#[test]
fn a_serial_may_be_that_of_the_controller_that_has_the_disk() {
    let machine = Machine::new();
    machine.disk("nvme0n1", 8 * GIB).write("sys/class/nvme/nvme3/serial", "vol0aaa\n");
    machine.write("sys/class/nvme/nvme3/nvme0n1/size", "1\n").write("sys/class/nvme/nvme0/serial", "vol0bbb\n");
    assert_eq!(look_at(&machine, &sought("vol-0aaa", "/dev/sdf")), Ok(("nvme0n1".into(), Evidence::Serial)));
    assert!(look_at(&machine, &sought("vol-0bbb", "/dev/sdf")).is_err());
}

// B13: Xen calls `sdg` `xvdg`, or `xvdk` where the kernel keeps four letters.
#[test]
fn a_disk_of_xen_is_found_under_its_letter_or_four_further() {
    for name in ["xvdg", "xvdk"] {
        let machine = Machine::new();
        machine.disk("xvda", 8 * GIB).disk(name, 8 * GIB);
        let found = look_at(&machine, &sought("vol-1", "/dev/sdg"));
        assert_eq!(found, Ok((name.to_owned(), Evidence::XenName)));
    }
    let machine = Machine::new();
    machine.disk("xvdba", 8 * GIB).disk("xvdbe", 8 * GIB);
    assert_eq!(look_at(&machine, &sought("vol-1", "/dev/xvdba")), Ok(("xvdba".into(), Evidence::XenName)));
}

// B13: `xvdg` is the disk of what was attached as `sdc` here.
#[test]
fn the_size_tells_which_letter_of_xen_it_is() {
    let machine = Machine::new();
    machine.disk("xvdg", 100 * GIB).disk("xvdk", 8 * GIB);
    assert_eq!(look_at(&machine, &sought("vol-1", "/dev/sdg")), Ok(("xvdk".into(), Evidence::XenName)));
}

// B13
#[test]
fn a_disk_of_xen_that_was_there_before_is_not_it() {
    let machine = Machine::new();
    machine.disk("xvdg", 8 * GIB);
    let before = machine.host().disk_names().unwrap();
    let sought = Sought { before, ..sought("vol-1", "/dev/sdg") };
    assert!(look_at(&machine, &sought).is_err());
    machine.disk("xvdk", 8 * GIB);
    assert_eq!(look_at(&machine, &sought), Ok(("xvdk".into(), Evidence::XenName)));
}

// B13
#[test]
fn when_two_disks_might_be_it_none_is_taken() {
    let machine = Machine::new();
    machine.disk("xvdg", 8 * GIB).disk("xvdk", 8 * GIB);
    let error = look_at(&machine, &sought("vol-1", "/dev/sdg")).unwrap_err();
    assert_snapshot!(error, @"each of `xvdg`, `xvdk` might be it; there are `xvdg` (no serial, 8589934592 bytes), `xvdk` (no serial, 8589934592 bytes)");
}

// B13: it waits for a bounded time, and then says what there is.
#[tokio::test(start_paused = true)]
async fn a_disk_that_never_comes_ends_in_a_list_of_those_that_are_there() {
    let (machine, cancel) = (Machine::new(), Cancel::new());
    machine.nvme("nvme0n1", "vol0root", 8 * GIB).disk("xvdb", GIB);
    let error = find_on(&machine, &sought("vol-0aaa", "/dev/sdf"), &cancel).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let error = chain(&error);
    assert!(error.starts_with("waited 60s for the disk of `vol-0aaa`, attached as `/dev/sdf`"), "{error}");
    let list = "no disk is it; there are `nvme0n1` (serial `vol0root`, 8589934592 bytes), `xvdb` (no serial, 1073741824 bytes)";
    assert!(error.contains(list), "{error}");
}

// B13
#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_wait_for_a_disk() {
    let (machine, cancel) = (Machine::new(), Cancel::new());
    let sought = sought("vol-0aaa", "/dev/sdf");
    let (outcome, ()) = tokio::join!(find_on(&machine, &sought, &cancel), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cancel.raise();
    });
    assert_eq!(outcome.unwrap_err().class(), Class::Cancelled);
}

// B15: a base with a partition table. Its partitions have the disk's serial, and one may have the size that is looked for.
#[test]
fn a_partition_is_never_taken_for_a_disk() {
    let machine = Machine::new();
    machine.nvme("nvme1n1", "vol0aaa", 9 * GIB).partition("nvme1n1p1", 8 * GIB);
    machine.write("sys/block/nvme1n1p1/partition", "1\n").write("sys/block/nvme1n1p1/device/serial", "vol0aaa\n");
    machine.write("sys/block/nvme1n1p1/size", &format!("{}\n", 8 * GIB / 512));
    machine.disk("xvdf1", 8 * GIB).disk("xvdf", 9 * GIB);
    assert_eq!(machine.host().disk_names().unwrap(), BTreeSet::from(["nvme1n1".to_owned(), "xvdf".to_owned()]));
    assert!(look_at(&machine, &sought("vol-0aaa", "/dev/sdf")).is_err());
    let sought = Sought { size: 9 * GIB, ..sought("vol-0aaa", "/dev/sdf") };
    assert_eq!(look_at(&machine, &sought), Ok(("nvme1n1".into(), Evidence::Serial)));
}

// B15
#[test]
fn other_kinds_of_devices_are_not_looked_at() {
    let machine = Machine::new();
    for name in ["loop0", "dm-0", "sda", "nvme0c0n1", "nvme0", "xvd", "zram0"] {
        machine.disk(name, 8 * GIB);
    }
    assert!(machine.host().disks().unwrap().is_empty());
}

// B16: right after it was attached, the kernel may know no size, and nobody has made the node.
#[test]
fn a_disk_is_not_taken_before_it_has_its_size_and_its_node() {
    let machine = Machine::new();
    let sought = sought("vol-0aaa", "/dev/sdf");
    machine.write("sys/block/nvme1n1/device/serial", "vol0aaa\n").disk_without_node("nvme1n1", 0);
    let error = look_at(&machine, &sought).unwrap_err();
    assert_snapshot!(error.why, @"`nvme1n1` is not of 8589934592 bytes");
    machine.disk_without_node("nvme1n1", 8 * GIB);
    assert_snapshot!(look_at(&machine, &sought).unwrap_err().why, @"`nvme1n1` has no node in `/dev`");
    machine.disk("nvme1n1", 8 * GIB);
    assert!(look_at(&machine, &sought).is_ok());
}

// B16: missing right after it was attached, there, gone, and back under another name.
#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_and_goes_and_comes_back_is_found() {
    let (machine, cancel) = (Machine::new(), Cancel::new());
    let sought = sought("vol-0aaa", "/dev/sdf");
    let (found, ()) = tokio::join!(find_on(&machine, &sought, &cancel), async {
        let pause = || tokio::time::sleep(Duration::from_millis(5500));
        pause().await;
        machine.write("sys/block/nvme1n1/device/serial", "vol0aaa\n").disk("nvme1n1", 0);
        pause().await;
        machine.unplug("nvme1n1");
        pause().await;
        machine.nvme("nvme2n1", "vol0aaa", 8 * GIB);
    });
    let found = found.unwrap();
    assert_eq!((found.name.as_str(), found.evidence), ("nvme2n1", Evidence::Serial));
    assert!(found.path.ends_with("dev/nvme2n1"));
}

#[tokio::test]
async fn a_machine_that_shows_no_disks_is_told_at_once() {
    let (empty, cancel) = (tempfile::tempdir().unwrap(), Cancel::new());
    let host = host_disks::Host::at(empty.path());
    let cx = StepContext::detached("open", &cancel);
    let error = find(&cx, &host, &sought("vol-1", "/dev/sdf"), Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
    assert!(chain(&error).contains("sys/block"), "{}", chain(&error));
}
