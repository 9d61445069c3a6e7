//! Images: names for snapshots, and their tags.

use bake_core::{Region, RegisterImage, Taggable, Tags};

use crate::error::StoreResult;
use crate::making::{self, Begun, Making};
use crate::record::{self, ImageRecord, Record, SnapshotRecord};
use crate::shelf::Shelf;
use crate::store::{Maker, Removed, Store, check_name};
use crate::volumes::check_run;

/// How another name is given to what a bake makes.
pub(crate) const ANOTHER_NAME: &str = "choose another name with `--name`, or another `--suffix`";

impl Store {
    /// Gives a snapshot a name. Names are unique in a region, as EC2's are; the same maker gets the same image again.
    pub fn register_image(&self, request: &RegisterImage, maker: &Maker) -> StoreResult<ImageRecord> {
        check_name(&request.name)?;
        let region = &request.region;
        let id = Shelf::Images.id(&maker.token);
        let _lock = self.lock(region)?;
        if let Some(made) = self.read(region, &id)? {
            return Ok(made);
        }
        self.check_name_free(region, &request.name, ANOTHER_NAME)?;
        let (_, SnapshotRecord { size, .. }) = self.existing(region, request.snapshot.as_str())?;
        let making = match Making::begin(&self.shelf(region, Shelf::Images)?, &id)? {
            Begun::New(making) => making,
            Begun::There => return Ok(self.existing(region, &id)?.1),
        };
        let image = ImageRecord {
            id,
            name: request.name.clone(),
            description: request.description.clone(),
            snapshot: request.snapshot.as_str().into(),
            architecture: request.architecture.clone(),
            base: request.base.as_str().into(),
            packages: request.packages.clone(),
            size,
            created: maker.time,
            tags: maker.clone().with_tags(request.tags.clone()).tags,
        };
        record::write(making.folder(), &image)?;
        making.finish()?;
        Ok(image)
    }

    /// Takes an image's name away; its snapshot stays. `run` guards against removing what another run made.
    pub fn deregister_image(&self, region: &Region, id: &str, run: Option<&str>) -> StoreResult<Removed> {
        let _lock = self.lock(region)?;
        let Some((place, image)) = self.find::<ImageRecord>(region, id)? else { return Ok(Removed::Gone) };
        check_run(&image, run)?;
        making::remove(&place)?;
        Ok(Removed::Gone)
    }

    /// Removes the image of that id or name, and its snapshot unless another image is made of that. Returns what it was.
    pub fn remove_image(&self, region: &Region, wanted: &str) -> StoreResult<ImageRecord> {
        let image = self.image(region, wanted)?;
        // `InUse` is what another image of the same snapshot makes of it.
        self.remove_with_snapshot(region, &image.id, &image.snapshot, None)?;
        Ok(image)
    }

    /// Removes an image and then its snapshot, each if it is there.
    pub(crate) fn remove_with_snapshot(
        &self,
        region: &Region,
        image: &str,
        snapshot: &str,
        run: Option<&str>,
    ) -> StoreResult<Removed> {
        self.deregister_image(region, image, run)?;
        self.delete_snapshot(region, snapshot, run)
    }

    /// Sets tags of a snapshot or an image and returns all it has then. Tags of other names stay.
    pub fn set_tags(&self, region: &Region, resource: &Taggable, tags: &Tags) -> StoreResult<Tags> {
        match resource {
            Taggable::Snapshot(id) => self.set_record_tags::<SnapshotRecord>(region, id.as_str(), tags),
            Taggable::Image(id) => self.set_record_tags::<ImageRecord>(region, id.as_str(), tags),
        }
    }

    fn set_record_tags<R: Record>(&self, region: &Region, id: &str, new: &Tags) -> StoreResult<Tags> {
        let _lock = self.lock(region)?;
        let (place, mut record) = self.existing::<R>(region, id)?;
        let before = record.tags().clone();
        record.tags_mut().extend(new.iter().map(|(key, value)| (key.clone(), value.clone())));
        if *record.tags() != before {
            bake_core::check_tags(record.tags())?;
            record::write(&place, &record)?;
        }
        Ok(record.tags().clone())
    }

    /// Returns the tags of a snapshot or an image.
    pub fn tags(&self, region: &Region, resource: &Taggable) -> StoreResult<Tags> {
        Ok(match resource {
            Taggable::Snapshot(id) => self.existing::<SnapshotRecord>(region, id.as_str())?.1.tags,
            Taggable::Image(id) => self.existing::<ImageRecord>(region, id.as_str())?.1.tags,
        })
    }
}

#[cfg(test)]
mod tests {
    use bake_core::{ImageId, SnapshotId};

    use super::*;
    use crate::error::StoreError;
    use crate::testing::{Shop, message};

