//! Runs as a user handles them: planned, applied, stopped from elsewhere, not repeated by accident, and what was lost is found.

use std::time::Duration;

use bake_testing::base::DiskOptions;
use bake_testing::host::Leftover;
use bake_testing::needs;
use bake_testing::packages::{Repository, slow};
use serde_json::Value;

use crate::house::{House, Said};

fn run_of(house: &House, state: &str) -> String {
    let listed = house.run(&["runs"]);
    let line = listed.succeeds().stdout.lines().rfind(|line| line.contains(&format!(" {state} "))).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no run is {state}:\n{}", listed.stdout)).split(' ').next().unwrap().to_owned()
}

#[test]
fn a_plan_is_applied_as_it_was_shown_or_refused_with_the_difference() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    house.run(&["plan", "hello-bake", "--to", "plan.json"]).succeeds();
    assert_eq!(house.shelf("volumes").len() + house.shelf("images").len(), 0, "a plan makes nothing");
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(house.path().join("plan.json")).unwrap()).unwrap();
    let suffix = plan["vars"]["suffix"].as_str().unwrap().to_owned();

    // Of something else than what was shown, nothing is done.
    house.rewrite(|text| format!("vars: {{ team: red }}\n{}", text.replace("own_sources: false", "recommends: true")));
    let said = house.run(&["apply", "plan.json"]);
    said.ends_with(2).tells("vars.team: nothing became \"red\"").tells("environment.provisioner.settings.recommends");
    house.rewrite(str::to_owned);
    let text = std::fs::read_to_string(house.path().join("plan.json")).unwrap();
    std::fs::write(house.path().join("changed.json"), text.replace("hello-bake", "hello-fake")).unwrap();
    house.run(&["apply", "changed.json"]).ends_with(2).tells("was changed after the plan was made");
    house.run(&["apply", "environments.yaml"]).ends_with(2).tells("is no plan");
    assert_eq!(house.shelf("images").len(), 0);

    let [.., name] = house.run(&["apply", "plan.json"]).succeeds().image();
    assert!(name.ends_with(&suffix), "`{name}` has the time of the plan, {suffix}");
    house.assert_clean();
}

