//! What a package's scripts see and can do while they are installed.

use bake_testing::base::DiskOptions;
use bake_testing::host::Canary;
use bake_testing::packages::{EvilTarget, Repository, evil, killer, standard};
use bake_testing::{image, needs};

use crate::house::House;

#[test]
fn scripts_see_a_small_world_of_their_own() {
    needs!(root(), loops(), fixtures());
    let house = House::with(&standard(), &DiskOptions::default().size_mib(256));
    let [.., name] = house.run(&["curious-bake"]).succeeds().image();
    image::inspect(&house.export(&name), |root| {
        let saw = |what: &str| root.text(&format!("/var/lib/curious/{what}"));
        assert_eq!(saw("hostname").trim(), "localhost");
        assert!(!saw("cmdlines").contains("nextest") && !saw("cmdlines").contains("cargo"), "host processes are seen");
        assert!(
            !saw("mounts").contains(house.path().to_str().unwrap()),
            "the host's mounts are seen:\n{}",
            saw("mounts")
        );
        let mut nodes: Vec<_> = saw("dev").split_whitespace().map(str::to_owned).collect();
        nodes.retain(|node| node.starts_with("loop") || node.starts_with("vd") || node.starts_with("sd"));
        assert_eq!(nodes, Vec::<String>::new(), "disks are in /dev");
    });
    house.assert_clean();
}

#[test]
fn services_are_not_started() {
    needs!(root(), loops(), fixtures());
    let house = House::with(&standard(), &DiskOptions::default().size_mib(256));
    let [.., name] = house.run(&["service-bake"]).succeeds().image();
    image::inspect(&house.export(&name), |root| {
        assert!(root.has("/var/lib/service-bake/tried"));
        assert!(!root.has("/var/lib/service-bake/started"), "a service was started");
        assert!(!root.has("/usr/sbin/policy-rc.d"));
    });
    house.assert_clean();
}

#[test]
fn an_evil_package_breaches_nothing() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "what only the host knows").unwrap();
    let canary = Canary::watching([secret.as_path()]);
    let target = EvilTarget::new(secret.clone(), "what only the host knows");
    let repository = Repository::create(&folder.path().join("repository"), &[evil(&target)]);
    let house = House::with(&repository, &DiskOptions::default().size_mib(256));
    let [.., name] = house.run(&["evil-bake"]).succeeds().image();
    image::inspect(&house.export(&name), |root| {
        let report = root.text("/var/lib/evil/report");
        let breached: Vec<_> = report.lines().filter(|line| line.starts_with("breached")).collect();
        assert!(report.contains("held") && breached.is_empty(), "{report}");
    });
    canary.assert_unchanged();
    house.assert_clean();
}

#[test]
fn a_package_that_kills_everything_kills_only_its_own_world() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::create(folder.path(), &[killer()]);
    let house = House::with(&repository, &DiskOptions::default().size_mib(256));
    house.run(&["killer-bake"]).ends_with(20);
    assert_eq!(house.shelf("snapshots"), Vec::<String>::new());
    house.assert_clean();
}
