//! What the tests of this crate share.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bake_core::{Architecture, BaseId, Machine, Package, Region, RegisterImage, RootDisk, SnapshotId, Tags};
use bake_engine::{Failure, Op, RunId};
use jiff::Timestamp;

use crate::record::{BaseRecord, ImageRecord, SnapshotRecord, VolumeRecord};
use crate::{Maker, NewBase, Store, StoreError, StoreResult};

/// A store in a temporary folder, with short ways to fill it.
pub(crate) struct Shop {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) region: Region,
}

pub(crate) fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

pub(crate) fn op(step: &str) -> Op {
    op_of("20261130-120000-k3f9", step)
}

pub(crate) fn op_of(run: &str, step: &str) -> Op {
    Op::new(&run.parse::<RunId>().unwrap(), step, 1, noon())
}

pub(crate) fn maker(step: &str) -> Maker {
    Maker::from(&op(step))
}

impl Shop {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("store")).unwrap();
        Self { folder, store, region: Region::new("here") }
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A base with that name and exactly these bytes.
    pub(crate) fn base(&self, name: &str, disk: &[u8]) -> BaseRecord {
        let new = NewBase {
            name: name.into(),
            architecture: Architecture::new("x86_64"),
            source: "a test".into(),
            checksum: None,
        };
        let maker = maker(&format!("base {name}"));
        let draft = self.store.begin_base(&self.region, &new, maker).unwrap();
        std::fs::write(draft.disk(), disk).unwrap();
        draft.finish(&self.store).unwrap()
    }

    /// A complete volume.
    pub(crate) fn volume(&self, base: &str, step: &str) -> VolumeRecord {
        let volume = self.store.create_volume(&self.region, &BaseId::new(base), &maker(step)).unwrap();
        self.store.fill_volume(&self.region, &volume.id, |_, _| true).unwrap();
        volume
    }

    pub(crate) fn snapshot(&self, volume: &str, step: &str) -> SnapshotRecord {
        self.store.create_snapshot(&self.region, volume, "a test", &maker(step)).unwrap()
    }

    pub(crate) fn register(&self, snapshot: &str, name: &str, step: &str) -> StoreResult<ImageRecord> {
        self.store.register_image(&self.request(snapshot, name), &maker(step))
    }

    pub(crate) fn request(&self, snapshot: &str, name: &str) -> RegisterImage {
        RegisterImage {
            name: name.into(),
            description: "a test".into(),
            snapshot: SnapshotId::new(snapshot),
            region: self.region.clone(),
            architecture: Architecture::new("x86_64"),
            base: BaseId::new("base-0000000000000000"),
            packages: vec![Package::from_debian("hello", "2.10-3", "amd64")],
            tags: Tags::new(),
            machine: Machine::default(),
            disk: RootDisk::default(),
        }
    }

    /// Base, volume, snapshot and image in one go.
    pub(crate) fn baked(&self, name: &str) -> ImageRecord {
        let base = self.base(&format!("base of {name}"), b"bytes of the base");
        let volume = self.volume(&base.id, &format!("volume of {name}"));
        let snapshot = self.snapshot(&volume.id, &format!("snapshot of {name}"));
        self.register(&snapshot.id, name, &format!("image of {name}")).unwrap()
    }
}

/// Puts a region on another filesystem, where no disk can be linked, for as long as the answer lives. `None`: it has to be
/// skipped. In CI that fails it instead.
pub(crate) fn on_another_filesystem(shop: &Shop, region: &Region) -> Option<tempfile::TempDir> {
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let differ = device(elsewhere.path()) != device(shop.folder.path());
    std::fs::create_dir_all(shop.store.path()).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), shop.store.path().join(region.as_str())).unwrap();
    let need = if differ { Ok(()) } else { Err("temporary files on another filesystem than `/dev/shm`".to_owned()) };
    (!bake_testing::skip::skipped(need)).then_some(elsewhere)
}

/// Tells whether a program is missing, so that the test is to be skipped. In CI that fails it instead.
pub(crate) fn lacks(program: &str) -> bool {
    let found =
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|folder| Path::new(folder).join(program).exists());
    bake_testing::skip::skipped(if found { Ok(()) } else { Err(format!("`{program}` is needed")) })
}

/// An error as a person sees it, without what differs from run to run.
pub(crate) fn message(error: &StoreError) -> String {
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        chain.push(source.to_string());
        next = source.source();
    }
    chain.dedup();
    let mut text = chain.join(": ");
    for line in error.details() {
        text.push_str(&format!("\n  {line}"));
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    scrub(&text)
}

fn scrub(text: &str) -> String {
    let words = text.split_inclusive(|c: char| c.is_whitespace() || c == '`');
    words.map(scrub_word).collect()
}

fn scrub_word(word: &str) -> String {
    let end =
        word.len() - word.chars().next_back().filter(|c| c.is_whitespace() || *c == '`').map_or(0, char::len_utf8);
    let (body, tail) = word.split_at(end);
    let temporary = std::env::temp_dir().join(".tmp");
    if let Some(rest) = body.strip_prefix(temporary.to_str().unwrap()) {
        let inside = rest.find('/').map_or("", |at| &rest[at..]);
        return format!("[folder]{inside}{tail}");
    }
    if crate::shelf::Shelf::ALL.iter().any(|shelf| shelf.is_id(body)) {
        return format!("[id]{tail}");
    }
    word.into()
}
