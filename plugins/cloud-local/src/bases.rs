//! Base images: putting one into the store, and finding the one that is meant.

use std::fs;
use std::path::PathBuf;

use bake_core::{Architecture, BaseId, BaseImage, Machine, Region, Tags};

use crate::disk;
use crate::error::{StoreError, StoreResult};
use crate::making::{self, Begun, Making};
use crate::record::{self, BaseRecord, ImageRecord, Named};
use crate::shelf::Shelf;
use crate::store::{DISK, Maker, Store, check_name, not_found};

const ANOTHER_NAME: &str = "choose another name with `--name`, or remove that one first";

/// What is known of a base before its disk is made.
#[derive(Clone, Debug)]
pub(crate) struct NewBase {
    pub(crate) name: String,
    pub(crate) architecture: Architecture,
    pub(crate) source: String,
    pub(crate) checksum: Option<String>,
}

/// A base whose disk is being made. Dropping it removes everything.
pub(crate) struct BaseDraft {
    making: Making,
    region: Region,
    record: BaseRecord,
}

impl BaseDraft {
    /// The folder it is made in; only the disk may stay there.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.making.folder()
    }

    /// Where its disk has to be.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder().join(DISK)
    }

    /// Makes it appear.
    pub(crate) fn finish(mut self, store: &Store) -> StoreResult<BaseRecord> {
        let disk = self.disk();
        self.record.size = fs::metadata(&disk).map_err(StoreError::io("look at", &disk))?.len();
        disk::seal(&disk)?;
        record::write(self.making.folder(), &self.record)?;
        // The name was free when the work began; that may be a minute ago.
        let _lock = store.lock(&self.region)?;
        store.check_name_free(&self.region, &self.record.name, ANOTHER_NAME)?;
        self.making.finish()?;
        Ok(self.record)
    }
}

impl Store {
    /// Begins to make a base. A name that is taken is refused now, before any work is done.
    pub(crate) fn begin_base(&self, region: &Region, new: &NewBase, maker: Maker) -> StoreResult<BaseDraft> {
        check_name(&new.name)?;
        self.check_name_free(region, &new.name, ANOTHER_NAME)?;
        let id = Shelf::Bases.id(&maker.token);
        let making = match Making::begin(&self.shelf(region, Shelf::Bases)?, &id)? {
            Begun::New(making) => making,
            Begun::There => return Err(StoreError::BeingMade(id)),
        };
        let record = BaseRecord {
            id,
            name: new.name.clone(),
            architecture: new.architecture.clone(),
            size: 0,
            created: maker.time,
            source: new.source.clone(),
            checksum: new.checksum.clone(),
            tags: maker.tags,
        };
        Ok(BaseDraft { making, region: region.clone(), record })
    }

    /// Removes the base image of that id or name. What was baked from it stays: nothing else refers to its bytes.
    pub fn remove_base(&self, region: &Region, wanted: &str) -> StoreResult<BaseRecord> {
        let base = self.base(region, wanted)?;
        if let Some(place) = self.place(region, Shelf::Bases, &base.id)? {
            making::remove(&place)?;
        }
        Ok(base)
    }

    /// Finds what a bake starts from: a base image or a baked image, by id or exact name; without either, the only base
    /// there is.
    pub fn resolve_base(&self, region: &Region, wanted: Option<&str>) -> StoreResult<BaseImage> {
        let bases = self.bases(region)?.into_iter().map(|base| Candidate::of_base(region, base));
        let Some(wanted) = wanted else { return self.only_base(region, bases.collect()) };
        let images = self.images(region)?.into_iter().map(|image| Candidate::of_image(region, image));
        let all: Vec<_> = bases.chain(images).collect();
        let by_id = |one: &Candidate| one.image.id.as_str() == wanted;
        let by_name = |one: &Candidate| one.image.name == wanted;
        let mut meant: Vec<_> = all.iter().filter(|one| by_id(one)).collect();
        if meant.is_empty() {
            meant = all.iter().filter(|one| by_name(one)).collect();
        }
        match meant.as_slice() {
            [] => {
                let there = all.iter().map(|one| (one.image.name.as_str(), one.line.clone()));
                Err(not_found(Shelf::Bases.word(), region, wanted, there))
            }
            [one] => Ok(one.image.clone()),
            several => Err(StoreError::Ambiguous {
                wanted: wanted.into(),
                region: region.clone(),
                candidates: several.iter().map(|one| one.line.clone()).collect(),
            }),
        }
    }

