//! Copies of images in other regions: two things that are made and removed as one.

use std::path::PathBuf;

use bake_core::{CopyImage, Machine, Region, RegisterImage, RootDisk, SnapshotId, Tags};

use crate::error::{StoreError, StoreResult};
use crate::images::ANOTHER_NAME;
use crate::making::{self, Begun, Making};
use crate::record::{ImageRecord, SnapshotRecord};
use crate::shelf::Shelf;
use crate::snapshots;
use crate::store::{Maker, Removed, Store, check_name};

impl Store {
    /// Refuses a copy that cannot be made, and makes nothing. Returns the copy if the same maker has made it before.
    pub fn check_copy(&self, request: &CopyImage, maker: &Maker) -> StoreResult<Option<ImageRecord>> {
        check_name(&request.name)?;
        bake_core::check_tags(&tags_of(request, maker))?;
        // Before the source is looked at: it may be gone since the first try.
        let made = self.read(&request.region, &Shelf::Images.id(&maker.token))?;
        if made.is_none() {
            self.source_of(request)?;
            // Looked at again when the image is registered. But what takes long should not be for nothing.
            self.check_name_free(&request.region, &request.name, ANOTHER_NAME)?;
        }
        Ok(made)
    }

    /// Makes an image with the bytes of another one: a snapshot, then the image. The same maker gets the same copy again,
    /// and goes on where a try ended that was interrupted.
    ///
    /// The source is not locked. Its bytes never change, and whoever opened or linked them has all of them, even if the
    /// source is removed meanwhile; so no two regions are ever locked at once, and copies in opposite directions cannot
    /// wait for each other. `go_on` hears of the bytes copied so far and in all, and says whether to go on.
    pub fn copy_image(
        &self,
        request: &CopyImage,
        maker: &Maker,
        go_on: impl FnMut(u64, u64) -> bool,
    ) -> StoreResult<ImageRecord> {
        if let Some(made) = self.check_copy(request, maker)? {
            return Ok(made);
        }
        let (region, maker) = (&request.region, Maker { tags: tags_of(request, maker), ..maker.clone() });
        let Source { image: source, .. } = self.source_of(request)?;
        let snapshot = self.copy_snapshot(request, &maker, go_on)?;
        let copy = RegisterImage {
            name: request.name.clone(),
            description: source.description,
            snapshot: SnapshotId::new(&snapshot),
            region: region.clone(),
            architecture: source.architecture,
            base: source.base.as_str().into(),
            packages: source.packages,
            tags: Tags::new(),
            machine: Machine::default(),
            disk: RootDisk::default(),
        };
        let registered = self.register_image(&copy, &maker);
        if registered.is_err()
            && let Err(error) = self.delete_snapshot(region, &snapshot, None)
        {
            tracing::warn!(
                snapshot,
                error = &error as &dyn std::error::Error,
                "half of a copy stays until it is undone"
            );
        }
        registered
    }

    /// Makes the first half of a copy, unless that was done before, and returns its id.
    fn copy_snapshot(
        &self,
        request: &CopyImage,
        maker: &Maker,
        mut go_on: impl FnMut(u64, u64) -> bool,
    ) -> StoreResult<String> {
        let id = Shelf::Snapshots.id(&maker.token);
        let making = match Making::begin(&self.shelf(&request.region, Shelf::Snapshots)?, &id)? {
            Begun::New(making) => making,
            Begun::There => return Ok(id),
        };
        let Source { disk, snapshot, .. } = self.source_of(request)?;
        // If nobody wants it any more, it may have been undone already. From here on, an undo sees that it is being made.
        if !go_on(0, snapshot.size) {
            return Err(StoreError::Cancelled);
        }
        let snapshot = SnapshotRecord { id, created: maker.time, tags: maker.tags.clone(), ..snapshot };
        match snapshots::finish(making, &disk, snapshot, go_on) {
            Ok(snapshot) => Ok(snapshot.id),
            // That the source was removed meanwhile says more than which file is missing.
            Err(error) => Err(self.source_of(request).err().unwrap_or(error)),
        }
    }

