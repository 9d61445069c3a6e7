//! The store: regions, their shelves, and looking things up.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bake_core::{Region, Tags};
use bake_engine::Op;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreResult};
use crate::making;
use crate::record::{self, BaseRecord, ImageRecord, Named, Record, SnapshotRecord, VolumeRecord};
use crate::shelf::Shelf;

/// The file of a thing's bytes.
pub(crate) const DISK: &str = "disk.raw";

/// The lock of a region: held while names are checked and given, and while records are replaced.
const LOCK: &str = ".lock";

/// How alike a name must be to be meant, from 0 to 1. Jaro-Winkler favours a common beginning, which versions of one name have.
const SIMILAR: f64 = 0.85;

/// A folder that holds base images, volumes, snapshots and images, by region.
///
/// All its methods block, for as long as it takes to copy a disk at most; those that run programs are `async`. Any number
/// of processes may work in one store at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    root: PathBuf,
}

/// Whether a removal happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is not there any more, or never was.
    Gone,
    /// Somebody uses it: who, for people.
    InUse(String),
}

/// On whose behalf something is made: it decides the id, the time and the tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// What the id is made of: the same token gives the same thing.
    pub token: String,
    /// When it was meant to be made.
    pub time: Timestamp,
    /// Tags that everything it makes carries.
    pub tags: Tags,
}

impl From<&Op> for Maker {
    fn from(op: &Op) -> Self {
        Self { token: op.token().into(), time: op.time(), tags: op.tags() }
    }
}

impl Maker {
    /// Lets what it makes carry these tags as well. Those that tell who made it cannot be replaced.
    #[must_use]
    pub(crate) fn with_tags(mut self, tags: Tags) -> Self {
        self.tags = tags.into_iter().chain(self.tags).collect();
        self
    }

    /// Makes one for work that belongs to no run. Its things are new ones.
    pub(crate) fn outside_runs() -> StoreResult<Self> {
        let token = crate::random::bytes()?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { token, time: whole_seconds(Timestamp::now()), tags: Tags::new() })
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

impl Store {
    /// Names the store in a folder. The folder need not be there: it is made when something is put into it.
    pub fn open(path: impl AsRef<Path>) -> StoreResult<Self> {
        let path = path.as_ref();
        let root = std::path::absolute(path).map_err(StoreError::io("find the folder", path))?;
        Ok(Self { root })
    }

    /// Returns the folder, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns the regions that hold something, by name.
    pub fn regions(&self) -> StoreResult<Vec<Region>> {
        let names = folder_names(&self.root)?;
        Ok(names.into_iter().filter(|name| check_region(name).is_ok()).map(Region::new).collect())
    }

    /// Removes what processes that died have left half-made in a region. Returns how much it was.
    ///
    /// Making something does it for its own shelf, so nobody has to call this.
    pub fn sweep(&self, region: &Region) -> StoreResult<usize> {
        Shelf::ALL.iter().map(|shelf| making::sweep(&self.shelf(region, *shelf)?)).sum()
    }

    /// Returns the base images of a region, newest first.
    pub fn bases(&self, region: &Region) -> StoreResult<Vec<BaseRecord>> {
        self.list(region)
    }

    /// Returns the volumes of a region, newest first.
    pub fn volumes(&self, region: &Region) -> StoreResult<Vec<VolumeRecord>> {
        self.list(region)
    }

    /// Returns the snapshots of a region, newest first.
    pub fn snapshots(&self, region: &Region) -> StoreResult<Vec<SnapshotRecord>> {
        self.list(region)
    }

    /// Returns the images of a region, newest first.
    pub fn images(&self, region: &Region) -> StoreResult<Vec<ImageRecord>> {
        self.list(region)
    }

    /// Returns the base image of that id or name.
    pub fn base(&self, region: &Region, wanted: &str) -> StoreResult<BaseRecord> {
        self.one(region, wanted)
    }

    /// Returns the image of that id or name.
    pub fn image(&self, region: &Region, wanted: &str) -> StoreResult<ImageRecord> {
        self.one(region, wanted)
    }

