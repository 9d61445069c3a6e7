//! A first Ctrl-C: stop, undo, leave clean.

use std::time::Duration;

use bake_testing::base::DiskOptions;
use bake_testing::host::Leftover;
use bake_testing::needs;
use bake_testing::packages::{Repository, daemon, slow};

use crate::house::{House, Said};

#[test]
fn a_first_signal_stops_the_install_and_takes_everything_back() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let marker = format!("cancelled-daemon-{}", std::process::id());
    let packages = [daemon(&marker), slow(Duration::from_secs(60)).depends("daemon-bake")];
    let house = House::with(&Repository::create(folder.path(), &packages), &DiskOptions::default().size_mib(256));
    let left = house.leftovers().or_argument(&marker);
    for signal in ["INT", "TERM", "HUP"] {
        let bake = house.start(&["slow-bake"]);
        left.wait_for(
            Duration::from_secs(30),
            |left| matches!(left, Leftover::Process { command, .. } if command.contains(&marker)),
        );
        let sent = std::process::Command::new("kill").args(["-s", signal, &bake.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let said = Said::of(bake.wait_with_output().unwrap());
        said.ends_with(30).tells("stopping");
        left.assert_none();
        for shelf in ["volumes", "snapshots", "images"] {
            assert_eq!(house.shelf(shelf), Vec::<String>::new(), "{shelf} after {signal}");
        }
    }
    house.assert_clean();
}
