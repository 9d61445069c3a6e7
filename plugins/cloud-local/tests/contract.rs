//! The local cloud keeps the contract of clouds.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bake_core::{Architecture, Cloud, Region};
use bake_engine::Mutations;
use bake_testing::contract::{self, CloudWorld};
use cloud_local::{DiskFormat, ImportOptions, LocalCloud, LocalSettings, Store};
use tempfile::TempDir;

/// A store in a folder of its own.
struct Shop {
    folder: TempDir,
    store: Store,
    region: Region,
}

impl Shop {
    async fn with(bases: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (disk, region) = (folder.path().join("disk"), Region::new("here"));
        fs::write(&disk, vec![7; 1 << 20]).unwrap();
        let store = Store::open(folder.path().join("store")).unwrap();
        for name in bases {
            let options = ImportOptions {
                file: disk.clone(),
                format: Some(DiskFormat::Raw),
                name: (*name).into(),
                checksum: None,
                architecture: Architecture::of_this_machine(),
            };
            store.import(&region, &options, &|_| {}).await.unwrap();
        }
        Self { folder, store, region }
    }
}

impl CloudWorld for Shop {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        let settings = LocalSettings { region: self.region.clone(), base: None };
        Arc::new(LocalCloud::new(self.store.clone(), settings, mutations))
    }

    fn inventory(&self) -> Vec<String> {
        let mut lines = Vec::new();
        describe(&self.folder.path().join("store"), &mut lines);
        lines.sort();
        lines
    }
}

/// Every file below a folder, hidden ones too: what was made half is there as well.
fn describe(folder: &Path, lines: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => describe(&path, lines),
            // The lock of the region is nothing that anybody made.
            _ if name == ".lock" => {}
            Some("json") => lines.push(format!("{} {}", path.display(), fs::read_to_string(&path).unwrap())),
            _ => lines.push(format!("{} {} bytes", path.display(), fs::metadata(&path).unwrap().len())),
        }
    }
}

#[tokio::test]
async fn the_local_cloud_keeps_the_contract() {
    contract::cloud(Shop::with).await;
}
