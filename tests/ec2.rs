//! Bakes on EC2, from anywhere and on an instance: against the double, over a socket, with real bytes.

use std::process::Command;

use aws_double::{Double, Image, Kernel, Machine, SeedImage};
use bake_testing::base::{DiskOptions, disk};
use bake_testing::packages::standard;
use bake_testing::{image, needs};
use tokio::runtime::Runtime;

use crate::house::{House, Said};

pub(crate) const ACCOUNT: &str = "111122223333";
pub(crate) const FRIEND: &str = "222233334444";
pub(crate) const OTHER: &str = "333344445555";
const ROLE: &str = "arn:aws:iam::333344445555:role/baker";
pub(crate) const THIRD: &str = "444455556666";
const THIRD_ROLE: &str = "arn:aws:iam::444455556666:role/baker";
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
pub(crate) const HOME: &str = "us-east-1";
pub(crate) const THERE: &str = "eu-west-1";
const REGIONS: [&str; 3] = [HOME, THERE, "ap-southeast-2"];

/// A house whose cloud is the double.
pub(crate) struct Cloud {
    pub(crate) house: House,
    pub(crate) double: Double,
    _runtime: Runtime,
    pub(crate) base: String,
    on_an_instance: bool,
}

impl Cloud {
    /// A cloud that is baked for from anywhere.
    pub(crate) fn new() -> Self {
        Self::with(None, &REGIONS)
    }

    /// A cloud on one of whose instances `bake` runs, with the instance's own credentials and region.
    pub(crate) fn on_an_instance(kernel: Kernel) -> Self {
        Self::with(Some(kernel), &REGIONS)
    }

    /// A cloud that has other regions.
    pub(crate) fn with_regions(regions: &[&str]) -> Self {
        Self::with(None, regions)
    }

    fn with(kernel: Option<Kernel>, regions: &[&str]) -> Self {
        let house = House::empty(&standard());
        let runtime = Runtime::new().expect("a runtime");
        let builder = Double::builder().account(ACCOUNT, KEY).role(ROLE).role(THIRD_ROLE);
        let builder = regions.iter().fold(builder, |builder, region| builder.region(region));
        let machine = |kernel| Machine::new(ACCOUNT, HOME, house.path().join("machine")).kernel(kernel);
        let builder = kernel.into_iter().fold(builder, |builder, kernel| builder.machine(machine(kernel)));
        let double = runtime.block_on(builder.start()).expect("a free port");
        let bytes = disk(&DiskOptions::default().size_mib(256));
        let snapshot = double.seed_snapshot(ACCOUNT, HOME, &bytes).expect("the disk can be read");
        let mut seed = SeedImage::new("debian-base", &snapshot);
        seed.tags.insert("base_ami_version".into(), "debian-base-1".into());
        let base = double.seed_image(ACCOUNT, HOME, seed).expect("the snapshot is there");
        let cloud = Self { house, double, _runtime: runtime, base, on_an_instance: kernel.is_some() };
        cloud.environment("");
        cloud
    }

    /// Returns the id of a base image that everybody may use, of another account.
    pub(crate) fn public_base(&self) -> String {
        let bytes = disk(&DiskOptions::default().size_mib(256));
        let snapshot = self.double.seed_snapshot(OTHER, HOME, &bytes).expect("the disk can be read");
        let public = SeedImage { public: true, ..SeedImage::new("public-base", &snapshot) };
        self.double.seed_image(OTHER, HOME, public).expect("the snapshot is there")
    }

    /// Sets the environment, with more settings of the finalizers.
    pub(crate) fn environment(&self, finalizers: &str) {
        self.environment_with_set("ebs", finalizers);
    }

    /// The same, with another finalizer set.
    pub(crate) fn environment_with_set(&self, set: &str, finalizers: &str) {
        let (cache, machine) = (self.house.path().join("cache"), self.house.path().join("machine"));
        let (environment, region) = match self.on_an_instance {
            true => ("ec2_apt_linux", String::new()),
            false => ("ec2_apt_loop", format!("region: {HOME}, ")),
        };
        self.house.rewrite(|usual| {
            usual.replace("extends: local_apt_linux", &format!("extends: {environment}")).replace(
                "  plugins:\n",
                &format!(
                    "  finalizer_set: {set}\n  plugins:\n    finalizer: {{ {finalizers} }}\n    cloud:\n      ec2: {{ {region}base: debian-base, \
                     pace: 10ms, patience: 100ms, roles: {{ \"{OTHER}\": \"{ROLE}\", \"{THIRD}\": \"{THIRD_ROLE}\" }} }}\n"
                ),
            ) + &format!("cache_dir: {}\nhost_root: {}\n", cache.display(), machine.display())
        });
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.house.command(words);
        command.env("AWS_ENDPOINT_URL", self.double.endpoint());
        match self.on_an_instance {
            true => command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", self.double.endpoint()),
            false => command
                .env("AWS_EC2_METADATA_DISABLED", "true")
                .env("AWS_ACCESS_KEY_ID", KEY)
                .env("AWS_SECRET_ACCESS_KEY", "secret"),
        };
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words).output().expect("`bake` starts"))
    }

    /// Images but the base.
    pub(crate) fn images(&self, region: &str) -> Vec<Image> {
        self.double.images(ACCOUNT, region).into_iter().filter(|image| image.id != self.base).collect()
    }

    /// Downloads the root snapshot of an image and looks whether a package is in it.
    pub(crate) fn has_package(&self, region: &str, image: &Image, package: &str) -> bool {
        let to = self.house.path().join(format!("{}.raw", image.id));
        self.double.write_snapshot(region, &image.disks[0].snapshot, &to).expect("the snapshot is there");
        image::check(&to);
        image::inspect(&to, |root| root.packages().get(package).is_some_and(|package| package.is_installed()))
    }
}

