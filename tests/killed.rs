//! `kill -9` at any moment: within seconds the host has no mount, no loop device and no process of the bake.

use std::time::{Duration, Instant};

use bake_testing::base::DiskOptions;
use bake_testing::host::Leftover;
use bake_testing::needs;
use bake_testing::packages::{Repository, daemon, slow};

use crate::house::House;

/// How long the kernel may take to clean up.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn a_killed_bake_leaves_nothing_on_the_host() {
    needs!(root(), loops(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let marker = format!("daemon-of-{}", std::process::id());
    // The daemon is started first, in a session of its own; then the install goes on for a while.
    let packages = [daemon(&marker), slow(Duration::from_secs(20)).depends("daemon-bake")];
    let house = House::with(&Repository::create(folder.path(), &packages), &DiskOptions::default().size_mib(256));
    let left = house.leftovers().or_argument(&marker);

    for moment in [0, 20, 60, 150, 400] {
        let mut bake = house.start(&["--fresh", "slow-bake"]);
        wait(Duration::from_millis(moment));
        bake.kill().unwrap();
        bake.wait().unwrap();
        left.wait_gone(LIMIT);
    }

    let mut bake = house.start(&["--fresh", "slow-bake"]);
    let is_daemon = |left: &Leftover| matches!(left, Leftover::Process { command, .. } if command.contains(&marker));
    let running = left.wait_for(Duration::from_secs(30), is_daemon);
    assert!(running.iter().any(|left| matches!(left, Leftover::Loop { .. })), "{running:?}");
    bake.kill().unwrap();
    bake.wait().unwrap();
    left.wait_gone(LIMIT);
    assert_eq!(house.shelf("snapshots"), Vec::<String>::new());
    house.assert_clean();
}

/// Lets time pass; what is tested is what happens at that moment.
fn wait(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::thread::yield_now();
    }
}
