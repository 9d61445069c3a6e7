//! Bakes that go well.

use bake_testing::base::DiskOptions;
use bake_testing::packages::{Repository, hello, standard};
use bake_testing::{image, needs};

use crate::house::House;

#[test]
fn a_package_is_in_the_image_and_nothing_of_ours_is() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let base = bake_testing::base::disk(&DiskOptions::default().size_mib(256));
    let (before, base_resolv_conf) = image::inspect(&base, |root| (root.paths(), root.text("/etc/resolv.conf")));

    let said = house.run(&["hello-dep"]);
    let [region, account, kind, id, name] = said.succeeds().image();
    assert_eq!((region.as_str(), account.as_str(), kind.as_str()), ("local", "-", "local"));
    assert!(name.starts_with("hello-dep-1.0-0-x86_64-"), "{name}");

    let disk = house.export(&name);
    image::check(&disk);
    image::inspect(&disk, |root| {
        for package in ["hello-dep", "hello-bake"] {
            assert!(root.packages()[package].is_installed(), "{package}");
        }
        let ours = |path: &String| path.contains("bake/apt") || path.contains("policy-rc.d") || path.contains("/run/");
        let traces: Vec<_> = root.paths().into_iter().filter(|path| !before.contains(path)).filter(ours).collect();
        assert_eq!(traces, Vec::<String>::new());
        assert_eq!(root.text("/etc/resolv.conf"), base_resolv_conf, "the base's own file stays as it is");
    });

    // The volume was scaffold; snapshot and image stay, and carry their tags.
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    assert_eq!(house.shelf("snapshots").len(), 1);
    assert_eq!(house.shelf("images"), [id.as_str()]);
    let shown = house.run(&["image", "show", &id, "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.succeeds().stdout).unwrap();
    assert_eq!(shown["tags"]["appversion"], "hello-dep-1.0-0");
    assert!(shown["tags"]["bake:run"].is_string(), "{shown}");
    house.assert_clean();
}

#[test]
fn disks_are_for_roots_eyes_only_and_the_journal_is_for_all() {
    use std::os::unix::fs::PermissionsExt;
    needs!(root(), loops(), fixtures());
    let house = House::new();
    house.run(&["hello-bake"]).succeeds();
    let mode = |path: &str| std::fs::metadata(house.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("state/store"), 0o700);
    assert_eq!(mode("state"), 0o755);
    assert_eq!(mode("state/journal.db"), 0o644);
}

#[test]
fn a_package_file_is_installed_with_what_it_depends_on() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let file = standard().file("hello-dep", "1.0");
    std::fs::copy(&file, house.path().join("some thing.deb")).unwrap();
    let [.., name] = house.run(&["./some thing.deb"]).succeeds().image();
    image::inspect(&house.export(&name), |root| {
        assert!(root.packages()["hello-dep"].is_installed());
        assert!(root.packages()["hello-bake"].is_installed());
        let staged: Vec<_> = root.paths().into_iter().filter(|path| path.ends_with(".deb")).collect();
        assert_eq!(staged, Vec::<String>::new());
    });
    house.assert_clean();
}

#[test]
fn an_exact_version_is_installed_although_a_newer_one_is_there() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let [.., name] = house.run(&["hello-bake=1.0"]).succeeds().image();
    assert!(name.starts_with("hello-bake-1.0-"), "{name}");
    image::inspect(&house.export(&name), |root| assert_eq!(root.packages()["hello-bake"].version, "1.0"));
}

#[test]
fn every_kind_of_disk_is_baked_on() {
    needs!(root(), loops(), fixtures());
    for options in
        [DiskOptions::mbr().size_mib(256), DiskOptions::bare().size_mib(256), DiskOptions::xfs().size_mib(400)]
    {
        let house = House::with(&standard(), &options);
        let [.., name] = house.run(&["hello-bake"]).succeeds().image();
        let disk = house.export(&name);
        image::check(&disk);
        image::inspect(&disk, |root| assert!(root.packages()["hello-bake"].is_installed(), "{options:?}"));
        house.assert_clean();
    }
}

#[test]
fn of_two_roots_the_user_says_which() {
    needs!(root(), loops(), fixtures());
    let house = House::with(&standard(), &DiskOptions::two_roots().size_mib(512));
    let said = house.run(&["hello-bake"]);
    said.ends_with(20).tells("--partition NUMBER");
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.run(&["--partition", "2", "hello-bake"]).succeeds();
    house.assert_clean();
}

#[test]
fn five_packages_are_baked_at_once() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let names = ["one", "two", "three", "four", "five"];
    let packages: Vec<_> = names.iter().map(|name| bake_testing::packages::Deb::new(name, "1.0")).collect();
    let house = House::with(&Repository::create(folder.path(), &packages), &DiskOptions::default().size_mib(256));
    let bakes: Vec<_> = names.iter().map(|name| house.start(&[name])).collect();
    for bake in bakes {
        crate::house::Said::of(bake.wait_with_output().unwrap()).succeeds();
    }
    assert_eq!(house.shelf("images").len(), names.len());
    assert_eq!(house.shelf("volumes"), Vec::<String>::new());
    house.assert_clean();
}

