//! Bakes on EC2 while the API fails, and while `bake` is killed: each ends well, or says truthfully what is left, and never is
//! anything there twice.

use std::collections::BTreeMap;

use aws_double::{Fault, FaultKind, Kernel};
use bake_testing::needs;
use serde_json::Value;

use crate::ec2::{ACCOUNT, Cloud, FRIEND, HOME, THERE};
use crate::house::Said;

/// From anywhere, with one copy, shared and tagged.
fn from_anywhere() -> Cloud {
    let cloud = Cloud::new();
    cloud.environment(&format!("distribute_images: {{ regions: [{THERE}], accounts: [\"{FRIEND}\"] }}"));
    cloud
}

/// On an instance, without copies.
fn attached() -> Cloud {
    Cloud::on_an_instance(Kernel::Nvme)
}

/// Images by name, how many there are in each region, and all snapshots but the base's.
fn there(cloud: &Cloud) -> (BTreeMap<String, usize>, usize) {
    let mut images = BTreeMap::new();
    let mut snapshots = 0;
    for region in [HOME, THERE] {
        for image in cloud.images(region) {
            *images.entry(format!("{region} {}", image.name)).or_default() += 1;
        }
        snapshots += cloud.double.snapshots(ACCOUNT, region).len();
    }
    (images, snapshots - 1)
}

#[track_caller]
fn assert_nothing_left(cloud: &Cloud, when: &str) {
    assert_eq!(there(cloud), (BTreeMap::new(), 0), "{when}");
    let disks = cloud.house.path().join("state/ec2/disks");
    let disks = std::fs::read_dir(disks).map(|disks| disks.count()).unwrap_or_default();
    assert_eq!(disks, 0, "{when}: a disk is left");
    let volumes = cloud.double.volumes(ACCOUNT, HOME);
    assert!(volumes.is_empty(), "{when}: {volumes:?}");
}

/// Takes the last run back, if anything of it is there.
fn take_back(cloud: &Cloud, run: &str, when: &str) {
    let said = cloud.run(&["teardown", run]);
    assert_eq!(said.code, Some(0), "{when}: {}", said.stderr);
    assert_nothing_left(cloud, &format!("{when}: after teardown"));
}

fn result(cloud: &Cloud) -> Value {
    let text = std::fs::read(cloud.house.path().join("result.json")).expect("a result is always written");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// Every operation that a bake from anywhere asks for, and how often it may be refused for being asked too often.
const FROM_ANYWHERE: [(&str, u32); 14] = [
    ("GetCallerIdentity", 5),
    ("DescribeImages", 5),
    ("ListSnapshotBlocks", 5),
    ("GetSnapshotBlock", 5),
    ("StartSnapshot", 2),
    ("PutSnapshotBlock", 5),
    ("CompleteSnapshot", 5),
    ("DescribeSnapshots", 5),
    ("RegisterImage", 2),
    ("CreateTags", 2),
    ("DescribeTags", 5),
    ("CopyImage", 2),
    ("ModifyImageAttribute", 2),
    ("DescribeImageAttribute", 5),
];

/// The operations that only a bake on an instance asks for.
const ATTACHED: [(&str, u32); 7] = [
    ("DescribeInstances", 5),
    ("CreateVolume", 2),
    ("DescribeVolumes", 5),
    ("AttachVolume", 2),
    ("CreateSnapshot", 2),
    ("DetachVolume", 5),
    ("DeleteVolume", 5),
];

/// Whether a bake has to go well in spite of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    GoWell,
    Fail,
    /// Nobody can tell: it depends on what was asked.
    EndTruthfully,
}

fn faults(operation: &str, throttled: u32) -> Vec<(Fault, Must)> {
    let on = |kind| Fault::on(operation, kind);
    let mut faults = vec![
        (on(FaultKind::Throttle).times(throttled), Must::GoWell),
        (on(FaultKind::Internal).times(2), Must::GoWell),
        (on(FaultKind::DropBefore), Must::GoWell),
        (on(FaultKind::DropAfter), Must::GoWell),
        (on(FaultKind::Denied).times(1000), Must::Fail),
        (on(FaultKind::NotFound), Must::EndTruthfully),
        (on(FaultKind::Expired), Must::EndTruthfully),
    ];
    if ["RegisterImage", "CopyImage", "StartSnapshot", "CreateVolume", "CreateSnapshot"].contains(&operation) {
        faults.push((on(FaultKind::Fails("a disk of the service broke".into())), Must::Fail));
    }
    faults
}

/// One part of the matrix of operations and faults, in a house of its own so that the parts run side by side. A bake that goes
/// well makes so many `images`.
fn matrix(cloud: &Cloud, operations: &[(&str, u32)], images_made: usize, [part, parts]: [usize; 2]) {
    let cases = operations.iter().flat_map(|(operation, throttled)| faults(operation, *throttled));
    for (number, (fault, must)) in cases.enumerate().filter(|(number, _)| number % parts == part) {
        let when = format!("{fault:?}");
        // Each bake has to fetch the base anew.
        let _there_may_be_none = std::fs::remove_dir_all(cloud.house.path().join("cache"));
        cloud.double.fault(fault);
        let name = format!("case-{number}");
        let begun = std::time::Instant::now();
        let said = cloud.run(&["--fresh", "--name", &name, "--result", "result.json", "hello-bake"]);
        cloud.double.no_faults();
        eprintln!("{:5.1} s, exit code {:?}: {when}", begun.elapsed().as_secs_f64(), said.code);
        let result = result(cloud);
        let (images, snapshots) = there(cloud);
        assert!(images.values().all(|count| *count == 1), "{when}: {images:?}");
        match said.code {
            Some(0) => assert_eq!((images.len(), snapshots), (images_made, images_made), "{when}: {}", said.stderr),
            // The images are there, and something else is left.
            Some(11) => assert!(!result["left"].as_array().expect("a list").is_empty(), "{when}: {result}"),
            Some(code) => {
                assert!(code >= 20, "{when}: exit code {code}\n{}", said.stderr);
                tells_what_is_there(&said, &result, &images, snapshots, &when);
            }
            None => panic!("{when}: killed"),
        }
        match must {
            Must::GoWell => assert_eq!(said.code, Some(0), "{when}: {}", said.stderr),
            Must::Fail => assert_ne!(said.code, Some(0), "{when}"),
            Must::EndTruthfully => {}
        }
        take_back(cloud, result["run"].as_str().expect("a run"), &when);
    }
    cloud.house.assert_clean();
}

