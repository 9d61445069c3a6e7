//! A bake that is killed at any moment is finished by `bake resume`, or taken back by `bake teardown`: nothing twice,
//! nothing lost, nothing left.
//!
//! The moments are the crash points of the engine (`crates/bake-engine/src/crash.rs`) in every step that the plan has, and
//! random ones.

use std::time::Duration;

use bake_testing::needs;
use serde_json::Value;

use crate::house::{House, Said};

/// How long the kernel may take to clean up.
const LIMIT: Duration = Duration::from_secs(5);

/// Two images of one snapshot, tagged, and both in another region.
const SET: &str = "[register_image, register_image: { name: second, image_name: killed-second }, tag_artifacts, \
                   distribute_images: { regions: [east] }]";

/// The bake that is killed.
const BAKE: [&str; 3] = ["--name", "killed", "hello-bake"];

fn house() -> House {
    let house = House::new();
    let set = format!("finalizer_sets:\n  mine: {SET}\n");
    // The name belongs to the first image alone: `--name` would be for both.
    house.rewrite(|text| {
        set + &text.replace(
            "  plugins:",
            "  finalizer_set: mine\n  plugins:\n    finalizer: { register_image: { image_name: killed } }",
        )
    });
    house
}

/// Everything that the store holds, base images aside: regions, shelves and how many things stand there.
fn inventory(house: &House) -> Vec<String> {
    let mut found = Vec::new();
    for region in ["east", "local"] {
        for shelf in ["images", "snapshots", "volumes"] {
            let count = house.shelf_in(region, shelf).len();
            found.extend((count > 0).then(|| format!("{region} {count} {shelf}")));
        }
    }
    found
}

/// What a finished bake leaves in the store: a snapshot for both images here, and one for each copy.
const FINISHED: [&str; 4] = ["east 2 images", "east 2 snapshots", "local 2 images", "local 1 snapshots"];

/// The only run that is unfinished.
fn unfinished(house: &House) -> Option<String> {
    let listed = house.run(&["runs"]);
    let runs: Vec<_> =
        listed.succeeds().stdout.lines().filter(|line| line.contains(" unfinished ")).map(str::to_owned).collect();
    assert!(runs.len() <= 1, "{runs:?}");
    Some(runs.first()?.split(' ').next()?.to_owned())
}

fn assert_finished(house: &House, said: &Said, when: &str) {
    assert_eq!(said.code, Some(0), "{when}: {}", said.stderr);
    assert_eq!(said.stdout.lines().count(), 4, "{when}: {}", said.stdout);
    assert_eq!(inventory(house), FINISHED, "{when}");
    for (region, name) in
        [("local", "killed"), ("local", "killed-second"), ("east", "killed"), ("east", "killed-second")]
    {
        let shown = house.run(&["image", "show", name, "--region", region, "--format", "json"]);
        let shown: Value = serde_json::from_str(&shown.succeeds().stdout).unwrap();
        assert_eq!(shown["tags"]["appversion"], "hello-bake-2.0-0", "{when}: {region} {name}");
    }
}

fn take_back(house: &House, run: &str, when: &str) {
    let said = house.run(&["teardown", run]);
    assert_eq!(said.code, Some(0), "{when}: {}", said.stderr);
    assert_eq!(inventory(house), Vec::<String>::new(), "{when}: after teardown");
}

/// Whether a killed bake is gone on with before it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Resume,
    TakeBack,
}

/// What must hold after a bake was killed: the host is clean, the same request is refused until somebody says what becomes
/// of the run, and both ways out lead where they should.
fn recover(house: &House, then: Then, when: &str) {
    house.leftovers().wait_gone(LIMIT);
    let Some(run) = unfinished(house) else {
        // It had ended before it was killed, or had not begun.
        let listed = house.run(&["runs"]).stdout;
        let last = listed.lines().last().filter(|line| line.contains(" baked ") && !inventory(house).is_empty());
        if let Some(run) = last.and_then(|line| line.split(' ').next()) {
            assert_eq!(inventory(house), FINISHED, "{when}");
            take_back(house, run, when);
        }
        assert_eq!(inventory(house), Vec::<String>::new(), "{when}");
        return;
    };
    house.run(&BAKE[2..]).ends_with(73).tells(&format!("bake resume {run}"));
    if then == Then::Resume {
        let said = house.run(&["resume", &run]);
        assert_finished(house, &said, when);
        // A second time changes nothing.
        assert_finished(house, &house.run(&["resume", &run]), &format!("{when}, resumed twice"));
    }
    take_back(house, &run, when);
}