#[test]
fn an_ami_is_made_of_what_the_bake_changed() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    let said = cloud.run(&["hello-dep"]);
    let [region, account, kind, id, name] = said.succeeds().image();
    assert_eq!([region.as_str(), &account, &kind], [HOME, ACCOUNT, "ebs"]);
    assert!(name.starts_with("hello-dep-1.0-0-x86_64-") && name.ends_with("-ebs"), "{name}");

    let images = cloud.images(HOME);
    let [image] = &images[..] else { panic!("{images:?}") };
    assert_eq!((&image.id, &image.name, image.state()), (&id, &name, "available"));
    assert_eq!((image.root_device.as_str(), image.ena, image.virtualization.as_str()), ("/dev/xvda", true, "hvm"));
    assert_eq!(image.boot_mode.as_deref(), Some("uefi-preferred"), "as the base has it");
    assert_eq!(image.disks[0].kind, "gp3");
    assert_eq!(image.tags["appversion"], "hello-dep-1.0-0");
    assert_eq!(image.tags["base_ami_version"], "debian-base-1");
    assert!(image.tags.contains_key("bake:run"));
    assert!(cloud.has_package(HOME, image, "hello-dep"));
    assert!(cloud.has_package(HOME, image, "hello-bake"));

    let snapshots = cloud.double.snapshots(ACCOUNT, HOME);
    let snapshot = snapshots.iter().find(|one| one.id == image.disks[0].snapshot).expect("it is the account's");
    assert_eq!(snapshot.tags["appversion"], "hello-dep-1.0-0");
    let puts = cloud.double.requests().iter().filter(|request| request.operation == "PutSnapshotBlock").count();
    assert!((1..200).contains(&puts), "{puts} of 512 blocks were sent, for two small packages");
    cloud.house.assert_clean();

    // The second bake fetches nothing.
    let before = cloud.double.requests().len();
    cloud.run(&["hello-bake"]).succeeds();
    let after = cloud.double.requests().split_off(before);
    assert!(after.iter().all(|request| request.operation != "GetSnapshotBlock"), "the base is here already");
    let well = ["200", "DryRunOperation"];
    let refused: Vec<_> = after.iter().filter(|request| !well.contains(&request.outcome.as_str())).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn images_go_to_three_regions_and_two_accounts() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    cloud.environment(&format!(
        "tag_artifacts: {{ copy_tags: {{ where: \"{{{{ region }}}}\" }} }}, distribute_images: {{ regions: [{}], accounts: \
         [\"{FRIEND}\"], copy_to: [\"{OTHER}\"], deprecate_after: 90d, protect: true }}",
        REGIONS.join(", ")
    ));
    let said = cloud.run(&["hello-bake", "--result", "result.json"]);
    assert_eq!(said.succeeds().stdout.lines().count(), 1 + 2 + 3, "{}", said.stdout);

    for (account, region) in [ACCOUNT, OTHER].into_iter().flat_map(|account| REGIONS.map(|region| (account, region))) {
        let images = cloud.double.images(account, region).into_iter().filter(|image| image.id != cloud.base);
        let images: Vec<_> = images.collect();
        let [image] = &images[..] else { panic!("{account} {region}: {images:?}") };
        assert!(cloud.has_package(region, image, "hello-bake"), "{account} {region}");
        assert_eq!(image.tags["appversion"], "hello-bake-2.0-0", "{account} {region}");
        let snapshots = cloud.double.snapshots(account, region);
        let snapshot = snapshots.iter().find(|one| one.id == image.disks[0].snapshot).expect("it is the account's own");
        assert_eq!(snapshot.tags["appversion"], "hello-bake-2.0-0", "{account} {region}");
        assert_eq!(image.boot_mode.as_deref(), Some("uefi-preferred"));
        assert_eq!(image.protection, "enabled-without-cooldown");
        assert!(image.deprecated.is_some());
        let is_copy = (account, region) != (ACCOUNT, HOME);
        assert_eq!(image.tags.get("where").map(String::as_str), is_copy.then_some(region));
        let with: Vec<_> = image.launch.iter().map(String::as_str).collect();
        let lent = if is_copy { vec![FRIEND] } else { vec![FRIEND, OTHER] };
        assert_eq!(with, if account == ACCOUNT { lent.clone() } else { Vec::new() }, "{account} {region}");
        assert_eq!(snapshot.volumes.iter().map(String::as_str).collect::<Vec<_>>(), with);
    }
    let calls = cloud.double.requests();
    let last_copy = calls.iter().rposition(|call| call.operation == "CopyImage").unwrap();
    let friends = |call: &aws_double::Request| call.parameters.values().any(|value| value == FRIEND);
    let first_share = calls.iter().position(friends).unwrap();
    assert!(last_copy < first_share, "nobody is told of an image before it is everywhere");

    let result: serde_json::Value =
        serde_json::from_slice(&std::fs::read(cloud.house.path().join("result.json")).unwrap()).unwrap();
    let copies = result["copies"].as_array().unwrap();
    assert_eq!(copies.iter().filter(|copy| copy["outcome"] == "copied").count(), 5, "{copies:?}");
    assert_eq!(copies.iter().filter(|copy| copy["account"] == OTHER).count(), 3, "{copies:?}");

    // Another process takes all of it back, in all accounts, although it is protected.
    cloud.run(&["teardown", result["run"].as_str().unwrap()]).succeeds();
    for (account, region) in [ACCOUNT, OTHER].into_iter().flat_map(|account| REGIONS.map(|region| (account, region))) {
        let images = cloud.double.images(account, region).into_iter().filter(|image| image.id != cloud.base).count();
        let snapshots = cloud.double.snapshots(account, region).len();
        let base = usize::from((account, region) == (ACCOUNT, HOME));
        assert_eq!((images, snapshots), (0, base), "{account} {region}");
    }
    cloud.house.assert_clean();
}

