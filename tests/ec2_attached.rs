//! Bakes on an instance: on a volume that is attached to it, as a real block device.

use std::time::Duration;

use aws_double::{Delays, Fault, FaultKind, Kernel};
use bake_testing::needs;

use crate::ec2::{ACCOUNT, Cloud, HOME};

#[track_caller]
fn assert_no_volume(cloud: &Cloud) {
    let volumes = cloud.double.volumes(ACCOUNT, HOME);
    assert!(volumes.is_empty(), "{volumes:?}");
    cloud.house.assert_clean();
}

/// Bakes once on an instance with such a kernel.
fn bakes(kernel: Kernel) -> Cloud {
    let cloud = Cloud::on_an_instance(kernel);
    let said = cloud.run(&["hello-dep"]);
    let [region, account, kind, id, _] = said.succeeds().image();
    assert_eq!([region.as_str(), &account, &kind], [HOME, ACCOUNT, "ebs"]);
    let images = cloud.images(HOME);
    let [image] = &images[..] else { panic!("{images:?}") };
    assert_eq!((&image.id, image.state()), (&id, "available"));
    assert!(cloud.has_package(HOME, image, "hello-dep"));
    let snapshots = cloud.double.snapshots(ACCOUNT, HOME);
    let snapshot = snapshots.iter().find(|one| one.id == image.disks[0].snapshot).expect("it is the account's");
    assert!(snapshot.volume.starts_with("vol-0"), "{} is of no volume", snapshot.volume);
    assert_eq!(snapshot.tags["appversion"], "hello-dep-1.0-0");
    assert_no_volume(&cloud);
    cloud
}

#[test]
fn an_ami_is_made_of_an_attached_volume() {
    needs!(root(), loops(), fixtures());
    let cloud = bakes(Kernel::Nvme);
    let calls = cloud.double.requests();
    assert!(calls.iter().all(|call| call.service != "ebs"), "EC2 itself copies the bytes");
    // At the end it is looked whether the volume is gone.
    let well = ["200", "DryRunOperation", "InvalidVolume.NotFound"];
    let gone = |call: &&aws_double::Request| !well.contains(&call.outcome.as_str());
    let refused: Vec<_> = calls.iter().filter(gone).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn an_ami_is_made_although_everything_takes_its_time() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::on_an_instance(Kernel::Nvme);
    let time = Duration::from_millis(300);
    cloud.double.set_delays(Delays {
        volume: time,
        attach: time,
        detach: time,
        snapshot: time,
        image: time,
        visibility: time / 3,
        ..Delays::default()
    });
    cloud.run(&["hello-bake"]).succeeds();
    assert_no_volume(&cloud);
}

#[test]
fn an_ami_is_made_on_kernels_that_call_disks_otherwise() {
    needs!(root(), loops(), fixtures());
    bakes(Kernel::Xen);
    bakes(Kernel::XenShifted);
}

// B14: two bakes at once do not take the same name, and each finds its own disk.
#[test]
fn bakes_at_the_same_time_have_volumes_of_their_own() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::on_an_instance(Kernel::Nvme);
    let packages = ["hello-dep", "hello-bake"];
    let start = |package: &str| {
        let mut command = cloud.command(&["--name", package, package]);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("`bake` starts")
    };
    let running = packages.map(start);
    for bake in running {
        let output = bake.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let images = cloud.images(HOME);
    assert_eq!(images.len(), 2);
    for image in &images {
        let dep = image.name.starts_with("hello-dep");
        assert_eq!(cloud.has_package(HOME, image, "hello-dep"), dep, "{}", image.name);
    }
    assert_no_volume(&cloud);
}

#[test]
fn the_metadata_service_may_stumble_but_has_to_answer() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::on_an_instance(Kernel::Nvme);
    cloud.double.fault(Fault::on("meta-data/instance-id", FaultKind::Internal).times(2));
    cloud.run(&["hello-bake"]).succeeds();
    cloud.double.fault(Fault::on("meta-data/placement/availability-zone", FaultKind::Internal).times(1000));
    let said = cloud.run(&["--fresh", "--name", "two", "hello-bake"]);
    said.ends_with(20).tells("the instance metadata service does not tell which instance this is");
    said.tells("hint: outside EC2, use `blockdevice: loop`");
    assert_no_volume(&cloud);
}

#[test]
fn a_volume_that_a_lost_run_left_is_found_by_its_tags() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::on_an_instance(Kernel::Nvme);
    let mut bake = cloud.command(&["hello-bake"]);
    bake.env("BAKE_CRASH_AT", "volume/create:accepted").output().expect("`bake` starts");
    assert_eq!(cloud.double.volumes(ACCOUNT, HOME).len(), 1);
    std::fs::remove_file(cloud.house.path().join("state/journal.db")).expect("the journal is there");
    let removed = cloud.run(&["gc", "--older-than", "0s", "--delete"]);
    assert!(removed.succeeds().stdout.contains("volume vol-"), "{}", removed.stdout);
    assert_no_volume(&cloud);
}

#[test]
fn a_volume_that_never_becomes_attached_is_told_and_taken_back() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::on_an_instance(Kernel::Nvme);
    cloud.double.fault(Fault::on("CreateVolume", FaultKind::Fails("no".into())));
    cloud.run(&["hello-bake"]).ends_with(20).tells("it is `error`");
    assert_no_volume(&cloud);
}
