//! Bakes that fail: what is said, what the exit code is, and what is left (nothing).

use bake_testing::base::DiskOptions;
use bake_testing::needs;
use bake_testing::packages::{Repository, huge, standard};

use crate::house::House;

/// Nothing that a failed bake made is there any more.
#[track_caller]
fn assert_nothing_made(house: &House) {
    for shelf in ["volumes", "snapshots", "images"] {
        assert_eq!(house.shelf(shelf), Vec::<String>::new(), "{shelf}");
    }
    house.assert_clean();
}

#[test]
fn a_failing_script_fails_the_bake_and_leaves_nothing() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let said = house.run(&["--result", "result.json", "failing-bake"]);
    said.ends_with(20).tells("failing-bake").tells("error: `volume/provision` failed");
    assert_eq!(said.stdout, "");
    assert_nothing_made(&house);
    let result =
        std::fs::read_to_string(house.path().join("result.json")).expect("the result is written on failure too");
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!((result["outcome"].as_str(), result["exit"].as_u64()), (Some("failed"), Some(20)));
}

#[test]
fn a_kept_volume_is_named_with_the_way_to_look_into_it() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let said = house.run(&["--on-error", "keep", "failing-bake"]);
    said.ends_with(21).tells("kept");
    let volumes = house.shelf("volumes");
    assert_eq!(volumes.len(), 1);
    said.tells(&volumes[0]);

    // The way that was shown leads there, and the other one takes everything back.
    let shown = |start: &str| {
        let (_, rest) = said.stderr.rsplit_once(&format!("`{start}")).expect("the hint shows the command");
        format!("{start}{}", rest.split('`').next().unwrap())
    };
    let script = format!("{} && test -e /mnt/var/lib/dpkg/status", shown("mount "));
    let looked = std::process::Command::new("unshare").args(["--mount", "sh", "-c", &script]).status().unwrap();
    assert!(looked.success(), "{script}");
    let run = shown("bake teardown ").replace("bake teardown ", "");
    house.run(&["teardown", &run]).succeeds();
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.run(&["teardown", &run]).succeeds();
    assert_eq!(house.shelf("snapshots"), Vec::<String>::new());
    house.assert_clean();
}

#[test]
fn a_package_that_does_not_exist_is_named() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    house.run(&["no-such-package"]).ends_with(20).tells("no-such-package").tells("hint: ");
    assert_nothing_made(&house);
}

#[test]
fn a_version_that_does_not_exist_is_named() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    house.run(&["hello-bake=9.9"]).ends_with(20).tells("9.9");
    assert_nothing_made(&house);
}

#[test]
fn an_index_that_cannot_be_fetched_fails_the_bake() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    // Nobody listens on this port: a refusal comes at once.
    let gone = "test.plugins.provisioner.apt.repositories=[\"deb [trusted=yes] http://127.0.0.1:1/ ./\"]";
    house.run(&["--set", gone, "hello-bake"]).ends_with(20).tells("apt-get update");
    assert_nothing_made(&house);
}

#[test]
fn a_full_root_is_said_plainly() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::create(folder.path(), &[huge()]);
    let house = House::with(&repository, &DiskOptions::default().size_mib(128));
    house.run(&["huge-bake"]).ends_with(20).tells("the root is full").tells("hint: ");
    assert_nothing_made(&house);
}

#[test]
fn a_full_state_folder_is_said_plainly_and_nothing_is_half_made() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    // The same house, its state on a disk of 20 MiB: the base image is shown there, and a clone of it finds no room.
    let script = r#"
        set -e
        mkdir small
        mount -t tmpfs -o size=20m tmpfs small
        mkdir -p small/store/local/bases
        mount --bind state/store/local/bases small/store/local/bases
        code=0
        "$1" --state-dir "$PWD/small" hello-bake || code=$?
        echo "code $code"
        find small/store -path '*/bases' -prune -o -type f -print
    "#;
    let said = house.script_in_own_mounts(script);
    said.succeeds().tells("the disk is full");
    assert_eq!(said.stdout, "code 20\nsmall/journal.db\n".replace("small/journal.db\n", ""), "{}", said.stderr);
    house.assert_clean();
}