    fn source_of(&self, request: &CopyImage) -> StoreResult<Source> {
        let (_, image) = self.existing::<ImageRecord>(&request.from, request.image.as_str())?;
        let (disk, snapshot) = self.snapshot_of(&request.from, &image)?;
        Ok(Source { image, snapshot, disk })
    }

    /// Removes a copy: the image, then its snapshot, each if it is there. `run` guards against removing what another run made.
    pub fn remove_copy(&self, region: &Region, image: &str, snapshot: &str, run: Option<&str>) -> StoreResult<Removed> {
        // Asked first: what was being made a moment ago is there when it is looked for.
        if making::is_being_made(&self.shelf(region, Shelf::Snapshots)?, snapshot)? {
            return Ok(Removed::InUse("a process that is making it".into()));
        }
        self.remove_with_snapshot(region, image, snapshot, run)
    }
}

/// What is copied.
struct Source {
    image: ImageRecord,
    snapshot: SnapshotRecord,
    /// The file of the snapshot's bytes.
    disk: PathBuf,
}

/// The tags of both halves of a copy.
fn tags_of(request: &CopyImage, maker: &Maker) -> Tags {
    maker.clone().with_tags(request.tags.clone()).tags
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use bake_core::{Encryption, ImageId};

    use super::*;
    use crate::testing::{Shop, maker, message, on_another_filesystem};

    const RUN: Option<&str> = Some("20261130-120000-k3f9");
    const STEP: &str = "copy";

    fn there() -> Region {
        Region::new("there")
    }

    fn request(shop: &Shop, image: &ImageRecord, name: &str) -> CopyImage {
        CopyImage {
            image: ImageId::new(&image.id),
            from: shop.region.clone(),
            region: there(),
            name: name.into(),
            tags: [("Team".into(), "red".into())].into(),
            account: None,
            encryption: Encryption::Inherit,
        }
    }

    fn copy(shop: &Shop, request: &CopyImage) -> StoreResult<ImageRecord> {
        shop.store.copy_image(request, &maker(STEP), |_, _| true)
    }

    fn undo(shop: &Shop) -> Removed {
        let [image, snapshot] = [Shelf::Images, Shelf::Snapshots].map(|shelf| shelf.id(&maker(STEP).token));
        shop.store.remove_copy(&there(), &image, &snapshot, RUN).unwrap()
    }

    /// How many snapshots and images the target region has; hidden leftovers count as snapshots.
    fn counted(shop: &Shop) -> (usize, usize) {
        let shelf = shop.store.shelf(&there(), Shelf::Snapshots).unwrap();
        let snapshots = fs::read_dir(shelf).map_or(0, Iterator::count);
        (snapshots, shop.store.images(&there()).unwrap().len())
    }

    /// A copy whose maker was killed between the two halves.
    fn half_made(shop: &Shop, request: &CopyImage) {
        let maker = Maker { tags: tags_of(request, &maker(STEP)), ..maker(STEP) };
        shop.store.copy_snapshot(request, &maker, |_, _| true).unwrap();
        assert_eq!(counted(shop), (1, 0));
    }

    fn disk(shop: &Shop, region: &Region, image: &ImageRecord) -> PathBuf {
        shop.store.disk_of(region, &image.id).unwrap()
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_a_name_and_tags_of_its_own() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        let copied = copy(&shop, &request(&shop, &source, "hello there")).unwrap();
        assert_eq!(shop.store.image(&there(), "hello there").unwrap(), copied);
        let expected = ImageRecord {
            id: copied.id.clone(),
            name: "hello there".into(),
            snapshot: copied.snapshot.clone(),
            tags: copied.tags.clone(),
            ..source.clone()
        };
        assert_eq!(copied, expected);
        let snapshot = &shop.store.snapshots(&there()).unwrap()[0];
        assert_eq!((&snapshot.id, &snapshot.tags), (&copied.snapshot, &copied.tags));
        let tags: Vec<_> = copied.tags.keys().map(String::as_str).collect();
        assert_eq!(tags, ["Team", "bake:op", "bake:run", "bake:step"]);
        assert_eq!(shop.store.images(&shop.region).unwrap(), std::slice::from_ref(&source));

        let inode = |path| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(disk(&shop, &there(), &copied)), inode(disk(&shop, &shop.region, &source)));
        shop.store.remove_image(&shop.region, "hello").unwrap();
        assert_eq!(fs::read(disk(&shop, &there(), &copied)).unwrap(), b"bytes of the base");
    }

    #[test]
    fn who_made_it_is_not_for_the_request_to_say() {
        let shop = Shop::new();
        let mut request = request(&shop, &shop.baked("hello"), "hello");
        request.tags.insert("bake:run".into(), "another".into());
        assert_eq!(copy(&shop, &request).unwrap().tags["bake:run"], RUN.unwrap());
        request.tags = (0..48).map(|n| (format!("key{n}"), String::new())).collect();
        let error = shop.store.check_copy(&request, &maker("another")).unwrap_err();
        insta::assert_snapshot!(message(&error), @"51 tags are too many; 50 are allowed");
    }

    #[test]
    fn the_same_maker_gets_the_same_copy_also_if_the_source_is_gone() {
        let shop = Shop::new();
        let request = request(&shop, &shop.baked("hello"), "hello");
        assert_eq!(shop.store.check_copy(&request, &maker(STEP)).unwrap(), None);
        let copied = copy(&shop, &request).unwrap();
        shop.store.remove_image(&shop.region, "hello").unwrap();
        assert_eq!(copy(&shop, &request).unwrap(), copied);
        assert_eq!(shop.store.check_copy(&request, &maker(STEP)).unwrap(), Some(copied));
        assert_eq!(counted(&shop), (1, 1));
    }

    #[test]
    fn a_name_is_given_once_in_each_region() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        copy(&shop, &request(&shop, &source, "hello")).unwrap();
        let again = request(&shop, &source, "hello");
        let error = shop.store.copy_image(&again, &maker("another"), |_, _| true).unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        the name `hello` is taken in region `there` by the image `[id]`
        hint: choose another name with `--name`, or another `--suffix`
        ");
        assert_eq!(counted(&shop), (1, 1));

        let at_home = CopyImage { region: shop.region.clone(), ..request(&shop, &source, "hello") };
        let refused = shop.store.copy_image(&at_home, &maker("at home"), |_, _| true);
        assert!(matches!(refused, Err(StoreError::NameTaken { .. })));
        let renamed = CopyImage { name: "hello again".into(), ..at_home };
        shop.store.copy_image(&renamed, &maker("at home"), |_, _| true).unwrap();
        assert_eq!(shop.store.images(&shop.region).unwrap().len(), 2);
        let hostile = CopyImage { name: "-x".into(), ..renamed };
        assert!(matches!(copy(&shop, &hostile), Err(StoreError::Name { .. })));
    }

    #[test]
    fn an_image_that_is_not_there_is_named_and_nothing_is_made() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        let nobody = CopyImage { image: ImageId::new("img-0000000000000000"), ..request(&shop, &source, "hello") };
        let error = copy(&shop, &nobody).unwrap_err();
        insta::assert_snapshot!(message(&error), @"there is no image `[id]` in region `here`");
        fs::remove_file(disk(&shop, &shop.region, &source)).unwrap();
        let error = copy(&shop, &request(&shop, &source, "hello")).unwrap_err();
        let text = message(&error).replace(&source.id, "[id]");
        insta::assert_snapshot!(text, @"
        the image `[id]` in region `here` has lost its disk
        hint: remove it with `bake image rm [id] --region here`, and bake it again
        ");
        assert!(!shop.store.path().join("there").exists());
    }

    #[test]
    fn half_a_copy_is_finished_by_the_next_try() {
        let shop = Shop::new();
        let request = request(&shop, &shop.baked("hello"), "hello");
        half_made(&shop, &request);
        let copied = copy(&shop, &request).unwrap();
        assert_eq!(counted(&shop), (1, 1));
        assert_eq!(fs::read(disk(&shop, &there(), &copied)).unwrap(), b"bytes of the base");
    }

    #[test]
    fn half_a_copy_is_undone_whichever_half_it_is() {
        let shop = Shop::new();
        let request = request(&shop, &shop.baked("hello"), "hello");
        half_made(&shop, &request);
        assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));

        // An undo that was killed half-way leaves what a killed maker leaves; the image alone is left by nobody of ours.
        let copied = copy(&shop, &request).unwrap();
        shop.store.deregister_image(&there(), &copied.id, RUN).unwrap();
        assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));
        let copied = copy(&shop, &request).unwrap();
        making::remove(&shop.store.place(&there(), Shelf::Snapshots, &copied.snapshot).unwrap().unwrap()).unwrap();
        assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));
    }

    #[test]
    fn a_copy_is_undone_twice_and_its_source_stays() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        copy(&shop, &request(&shop, &source, "hello")).unwrap();
        for _ in 0..2 {
            assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));
        }
        assert_eq!(fs::read(disk(&shop, &shop.region, &source)).unwrap(), b"bytes of the base");
    }

    #[test]
    fn an_undo_leaves_the_snapshot_to_another_image_of_it() {
        let shop = Shop::new();
        let copied = copy(&shop, &request(&shop, &shop.baked("hello"), "hello")).unwrap();
        let of_user = RegisterImage { region: there(), ..shop.request(&copied.snapshot, "of a user") };
        let of_user = shop.store.register_image(&of_user, &maker("by hand")).unwrap();
        for _ in 0..2 {
            assert_eq!(undo(&shop), Removed::InUse(format!("the image `{}`", of_user.id)));
        }
        assert_eq!(shop.store.images(&there()).unwrap(), std::slice::from_ref(&of_user));
        shop.store.deregister_image(&there(), &of_user.id, None).unwrap();
        assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));
    }

    #[test]
    fn neither_half_is_removed_for_another_run() {
        let shop = Shop::new();
        let request = request(&shop, &shop.baked("hello"), "hello");
        let snapshot = Shelf::Snapshots.id(&maker(STEP).token);
        let image = Shelf::Images.id(&maker(STEP).token);
        let refused = || shop.store.remove_copy(&there(), &image, &snapshot, Some("another"));
        half_made(&shop, &request);
        assert!(matches!(refused(), Err(StoreError::NotOurs { id, .. }) if id == snapshot));
        copy(&shop, &request).unwrap();
        assert!(matches!(refused(), Err(StoreError::NotOurs { id, .. }) if id == image));
        assert_eq!(counted(&shop), (1, 1));
    }

    #[test]
    fn a_second_half_that_fails_takes_the_first_with_it() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        let wanted = request(&shop, &source, "hello");
        let faster = |_, _| shop.store.copy_image(&wanted, &maker("faster"), |_, _| true).is_ok();
        let refused = shop.store.copy_image(&wanted, &maker(STEP), faster).unwrap_err();
        assert!(matches!(refused, StoreError::NameTaken { .. }));
        let images = shop.store.images(&there()).unwrap();
        assert_eq!((images[0].id.clone(), counted(&shop)), (Shelf::Images.id(&maker("faster").token), (1, 1)));
    }

    #[test]
    fn a_copy_that_is_being_made_is_not_undone_and_what_a_dead_maker_left_is() {
        let shop = Shop::new();
        let request = request(&shop, &shop.baked("hello"), "hello");
        let looked = |_, _| {
            assert!(matches!(undo(&shop), Removed::InUse(_)));
            false
        };
        let stopped = shop.store.copy_image(&request, &maker(STEP), looked).unwrap_err();
        assert!(matches!(stopped, StoreError::Cancelled));
        assert_eq!(counted(&shop), (0, 0));

        let left = format!(".making-{}", Shelf::Snapshots.id(&maker(STEP).token));
        fs::create_dir(shop.store.shelf(&there(), Shelf::Snapshots).unwrap().join(left)).unwrap();
        assert_eq!((undo(&shop), counted(&shop)), (Removed::Gone, (0, 0)));
    }

    #[test]
    fn a_source_that_is_removed_before_its_bytes_are_taken_is_said_to_be_gone() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        let remove = |_, _| shop.store.remove_image(&shop.region, "hello").is_ok();
        let error = shop.store.copy_image(&request(&shop, &source, "hello"), &maker(STEP), remove).unwrap_err();
        insta::assert_snapshot!(message(&error), @"there is no image `[id]` in region `here`");
        assert_eq!(counted(&shop), (0, 0));
    }

    #[test]
    fn where_nothing_can_be_linked_bytes_are_copied_and_a_source_may_go_meanwhile() {
        let shop = Shop::new();
        let Some(_elsewhere) = on_another_filesystem(&shop, &there()) else { return };
        let source = shop.baked("hello");
        let mut heard = Vec::new();
        let listen = |done, total| {
            heard.push((done, total));
            // The first is asked before anything is opened.
            heard.len() != 2 || shop.store.remove_image(&shop.region, "hello").is_ok()
        };
        let copied = shop.store.copy_image(&request(&shop, &source, "hello"), &maker(STEP), listen).unwrap();
        assert_eq!(heard, [(0, 17), (0, 17), (17, 17)]);
        assert!(shop.store.images(&shop.region).unwrap().is_empty());
        let disk = disk(&shop, &there(), &copied);
        assert_eq!(fs::read(&disk).unwrap(), b"bytes of the base");
        assert_eq!(fs::metadata(disk).unwrap().mode() & 0o777, 0o400);
    }

    #[test]
    fn copying_bytes_can_be_stopped_and_leaves_nothing() {
        let shop = Shop::new();
        let Some(_elsewhere) = on_another_filesystem(&shop, &there()) else { return };
        let request = request(&shop, &shop.baked("hello"), "hello");
        let stopped = shop.store.copy_image(&request, &maker(STEP), |done, _| done == 0).unwrap_err();
        assert!(matches!(stopped, StoreError::Cancelled));
        assert_eq!(counted(&shop), (0, 0));
        copy(&shop, &request).unwrap();
    }

    #[test]
    fn copies_in_opposite_directions_do_not_wait_for_each_other() {
        let shop = Shop::new();
        let source = shop.baked("hello");
        let far = copy(&shop, &request(&shop, &source, "far")).unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (shop, source, far) = (&shop, &source, &far);
                scope.spawn(move || {
                    let out = request(shop, source, &format!("out {n}"));
                    shop.store.copy_image(&out, &maker(&format!("out {n}")), |_, _| true).unwrap();
                });
                scope.spawn(move || {
                    let back = CopyImage { from: there(), region: shop.region.clone(), ..request(shop, far, "") };
                    let back = CopyImage { name: format!("back {n}"), ..back };
                    shop.store.copy_image(&back, &maker(&format!("back {n}")), |_, _| true).unwrap();
                });
            }
        });
        let count = |region: &Region| shop.store.images(region).unwrap().len();
        assert_eq!((count(&shop.region), count(&there())), (9, 9));
    }

    #[test]
    fn a_source_that_is_removed_at_the_same_time_gives_a_whole_copy_or_none() {
        for n in 0..20 {
            let shop = Shop::new();
            let source = shop.baked("hello");
            let copied = std::thread::scope(|scope| {
                let copying = scope.spawn(|| copy(&shop, &request(&shop, &source, "hello")));
                // Not always at the same moment.
                (0..n * 50).for_each(|_| std::thread::yield_now());
                shop.store.remove_image(&shop.region, "hello").unwrap();
                copying.join().unwrap()
            });
            match copied {
                Ok(copied) => assert_eq!(fs::read(disk(&shop, &there(), &copied)).unwrap(), b"bytes of the base"),
                Err(StoreError::NotFound { .. } | StoreError::ImageWithoutDisk { .. }) => {
                    assert_eq!(counted(&shop), (0, 0));
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
