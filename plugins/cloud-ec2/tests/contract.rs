//! EC2 keeps the contract of clouds, with the double behind it and a bake's disks on this machine.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_double::{Double, Machine, SeedImage};
use bake_core::{Cloud, Medium, Region};
use bake_engine::Mutations;
use bake_testing::contract::{self, CloudWorld};
use cloud_ec2::{Ec2Cloud, Ec2Settings, Folders, Keys};
use host_disks::Host;
use tempfile::TempDir;

const ACCOUNT: &str = "111122223333";
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const HERE: &str = "us-east-1";
const THERE: &str = "eu-west-1";

/// An account with base images, and folders of its own.
struct Account {
    double: Double,
    folder: TempDir,
    base: Option<String>,
    medium: Medium,
}

impl Account {
    async fn with(bases: &[&str], medium: Medium) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::new(ACCOUNT, HERE, folder.path().join("machine"));
        let double = Double::builder().account(ACCOUNT, KEY).region(HERE).region(THERE).machine(machine);
        let double = double.start().await.unwrap();
        let disk = folder.path().join("disk");
        let file = fs::File::create(&disk).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"the bytes of a base", 5 << 20).unwrap();
        for name in bases {
            let snapshot = double.seed_snapshot(ACCOUNT, HERE, &disk).unwrap();
            double.seed_image(ACCOUNT, HERE, SeedImage::new(name, &snapshot)).unwrap();
        }
        fs::remove_file(disk).unwrap();
        let base = match bases {
            [only] => Some((*only).to_owned()),
            _ => None,
        };
        Self { double, folder, base, medium }
    }
}

impl CloudWorld for Account {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        let settings = Ec2Settings {
            region: Some(Region::new(HERE)),
            base: self.base.clone(),
            endpoint: Some(self.double.endpoint()),
            pace: Duration::from_millis(2),
            patience: Duration::from_millis(20),
            ..Ec2Settings::default()
        };
        let folders = Folders {
            disks: self.folder.path().join("disks"),
            cache: self.folder.path().join("cache"),
            uploads: PathBuf::new(),
            host: Host::default(),
        };
        let keys = Keys { access: KEY.into(), secret: "secret".into(), metadata: Some(self.double.endpoint()) };
        Arc::new(Ec2Cloud::with_keys(settings, &folders, Some(keys), mutations))
    }

    fn inventory(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for region in [HERE, THERE] {
            let images = self.double.images(ACCOUNT, region);
            let image = |image: &aws_double::Image| {
                format!("{region} {} {} {:?} {:?} {}", image.id, image.name, image.tags, image.disks, image.state())
            };
            lines.extend(images.iter().map(image));
            let snapshots = self.double.snapshots(ACCOUNT, region);
            let snapshot = |one: &aws_double::Snapshot| format!("{region} {} {:?} {}", one.id, one.tags, one.state().0);
            lines.extend(snapshots.iter().map(snapshot));
            let volumes = self.double.volumes(ACCOUNT, region);
            lines.extend(volumes.iter().map(|one| format!("{region} {} {:?} {}", one.id, one.tags, one.state())));
        }
        describe(&self.folder.path().join("disks"), &mut lines);
        lines.sort();
        lines
    }

    fn medium(&self) -> Option<Medium> {
        Some(self.medium)
    }

    fn makes_twice(&self) -> &[&str] {
        &["ec2.volume_snapshot"]
    }

    fn another_region(&self) -> Region {
        Region::new(THERE)
    }
}

/// Every file of a disk. Of an upload there is a journal, which goes with its disk.
fn describe(folder: &Path, lines: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => describe(&path, lines),
            Some("journal") => {}
            _ => lines.push(format!("{} {} bytes", path.display(), fs::metadata(&path).unwrap().len())),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ec2_keeps_the_contract_with_disk_files() {
    contract::cloud(async |bases: &[&str]| Account::with(bases, Medium::File).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ec2_keeps_the_contract_with_attached_volumes() {
    contract::cloud(async |bases: &[&str]| Account::with(bases, Medium::Attached).await).await;
}