#[test]
fn what_is_written_wrongly_starts_nothing() {
    needs!(root(), fixtures());
    let house = House::empty(&standard());
    house.run(&["a", "b"]).ends_with(2).tells("--main NAME");
    house.run(&["./missing_1.0_all.deb"]).ends_with(2).tells("missing_1.0_all.deb");
    house.run(&["--env", "local_apt_linus", "hello-bake"]).ends_with(2).tells("did you mean `local_apt_linux`");
    house
        .run(&["--env", "ec2_yum_linux", "hello-bake"])
        .ends_with(2)
        .tells("this version of bake does not have it yet");
    house.run(&["--set", "plugins.provisioner.apt.repository=x", "hello-bake"]).ends_with(2).tells("repositories");
    house.run(&["--result", "no/such/folder/result.json", "hello-bake"]).ends_with(2).tells("no such folder");
    assert_eq!(std::fs::read_dir(house.path()).unwrap().count(), 1, "something was made");
}

#[test]
fn without_a_base_image_the_way_to_one_is_shown() {
    needs!(root(), loops(), fixtures());
    let house = House::empty(&standard());
    house.run(&["hello-bake"]).ends_with(20).tells("bake base create debian");
    house.assert_clean();
}

/// A house whose images go to another region, too, where the name `taken` is.
fn house_with_a_taken_name(success: &str) -> House {
    let house = House::new();
    let set = format!(
        "finalizer_sets: {{ two: [register_image, tag_artifacts, distribute_images: {{ regions: [there], success: {success} }}] }}\n"
    );
    house.rewrite(|text| set + &text.replace("  plugins:", "  finalizer_set: two\n  plugins:"));
    house.run(&["--name", "taken", "hello-bake"]).succeeds();
    house.run(&["image", "rm", "taken"]).succeeds();
    house
}

#[test]
fn an_optional_finalizer_may_fail() {
    needs!(root(), loops(), fixtures());
    let house = house_with_a_taken_name("best_effort");
    let said = house.run(&["--name", "taken", "hello-bake"]);
    said.ends_with(10).tells("warning: `finalize/distribute_images/there/local` failed").tells("taken");
    assert_eq!(house.shelf("images"), [said.image()[3].clone()]);
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.assert_clean();
}

#[test]
fn a_good_image_outlives_a_finalizer_that_failed_and_is_told_of() {
    needs!(root(), loops(), fixtures());
    let house = house_with_a_taken_name("all");
    let said = house.run(&["--name", "taken", "hello-bake"]);
    said.ends_with(21).tells("error: `finalize/distribute_images/there/local` failed").tells("bake teardown ");
    assert_eq!(house.shelf("images"), [said.image()[3].clone()]);
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.assert_clean();
}

#[test]
fn a_journal_that_cannot_be_written_stops_the_bake() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    // The journal is there and empty; its disk has no room for anything more.
    let script = r#"
        mkdir full && mount -t tmpfs -o size=400k tmpfs full
        "$1" --state-dir "$PWD/full" runs
        dd if=/dev/zero of=full/filler bs=4k 2>/dev/null
        code=0; "$1" --state-dir "$PWD/full" hello-bake || code=$?
        echo "code $code"
    "#;
    let said = house.script_in_own_mounts(script);
    assert_eq!(said.succeeds().stdout, "code 74\n", "{}", said.stderr);
    said.tells("journal");
    house.assert_clean();
}

#[test]
fn a_journal_that_is_none_has_an_exit_code_of_its_own() {
    needs!(root(), fixtures());
    let house = House::empty(&standard());
    let state = house.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("journal.db"), "this is no database, and long enough to be seen as none\n".repeat(100))
        .unwrap();
    let run = "20260301-101500-k3f9";
    for words in [&["hello-bake"][..], &["runs"], &["show", run], &["teardown", run]] {
        house.run(words).ends_with(74).tells("journal");
    }
}

#[test]
fn a_reader_that_went_away_changes_nothing() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    // Both streams go to a pipe whose reader ends at once, and to a disk that is full.
    for (suffix, streams) in [("gone", "2>&1 | head -c 0"), ("full", ">/dev/full 2>/dev/full")] {
        let script = format!("(\"$1\" --suffix {suffix} hello-bake; echo \"code $?\" >code) {streams}");
        let ran = std::process::Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_bake")])
            .current_dir(house.path())
            .status();
        assert!(ran.unwrap().success());
        assert_eq!(std::fs::read_to_string(house.path().join("code")).unwrap(), "code 0\n", "{streams}");
    }
    assert_eq!(house.shelf("images").len(), 2);
    house.assert_clean();
}