    fn only_base(&self, region: &Region, mut bases: Vec<Candidate>) -> StoreResult<BaseImage> {
        match bases.len() {
            0 => Err(StoreError::NoBases { region: region.clone(), store: self.path().to_owned() }),
            1 => Ok(bases.remove(0).image),
            _ => Err(StoreError::NoBaseChosen {
                region: region.clone(),
                candidates: bases.into_iter().map(|one| one.line).collect(),
            }),
        }
    }
}

/// Something a bake can start from.
struct Candidate {
    image: BaseImage,
    line: String,
}

impl Candidate {
    fn of_base(region: &Region, base: BaseRecord) -> Self {
        Self::new(region, &base, base.architecture.clone(), base.tags.clone())
    }

    fn of_image(region: &Region, image: ImageRecord) -> Self {
        Self::new(region, &image, image.architecture.clone(), image.tags.clone())
    }

    fn new(region: &Region, record: &impl Named, architecture: Architecture, tags: Tags) -> Self {
        let image = BaseImage {
            id: BaseId::new(record.id()),
            name: record.name().into(),
            region: region.clone(),
            architecture,
            size: record.size(),
            tags,
            snapshot: None,
            machine: Machine::default(),
            borrowed: false,
        };
        Self { image, line: record.line() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shop, message};

    fn resolve(shop: &Shop, wanted: Option<&str>) -> StoreResult<BaseImage> {
        shop.store.resolve_base(&shop.region, wanted)
    }

    #[test]
    fn the_only_base_is_meant_when_nobody_says_which() {
        let shop = Shop::new();
        let error = resolve(&shop, None).unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        region `here` of the store `[folder]/store` has no base image
        hint: make one with `bake base create debian --suite bookworm`
        ");
        let base = shop.base("debian", b"disk");
        assert_eq!(resolve(&shop, None).unwrap().id.as_str(), base.id);
        shop.base("other", b"disk");
        let error = resolve(&shop, None).unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        region `here` has 2 base images, and none was chosen
          [id]  other  0 MiB  2026-11-30 12:00
          [id]  debian  0 MiB  2026-11-30 12:00
        hint: choose one with `--base NAME`
        ");
    }

    #[test]
    fn bases_and_images_are_found_by_id_and_exact_name() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        for wanted in [&image.id, "hello"] {
            assert_eq!(resolve(&shop, Some(wanted)).unwrap().id.as_str(), image.id);
        }
        assert_eq!(resolve(&shop, Some("base of hello")).unwrap().size, 17);
        assert!(resolve(&shop, None).is_ok(), "images do not count when nobody says which");
        let error = resolve(&shop, Some("helo")).unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        there is no base image `helo` in region `here`
          [id]  base of hello  0 MiB  2026-11-30 12:00
          [id]  hello  0 MiB  2026-11-30 12:00
        hint: did you mean `hello`?
        ");
    }

    #[test]
    fn a_base_that_is_not_finished_leaves_nothing() {
        let shop = Shop::new();
        let new = NewBase {
            name: "debian".into(),
            architecture: Architecture::of_this_machine(),
            source: String::new(),
            checksum: None,
        };
        let draft = shop.store.begin_base(&shop.region, &new, Maker::outside_runs().unwrap()).unwrap();
        fs::write(draft.disk(), "half").unwrap();
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
        let shelf = draft.folder().parent().unwrap().to_owned();
        drop(draft);
        assert_eq!(fs::read_dir(shelf).unwrap().count(), 0);
    }

    #[test]
    fn a_base_can_be_removed_and_its_name_used_again() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        shop.store.remove_base(&shop.region, "base of hello").unwrap();
        assert!(shop.store.disk_of(&shop.region, &image.id).unwrap().exists());
        shop.base("base of hello", b"disk");
    }
}