/// Every step of the plan with every crash point that it passes.
fn moments(house: &House) -> Vec<String> {
    let plan = house.run(&["plan", BAKE[2], "--format", "json"]);
    let plan: Value = serde_json::from_str(&plan.succeeds().stdout).unwrap();
    let mut moments: Vec<String> = ["begun", "ended", "closed"].map(|point| format!("run:{point}")).into();
    for (path, step) in plan["steps"].as_object().unwrap() {
        let points: &[&str] = match step["kind"].as_str().unwrap() {
            "mutation" => &["start", "before_intent", "intent", "sent", "accepted", "settled", "done"],
            "work" => &["start", "settled", "done"],
            "open" => &["start"],
            "scope" => &["close", "closed"],
            _ => &[],
        };
        moments.extend(points.iter().map(|point| format!("{path}:{point}")));
        // The volume is removed when all else has ended.
        let removed = step["keep"] == "scaffold";
        moments.extend(["undo", "undoing", "undone"].iter().filter(|_| removed).map(|point| format!("{path}:{point}")));
    }
    moments
}

/// One part of the matrix of moments and ways out, in a house of its own so that the parts run side by side.
fn matrix(part: usize, parts: usize) {
    needs!(root(), loops(), fixtures());
    let house = house();
    let moments = moments(&house);
    assert!(moments.len() > 80, "{moments:?}");
    let cases = moments.iter().flat_map(|moment| [(moment, Then::Resume), (moment, Then::TakeBack)]);
    for (moment, then) in cases.enumerate().filter(|(index, _)| index % parts == part).map(|(_, case)| case) {
        let killed = Said::of(house.command(&BAKE[2..]).env("BAKE_CRASH_AT", moment).output().unwrap());
        assert_eq!(killed.code, None, "nothing passed `{moment}`: {}", killed.stderr);
        recover(&house, then, &format!("killed at `{moment}`, {then:?}"));
    }
    house.assert_clean();
}

#[test]
fn a_bake_is_killed_at_every_point_part_1() {
    matrix(0, 4);
}

#[test]
fn a_bake_is_killed_at_every_point_part_2() {
    matrix(1, 4);
}

#[test]
fn a_bake_is_killed_at_every_point_part_3() {
    matrix(2, 4);
}

#[test]
fn a_bake_is_killed_at_every_point_part_4() {
    matrix(3, 4);
}

/// Kills bakes at moments that nobody chose. The seed is the time, and every failure names its moment.
fn random_kills(count: usize) {
    needs!(root(), loops(), fixtures());
    let house = house();
    let begun = std::time::Instant::now();
    house.run(&BAKE[2..]).succeeds();
    let usual = begun.elapsed();
    let run = house.run(&["runs"]).stdout.split(' ').next().unwrap().to_owned();
    take_back(&house, &run, "the first");
    for kill in 0..count {
        // A fraction of the usual time, and a little beyond.
        let fraction = f64::from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() % 1_000_000) / 1e6;
        let moment = usual.mul_f64(fraction * 1.1);
        let mut bake = house.start(&BAKE[2..]);
        std::thread::park_timeout(moment);
        bake.kill().unwrap();
        bake.wait().unwrap();
        let then = if kill % 2 == 0 { Then::Resume } else { Then::TakeBack };
        recover(&house, then, &format!("killed after {moment:?}, {then:?}"));
    }
    house.assert_clean();
}

#[test]
fn a_bake_is_killed_at_random_one_half() {
    random_kills(100);
}

#[test]
fn a_bake_is_killed_at_random_other_half() {
    random_kills(100);
}