    #[test]
    fn an_image_is_found_by_id_and_by_name() {
        let shop = Shop::new();
        let image = shop.baked("hello-2.10");
        assert_eq!(shop.store.image(&shop.region, &image.id).unwrap(), image);
        assert_eq!(shop.store.image(&shop.region, "hello-2.10").unwrap(), image);
        assert_eq!(shop.store.images(&shop.region).unwrap(), [image]);
    }

    #[test]
    fn a_name_is_given_once_and_the_same_maker_keeps_it() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        assert_eq!(shop.register(&image.snapshot, "hello", "image of hello").unwrap(), image);
        let error = shop.register(&image.snapshot, "hello", "another step").unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        the name `hello` is taken in region `here` by the image `[id]`
        hint: choose another name with `--name`, or another `--suffix`
        ");
        let error = shop.register(&image.snapshot, "base of hello", "another step").unwrap_err();
        assert!(message(&error).contains("by the base image"));
        assert!(shop.register(&image.snapshot, "hello-2", "another step").is_ok());
    }

    #[test]
    fn of_many_that_want_a_name_at_once_one_gets_it() {
        let shop = Shop::new();
        let snapshot = shop.baked("first").snapshot;
        let taken = std::thread::scope(|scope| {
            let (shop, snapshot) = (&shop, &snapshot);
            let registering =
                (0..8).map(|n| scope.spawn(move || shop.register(snapshot, "hello", &format!("step {n}"))));
            let registering: Vec<_> = registering.collect();
            let results = registering.into_iter().map(|thread| thread.join().unwrap());
            results.filter(|result| matches!(result, Err(StoreError::NameTaken { .. }))).count()
        });
        assert_eq!(taken, 7);
        assert_eq!(shop.store.images(&shop.region).unwrap().len(), 2);
    }

    #[test]
    fn names_are_checked() {
        let shop = Shop::new();
        let snapshot = shop.baked("first").snapshot;
        for name in ["", &"x".repeat(129), "two\nlines", &snapshot] {
            assert!(matches!(shop.register(&snapshot, name, "image"), Err(StoreError::Name { .. })), "{name}");
        }
        assert!(shop.register(&snapshot, &"ä".repeat(128), "image").is_ok());
    }

    #[test]
    fn an_image_needs_its_snapshot() {
        let shop = Shop::new();
        let error = shop.register("snap-0000000000000000", "hello", "image").unwrap_err();
        assert!(matches!(error, StoreError::NotFound { what: "snapshot", .. }));
        assert!(shop.store.images(&shop.region).unwrap().is_empty());
    }

    #[test]
    fn removing_an_image_takes_its_snapshot_unless_another_needs_it() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        shop.register(&image.snapshot, "hello again", "another step").unwrap();
        shop.store.remove_image(&shop.region, "hello").unwrap();
        assert_eq!(shop.store.snapshots(&shop.region).unwrap().len(), 1);
        shop.store.remove_image(&shop.region, "hello again").unwrap();
        assert!(shop.store.snapshots(&shop.region).unwrap().is_empty());
        assert!(shop.store.remove_image(&shop.region, "hello").is_err());
    }

    #[test]
    fn tags_are_added_and_checked_as_a_whole() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        let resource = Taggable::Image(ImageId::new(&image.id));
        let set = |key: &str, value: &str| {
            shop.store.set_tags(&shop.region, &resource, &[(key.to_owned(), value.to_owned())].into())
        };
        set("appversion", "1").unwrap();
        let tags = set("AppVersion", "2").unwrap();
        assert_eq!((tags["appversion"].as_str(), tags["AppVersion"].as_str(), tags.len()), ("1", "2", 5));
        assert_eq!(shop.store.tags(&shop.region, &resource).unwrap(), tags);
        let many = (0..46).map(|n| (format!("key{n}"), String::new())).collect();
        let error = shop.store.set_tags(&shop.region, &resource, &many).unwrap_err();
        insta::assert_snapshot!(message(&error), @"51 tags are too many; 50 are allowed");
        assert!(set("aws:x", "").is_err());
        assert_eq!(shop.store.tags(&shop.region, &resource).unwrap(), tags, "a refused change changes nothing");
    }

    #[test]
    fn many_that_tag_at_once_lose_nothing() {
        let shop = Shop::new();
        let resource = Taggable::Snapshot(SnapshotId::new(shop.baked("hello").snapshot));
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (shop, resource) = (&shop, &resource);
                scope.spawn(move || {
                    shop.store.set_tags(&shop.region, resource, &[(format!("key{n}"), String::new())].into()).unwrap()
                });
            }
        });
        assert_eq!(shop.store.tags(&shop.region, &resource).unwrap().len(), 3 + 8);
    }
}