    /// The folder of a shelf.
    pub(crate) fn shelf(&self, region: &Region, shelf: Shelf) -> StoreResult<PathBuf> {
        check_region(region.as_str())?;
        Ok(self.root.join(region.as_str()).join(shelf.folder()))
    }

    /// The folder of a thing. `None` for a text that is no id: no such thing can be there.
    pub(crate) fn place(&self, region: &Region, shelf: Shelf, id: &str) -> StoreResult<Option<PathBuf>> {
        let folder = self.shelf(region, shelf)?;
        Ok(shelf.is_id(id).then(|| folder.join(id)))
    }

    /// Reads the record of an id.
    pub(crate) fn read<R: Record>(&self, region: &Region, id: &str) -> StoreResult<Option<R>> {
        match self.place(region, R::SHELF, id)? {
            Some(place) => record::read(&place),
            None => Ok(None),
        }
    }

    /// Reads the record of an id that ought to be there, and tells its folder.
    pub(crate) fn existing<R: Record>(&self, region: &Region, id: &str) -> StoreResult<(PathBuf, R)> {
        let place = self.place(region, R::SHELF, id)?;
        let record = place.as_deref().map(record::read).transpose()?.flatten();
        place.zip(record).ok_or_else(|| StoreError::NotFound {
            what: R::SHELF.word(),
            wanted: id.into(),
            region: region.clone(),
            similar: None,
            candidates: Vec::new(),
        })
    }

    fn list<R: Record>(&self, region: &Region) -> StoreResult<Vec<R>> {
        let shelf = self.shelf(region, R::SHELF)?;
        let names = folder_names(&shelf)?;
        let ids = names.iter().filter(|name| R::SHELF.is_id(name));
        // A thing may go away between the two looks.
        let read = ids.filter_map(|id| record::read::<R>(&shelf.join(id)).transpose());
        let mut records = read.collect::<StoreResult<Vec<_>>>()?;
        records.sort_by(|a, b| b.created().cmp(&a.created()).then_with(|| a.id().cmp(b.id())));
        Ok(records)
    }

    fn one<R: Named>(&self, region: &Region, wanted: &str) -> StoreResult<R> {
        if let Some(record) = self.read(region, wanted)? {
            return Ok(record);
        }
        let mut all = self.list::<R>(region)?;
        match all.iter().position(|record| record.name() == wanted) {
            Some(index) => Ok(all.swap_remove(index)),
            None => Err(not_found(R::SHELF.word(), region, wanted, all.iter().map(|one| (one.name(), one.line())))),
        }
    }

    /// Takes the lock of a region; it is held until the file is dropped. Nobody holds it for longer than a few records take.
    pub(crate) fn lock(&self, region: &Region) -> StoreResult<File> {
        check_region(region.as_str())?;
        let folder = self.root.join(region.as_str());
        making::make_folder(&folder).map_err(StoreError::io("create the folder", &folder))?;
        let path = folder.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        file.and_then(|file| file.lock().map(|()| file)).map_err(StoreError::io("lock", &path))
    }

    /// Refuses a name that another base or image of the region has; `hint` says how another one is given.
    ///
    /// To be sure, call it with the region locked.
    pub(crate) fn check_name_free(&self, region: &Region, name: &str, hint: &'static str) -> StoreResult<()> {
        let taken = |holder, id: &str| StoreError::NameTaken {
            name: name.into(),
            region: region.clone(),
            holder,
            id: id.into(),
            hint,
        };
        if let Some(image) = self.images(region)?.iter().find(|image| image.name == name) {
            return Err(taken(Shelf::Images.word(), &image.id));
        }
        match self.bases(region)?.iter().find(|base| base.name == name) {
            Some(base) => Err(taken(Shelf::Bases.word(), &base.id)),
            None => Ok(()),
        }
    }
}

/// An error that lists what there is and says what was probably meant.
pub(crate) fn not_found<'a>(
    what: &'static str,
    region: &Region,
    wanted: &str,
    there: impl Iterator<Item = (&'a str, String)> + Clone,
) -> StoreError {
    let alike = there.clone().map(|(name, _)| (strsim::jaro_winkler(name, wanted), name));
    let similar = alike.filter(|(alike, _)| *alike >= SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0));
    StoreError::NotFound {
        what,
        wanted: wanted.into(),
        region: region.clone(),
        similar: similar.map(|(_, name)| name.into()),
        candidates: there.map(|(_, line)| line).collect(),
    }
}