#[test]
fn an_image_is_a_base_for_the_next() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let [.., first] = house.run(&["hello-bake"]).succeeds().image();
    let [.., second] = house.run(&["--base", &first, "conf-bake"]).succeeds().image();
    image::inspect(&house.export(&second), |root| {
        assert!(root.packages()["hello-bake"].is_installed() && root.packages()["conf-bake"].is_installed());
    });
    house.assert_clean();
}

#[test]
fn scripts_read_events_results_and_properties() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let words = ["--format", "json", "--result", "result.json", "--properties", "bake.properties", "hello-bake"];
    let said = house.run(&words);
    let lines: Vec<serde_json::Value> =
        said.succeeds().stdout.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    assert_eq!(lines.first().unwrap()["event"], "run_started");
    assert_eq!(lines[lines.len() - 2]["event"], "run_finished");
    let result = lines.last().unwrap();
    assert_eq!((result["outcome"].as_str(), result["exit"].as_u64()), (Some("baked"), Some(0)));
    assert_eq!(result["packages"][0]["name"], "hello-bake");
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(house.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(&written, result);
    let properties = std::fs::read_to_string(house.path().join("bake.properties")).unwrap();
    assert!(
        properties.contains("BAKE_OUTCOME=baked\n") && properties.contains("BAKE_PACKAGE_NAME=hello-bake\n"),
        "{properties}"
    );
}

#[test]
fn an_epoch_stays_in_the_tag_and_out_of_the_name() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let house =
        House::with(&Repository::create(folder.path(), &[hello("1:2.0-3")]), &DiskOptions::default().size_mib(256));
    let [.., id, name] = house.run(&["hello-bake"]).succeeds().image();
    assert!(name.starts_with("hello-bake-2.0-3-x86_64-"), "{name}");
    let shown = house.run(&["image", "show", &id, "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.succeeds().stdout).unwrap();
    assert_eq!(shown["tags"]["appversion"], "hello-bake-1:2.0-3");
}

#[test]
fn a_finalizer_runs_only_when_its_predicate_holds() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let run = |predicate: &str| {
        let set =
            format!("finalizer_sets: {{ sometimes: [register_image, tag_artifacts: {{ when: \"{predicate}\" }}] }}\n");
        house.rewrite(|text| set + &text.replace("  plugins:", "  finalizer_set: sometimes\n  plugins:"));
        // A suffix of its own: the usual one is the time in seconds, and this is faster.
        house.run(&["--suffix", &house.shelf("images").len().to_string(), "hello-bake"])
    };
    let tags = |said: &crate::house::Said| {
        let shown = house.run(&["image", "show", &said.succeeds().image()[3], "--format", "json"]);
        serde_json::from_str::<serde_json::Value>(&shown.succeeds().stdout).unwrap()["tags"].clone()
    };
    assert!(tags(&run("package.name == 'hello-bake'")).get("appversion").is_some());
    assert!(tags(&run("arch == 'vax'")).get("appversion").is_none());
    // A predicate that fails is no "no". It stops the bake before there is an image, and a mistake in it before anything.
    let images = house.shelf("images");
    run("base.tags.team == 'red'").ends_with(20).tells("environments.yaml:1:").tells("there is no `base.tags.team`");
    run("package.nmae == 'x'").ends_with(2).tells("there is no `nmae` in `package`");
    run("arch ==").ends_with(2).tells("tag_artifacts");
    assert_eq!(house.shelf("images"), images);
    house.assert_clean();
}

#[test]
fn no_image_has_the_identity_of_a_machine() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let make = "mkdir -p /var/lib/dbus\necho 0123456789abcdef0123456789abcdef >/etc/machine-id\n\
                cp /etc/machine-id /var/lib/dbus/machine-id\n";
    let package = bake_testing::packages::Deb::new("identity-bake", "1.0").postinst(make);
    let house = House::with(&Repository::create(folder.path(), &[package]), &DiskOptions::default().size_mib(256));
    let [.., name] = house.run(&["identity-bake"]).succeeds().image();
    image::inspect(&house.export(&name), |root| {
        assert_eq!(root.text("/etc/machine-id"), "");
        assert!(!root.has("/var/lib/dbus/machine-id"));
    });
    house.assert_clean();
}

#[test]
fn the_same_request_is_not_carried_out_twice_at_once() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let packages = [bake_testing::packages::slow(std::time::Duration::from_secs(3))];
    let house = House::with(&Repository::create(folder.path(), &packages), &DiskOptions::default().size_mib(256));
    let first = house.start(&["slow-bake"]);
    let is_loop = |left: &bake_testing::host::Leftover| matches!(left, bake_testing::host::Leftover::Loop { .. });
    house.leftovers().wait_for(std::time::Duration::from_secs(20), is_loop);
    house.run(&["slow-bake"]).ends_with(75).tells("right now");
    let runs = house.run(&["runs"]);
    assert!(runs.succeeds().stdout.contains(" running "), "{}", runs.stdout);
    crate::house::Said::of(first.wait_with_output().unwrap()).succeeds();
    house.assert_clean();
}