/// After a failure nothing is there that the report does not name: an image that is good stays, and is told.
fn tells_what_is_there(said: &Said, result: &Value, images: &BTreeMap<String, usize>, snapshots: usize, when: &str) {
    let told = result["images"].as_array().expect("a list").len();
    assert_eq!(images.len(), told, "{when}: {result}\n{}", said.stderr);
    assert!(snapshots <= told.max(1), "{when}: {snapshots} snapshots\n{}", said.stderr);
    if told == 0 && result["left"].as_array().is_none_or(Vec::is_empty) {
        assert_eq!(snapshots, 0, "{when}: {result}\n{}", said.stderr);
    }
}

#[test]
fn the_api_fails_in_every_way_part_1() {
    needs!(root(), loops(), fixtures());
    matrix(&from_anywhere(), &FROM_ANYWHERE, 2, [0, 3]);
}

#[test]
fn the_api_fails_in_every_way_part_2() {
    needs!(root(), loops(), fixtures());
    matrix(&from_anywhere(), &FROM_ANYWHERE, 2, [1, 3]);
}

#[test]
fn the_api_fails_in_every_way_part_3() {
    needs!(root(), loops(), fixtures());
    matrix(&from_anywhere(), &FROM_ANYWHERE, 2, [2, 3]);
}

#[test]
fn the_api_fails_in_every_way_for_an_attached_volume() {
    needs!(root(), loops(), fixtures());
    matrix(&attached(), &ATTACHED, 1, [0, 1]);
}

/// Kills a bake at every point of every change that `which` tells, and goes on or takes it back. A bake that went on has made so
/// many `images`.
fn kills(cloud: &Cloud, which: impl Fn(&str) -> bool, images_made: usize) {
    let plan = cloud.run(&["plan", "hello-bake", "--format", "json"]);
    let plan: Value = serde_json::from_str(&plan.succeeds().stdout).unwrap();
    let steps = plan["steps"].as_object().unwrap().iter();
    let changes = steps.filter(|(path, step)| step["kind"] == "mutation" && which(path));
    let points = ["before_intent", "intent", "sent", "accepted", "settled", "done"];
    let moments: Vec<_> = changes.flat_map(|(path, _)| points.map(|point| format!("{path}:{point}"))).collect();
    assert!(moments.len() >= points.len(), "the plan has no such change");
    for (number, moment) in moments.iter().enumerate() {
        let mut bake = cloud.command(&["--name", "killed", "hello-bake"]);
        let killed = Said::of(bake.env("BAKE_CRASH_AT", moment).output().unwrap());
        assert_eq!(killed.code, None, "nothing passed `{moment}`: {}", killed.stderr);
        let runs = cloud.run(&["runs"]).stdout;
        let run = runs.lines().find(|line| line.contains(" unfinished ")).and_then(|line| line.split(' ').next());
        let run = run.unwrap_or_else(|| panic!("{moment}: {runs}")).to_owned();
        if number % 2 == 0 || moment.ends_with(":sent") {
            let said = cloud.run(&["resume", &run]);
            assert_eq!(said.code, Some(0), "{moment}: {}", said.stderr);
            let (images, snapshots) = there(cloud);
            let once = images.values().all(|count| *count == 1);
            assert!(images.len() == images_made && once, "{moment}: {images:?}");
            assert_eq!(snapshots, images_made, "{moment}");
        }
        take_back(cloud, &run, moment);
    }
    cloud.house.assert_clean();
}

#[test]
fn a_bake_from_anywhere_is_killed_at_every_point_of_every_change() {
    needs!(root(), loops(), fixtures());
    // The base image is the account's own.
    kills(&from_anywhere(), |path| path != "own", 2);
}

#[test]
fn a_public_base_image_is_copied_once_although_bakes_are_killed_meanwhile() {
    needs!(root(), loops(), fixtures());
    for point in ["before_intent", "intent", "sent", "accepted", "settled", "done"] {
        let cloud = Cloud::new();
        let base = cloud.public_base();
        let mut bake = cloud.command(&["--base", &base, "hello-bake"]);
        let killed = Said::of(bake.env("BAKE_CRASH_AT", format!("own:{point}")).output().unwrap());
        assert_eq!(killed.code, None, "nothing passed `{point}`: {}", killed.stderr);
        let run = cloud.run(&["runs"]).stdout.split(' ').next().expect("a run").to_owned();
        cloud.run(&["resume", &run]).succeeds();
        let images = cloud.images(HOME);
        let copies = images.iter().filter(|image| image.name == format!("bake base {base}")).count();
        assert_eq!((copies, images.len()), (1, 2), "{point}: {images:?}");
        cloud.house.assert_clean();
    }
}

#[test]
fn a_bake_on_an_instance_is_killed_at_every_point_of_the_changes_around_its_volume() {
    needs!(root(), loops(), fixtures());
    kills(&attached(), |path| path.starts_with("volume/") || path == "snapshot", 1);
}