#[test]
fn a_plan_names_steps_calls_and_what_is_not_known_yet() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bake"));
    command.args(["plan", "hello", "-v", "--set", "state_dir=/nowhere"]).current_dir(&folder).env_clear();
    let said = Said::of(command.output().unwrap());
    let stdout = &said.succeeds().stdout;
    let title = stdout.lines().next().unwrap();
    insta::assert_snapshot!(stdout.replace(title, "[title]").lines().filter(|line| !line.contains("packages:")).collect::<Vec<_>>().join("\n"), @r#"
    [title]
       1  base                             finds the base image
       2  volume/create                    local.volume: create volume; removed at the end
                                             base: ${base#/id}
                                             region: ${base#/region}
                                             snapshot: ${base#/snapshot}
       3  volume/open                      opens the volume in a sandbox
       4  volume/provision                 installs the packages, and asks the package database
       5  volume/seal                      cleans, unmounts and checks the volume
       6  identity                         renders names and tags
       7  snapshot                         local.snapshot: create snapshot
                                             volume: ${volume/seal#/volume}
                                             region: ${volume/seal#/region}
                                             description: ${identity#/description}
                                             tags: {}
       8  finalize/register_image/image    local.image: register image
                                             name: ${identity#/finalizers/register_image/texts/image_name}
                                             description: ${identity#/finalizers/register_image/texts/description}
                                             snapshot: ${snapshot#/id}
                                             region: ${snapshot#/region}
                                             architecture: ${base#/architecture}
                                             base: ${base#/id}
                                             tags: {}
                                             machine: {"root_device":{"$ref":"base#/machine/root_device"},"boot_mode":{"$ref":"base#/machine/boot_mode"},"ena":{"$unknown":[false,true]},"sriov":{"$ref":"base#/machine/sriov"},"tpm":{"$ref":"base#/machine/tpm"},"imds":{"$ref":"base#/machine/imds"}}
                                             disk: {"kind":null,"size":null,"iops":null,"throughput":null}
       9  finalize/tag_artifacts/snapshot  local.tags: set tags
                                             resource: {"Snapshot":{"$ref":"snapshot#/id"}}
                                             region: ${snapshot#/region}
                                             tags: {"${identity#/finalizers/tag_artifacts/tags/snapshot/*}":{"$ref":"identity#/finalizers/tag_artifacts/tags/snapshot/*"}}
          finalize/tag_artifacts/local     local.tags: set tags
                                             resource: {"Image":{"$ref":"finalize/register_image/image#/id"}}
                                             region: ${finalize/register_image/image#/region}
                                             tags: {"${identity#/finalizers/tag_artifacts/tags/image/*}":{"$ref":"identity#/finalizers/tag_artifacts/tags/image/*"}}
    "#);
}

#[test]
fn another_shell_stops_a_run() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let packages = [slow(Duration::from_secs(20))];
    let house = House::with(&Repository::create(folder.path(), &packages), &DiskOptions::default().size_mib(256));
    let bake = house.start(&["slow-bake"]);
    house.leftovers().wait_for(Duration::from_secs(20), |left| matches!(left, Leftover::Loop { .. }));
    let run = run_of(&house, "running");
    house.run(&["cancel", &run]).succeeds().tells(&format!("to stop the run {run}"));
    let said = Said::of(bake.wait_with_output().unwrap());
    said.ends_with(30);
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.run(&["cancel", &run]).ends_with(2).tells("nobody carries out the run");
    house.assert_clean();
}

#[test]
fn a_finished_bake_is_taken_again_only_if_its_images_are_there() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let first = house.run(&["hello-bake", "--reuse"]).succeeds().image();
    let again = house.run(&["hello-bake", "--reuse"]);
    assert_eq!(again.succeeds().image(), first);
    again.tells("already baked hello-bake");
    assert_eq!(house.shelf("images").len(), 1);
    house.run(&["image", "rm", &first[3]]).succeeds();
    assert_ne!(house.run(&["hello-bake", "--reuse"]).succeeds().image()[3], first[3]);
    // Another request is another bake.
    house.run(&["hello-bake", "--reuse", "--name", "another"]).succeeds();
    assert_eq!(house.shelf("images").len(), 2);
    house.assert_clean();
}

#[test]
fn what_no_journal_knows_is_found_by_its_tags() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let image = house.run(&["hello-bake"]).succeeds().image();
    let killed = house.command(&["hello-bake"]).env("BAKE_CRASH_AT", "snapshot:accepted").output().unwrap();
    assert_eq!(killed.status.code(), None);
    assert_eq!((house.shelf("volumes").len(), house.shelf("snapshots").len()), (1, 2));
    // Its run knows of it: nothing is touched.
    let run = run_of(&house, "unfinished");
    let said = house.run(&["gc", "--delete", "--older-than", "0s"]);
    said.succeeds().tells(&format!("belongs to the run {run}"));
    assert_eq!(said.stdout, "");

    // Its run is forgotten.
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _absent = std::fs::remove_file(house.path().join("state").join(file));
    }
    assert_eq!(house.run(&["gc"]).succeeds().stdout, "", "it is younger than a day");
    let said = house.run(&["gc", "--older-than", "0s"]);
    assert_eq!(said.succeeds().stdout.lines().count(), 2, "{}", said.stdout);
    said.tells("nothing was removed");
    assert_eq!(house.run(&["gc", "--older-than", "0s", "--delete"]).succeeds().stdout.matches("(removed)").count(), 2);
    assert_eq!((house.shelf("volumes").len(), house.shelf("snapshots").len()), (0, 1));
    assert_eq!(house.shelf("images"), [image[3].clone()], "an image is never scrap");
    house.run(&["image", "export", &image[4], "--to", "still.raw"]).succeeds();
    house.assert_clean();
}

/// More regions are a matter of delivery: they are added to a bake that has ended. What the image is made of is not.
#[test]
fn a_resumed_run_delivers_what_is_missing_and_refuses_to_be_another_bake() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let set = |regions: &str, name: &str| {
        let set = format!(
            "finalizer_sets: {{ mine: [register_image: {{ name: {name} }}, tag_artifacts, distribute_images: {{ regions: [{regions}] }}] }}\n"
        );
        house.rewrite(|text| set + &text.replace("  plugins:", "  finalizer_set: mine\n  plugins:"));
    };
    set("east", "first");
    house.run(&["hello-bake"]).succeeds();
    let run = run_of(&house, "baked");
    set("east, west", "first");
    let said = house.run(&["resume", &run]);
    assert_eq!(said.succeeds().stdout.lines().count(), 3, "{}", said.stdout);
    said.tells("steps are done");
    assert_eq!((house.shelf_in("east", "images").len(), house.shelf_in("west", "images").len()), (1, 1));
    let shown = house.run(&["image", "list", "--region", "west"]).stdout;
    assert!(!shown.is_empty());

    set("east, west", "other");
    let said = house.run(&["resume", &run]);
    said.ends_with(2).tells("the plan is not the one").tells(&format!("bake teardown {run}"));
    house.run(&["teardown", &run]).succeeds();
    for region in ["local", "east", "west"] {
        assert_eq!(house.shelf_in(region, "images").len() + house.shelf_in(region, "snapshots").len(), 0, "{region}");
    }
    house.assert_clean();
}