/// Longest image name, in characters; EC2 allows no more.
const NAME_LIMIT: usize = 128;

/// Refuses names that would confuse people or look like ids.
pub(crate) fn check_name(name: &str) -> StoreResult<()> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.chars().count() > NAME_LIMIT {
        "it has more than 128 characters"
    } else if name.starts_with(['-', '.']) {
        "it begins like an option or a hidden file"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else if Shelf::ALL.iter().any(|shelf| shelf.is_id(name)) {
        "it has the form of an id"
    } else {
        return Ok(());
    };
    Err(StoreError::Name { name: name.into(), reason })
}

pub(crate) fn check_region(name: &str) -> StoreResult<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let good = name.len() <= 64 && name.chars().all(legal) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good { Ok(()) } else { Err(StoreError::RegionName(name.into())) }
}

/// The names in a folder, sorted; none if it is not there.
fn folder_names(folder: &Path) -> StoreResult<Vec<String>> {
    let read = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<Vec<_>>>()
    });
    match read {
        Ok(mut names) => {
            names.sort();
            Ok(names)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StoreError::io("read the folder", folder)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shop, message};

    #[test]
    fn an_empty_store_is_empty_and_nothing_is_made_by_looking() {
        let shop = Shop::new();
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
        assert!(shop.store.regions().unwrap().is_empty());
        assert_eq!(shop.store.sweep(&shop.region).unwrap(), 0);
        assert!(!shop.store.path().exists());
    }

    #[test]
    fn hostile_regions_never_become_paths() {
        let shop = Shop::new();
        for name in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "-x", &"x".repeat(65)] {
            let refused = shop.store.bases(&Region::new(name)).unwrap_err();
            assert!(matches!(refused, StoreError::RegionName(_)), "{name}");
        }
        assert!(shop.store.bases(&Region::new("eu-west-1")).is_ok());
    }

    #[test]
    fn strangers_in_the_store_are_not_seen() {
        let shop = Shop::new();
        shop.base("debian", b"disk");
        let shelf = shop.store.shelf(&shop.region, Shelf::Bases).unwrap();
        fs::write(shelf.join("README"), "hello").unwrap();
        fs::write(shelf.join(Shelf::Bases.id("a file")), "hello").unwrap();
        fs::create_dir(shelf.join("lost+found")).unwrap();
        fs::create_dir(shelf.join(Shelf::Bases.id("without a record"))).unwrap();
        assert_eq!(shop.store.bases(&shop.region).unwrap().len(), 1);
    }

    #[test]
    fn a_name_that_is_not_there_lists_what_is() {
        let shop = Shop::new();
        shop.base("debian-bookworm", b"disk");
        let error = shop.store.base(&shop.region, "debian-bokworm").unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        there is no base image `debian-bokworm` in region `here`
          [id]  debian-bookworm  0 MiB  2026-11-30 12:00
        hint: did you mean `debian-bookworm`?
        ");
        let error = shop.store.base(&shop.region, "../../etc").unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        there is no base image `../../etc` in region `here`
          [id]  debian-bookworm  0 MiB  2026-11-30 12:00
        ");
        let error = shop.store.base(&Region::new("there"), "debian").unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        there is no base image `debian` in region `there`
        hint: make one with `bake base create debian --suite bookworm`
        ");
    }

    #[test]
    fn a_store_that_cannot_be_written_says_where_and_what_was_tried() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("store"), "a file is in the way").unwrap();
        let store = Store::open(folder.path().join("store")).unwrap();
        let error = store.lock(&Region::new("here")).unwrap_err();
        insta::assert_snapshot!(message(&error), @"cannot create the folder `[folder]/store/here`: Not a directory (os error 20)");
    }
}