// The EBS direct API reads no public snapshots, and begins nothing on top of another account's.
#[test]
fn a_public_base_image_is_copied_once_for_all_bakes() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    let public = cloud.public_base();
    cloud.run(&["--base", &public, "hello-bake"]).succeeds();
    cloud.run(&["--base", &public, "hello-dep"]).succeeds();
    let calls = cloud.double.requests();
    let (dry, real): (Vec<_>, Vec<_>) = calls
        .iter()
        .filter(|call| call.operation == "CopyImage")
        .partition(|call| call.parameters.contains_key("DryRun"));
    assert_eq!((real.len(), dry.len()), (1, 2), "one copy, and a dry run before each bake");
    let images = cloud.images(HOME);
    let own = images.iter().find(|image| image.name == format!("bake base {public}")).expect("the copy stays");
    assert_eq!(own.tags["bake:base"], public);
    let image = images.iter().find(|image| image.name.starts_with("hello-dep")).expect("it was baked");
    assert!(cloud.has_package(HOME, image, "hello-dep"));
    assert_eq!(cloud.run(&["gc", "--older-than", "0s"]).succeeds().stdout, "");
    cloud.house.assert_clean();
}

#[test]
fn what_a_lost_run_made_is_found_by_its_tags() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    let mut bake = cloud.command(&["hello-bake"]);
    let killed = Said::of(bake.env("BAKE_CRASH_AT", "snapshot:accepted").output().expect("`bake` starts"));
    assert_eq!(killed.code, None, "{}", killed.stderr);
    let run = cloud.run(&["runs"]).stdout.split(' ').next().expect("a run").to_owned();
    cloud.run(&["gc", "--older-than", "0s", "--delete"]).succeeds().tells(&format!("bake teardown {run}"));
    assert_eq!(cloud.double.snapshots(ACCOUNT, HOME).len(), 2, "a run that is unfinished keeps what it made");

    std::fs::remove_file(cloud.house.path().join("state/journal.db")).expect("the journal is there");
    let found = cloud.run(&["gc", "--older-than", "0s"]);
    assert_eq!(found.succeeds().stdout.matches(&format!("of run {run}")).count(), 2, "{}", found.stdout);
    let removed = cloud.run(&["gc", "--older-than", "0s", "--delete"]);
    assert_eq!(removed.succeeds().stdout.matches("(removed)").count(), 2, "{}", removed.stdout);
    assert_eq!(cloud.double.snapshots(ACCOUNT, HOME).len(), 1, "the base's stays");
    assert_eq!(cloud.run(&["gc", "--older-than", "0s"]).succeeds().stdout, "");
    cloud.house.assert_clean();
}

#[test]
fn disks_and_fetched_snapshots_are_for_roots_eyes_only() {
    use std::os::unix::fs::PermissionsExt as _;
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    cloud.run(&["--on-error", "keep", "no-such-package"]).ends_with(21);
    let mode = |path: &str| std::fs::metadata(cloud.house.path().join(path)).expect(path).permissions().mode() & 0o777;
    assert_eq!((mode("state/ec2"), mode("state/ec2/disks"), mode("cache/ec2")), (0o700, 0o700, 0o700));
}
