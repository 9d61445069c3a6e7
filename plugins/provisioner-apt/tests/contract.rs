//! `apt` keeps the contract of provisioners, in a root with a real `apt-get`.

use std::fs::File;
use std::sync::Arc;

use bake_core::{Disk, Volumes};
use bake_engine::{Cancel, StepContext};
use bake_testing::base::{DiskOptions, disk};
use bake_testing::contract::{self, ProvisionerCase};
use bake_testing::host::{Canary, Leftovers};
use bake_testing::packages::standard;
use bake_testing::{copy_disk, needs};
use provisioner_apt::{Apt, AptSettings};
use volume_linux::LinuxVolumes;

bake_linux::sandbox_test_entry!();

fn settings(repository: &str) -> AptSettings {
    let settings = serde_json::json!({ "repositories": [repository], "own_sources": false });
    serde_json::from_value(settings).unwrap()
}

#[tokio::test]
async fn apt_keeps_the_contract() {
    needs!(root(), loops(), fixtures());
    use_sandbox();
    let (canary, repository) = (Canary::new(), standard());
    let base = disk(&DiskOptions::default().size_mib(256));
    let work = tempfile::Builder::new().prefix("bake-apt-").tempdir().unwrap();
    contract::provisioner(async || {
        let folder = tempfile::tempdir_in(work.path()).unwrap();
        let path = folder.path().join("disk.raw");
        copy_disk(&base, &path);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let cx = StepContext::detached("open", &Cancel::new());
        ProvisionerCase {
            provisioner: Arc::new(Apt::new(settings(&repository.source())).unwrap()),
            volume: LinuxVolumes::default().open(cx, Disk { file, path }).await.unwrap(),
            package_file: repository.file("hello-bake", "1.0"),
            foreign_file: folder.path().join("hello-1.0-1.noarch.rpm"),
            liar: ("/usr/bin/apt-get", "#!/bin/sh\nexit 0\n"),
            keep: Box::new(folder),
        }
    })
    .await;
    Leftovers::of(work.path()).assert_none();
    canary.assert_unchanged();
}
