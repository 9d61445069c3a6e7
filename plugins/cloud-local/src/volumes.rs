//! Volumes: writable copies of a base.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bake_core::{BaseId, Region};

use crate::disk::{self, Lock};
use crate::error::{StoreError, StoreResult};
use crate::making::{self, Begun, Making};
use crate::record::{self, BaseRecord, ImageRecord, Record, SnapshotRecord, VolumeRecord};
use crate::shelf::Shelf;
use crate::store::{DISK, Maker, Removed, Store};

/// A disk that is being copied; it becomes [`DISK`] when it is complete.
const COPY: &str = ".disk.raw.making";

impl Store {
    /// Makes a volume without bytes, which [`Store::fill_volume`] copies. The same maker gets the same volume again.
    pub fn create_volume(&self, region: &Region, base: &BaseId, maker: &Maker) -> StoreResult<VolumeRecord> {
        let source = self.disk_of(region, base.as_str())?;
        let size = fs::metadata(&source).map_err(StoreError::io("look at", &source))?.len();
        let id = Shelf::Volumes.id(&maker.token);
        let making = match Making::begin(&self.shelf(region, Shelf::Volumes)?, &id)? {
            Begun::New(making) => making,
            Begun::There => return Ok(self.existing(region, &id)?.1),
        };
        let volume =
            VolumeRecord { id, base: base.as_str().into(), size, created: maker.time, tags: maker.tags.clone() };
        record::write(making.folder(), &volume)?;
        making.finish()?;
        Ok(volume)
    }

    /// Copies the base's bytes into a volume, unless that was done before. May be called again after any failure.
    ///
    /// `go_on` hears of the bytes copied so far and in all, and says whether to go on.
    pub fn fill_volume(&self, region: &Region, id: &str, go_on: impl FnMut(u64, u64) -> bool) -> StoreResult<()> {
        let (place, volume) = self.existing::<VolumeRecord>(region, id)?;
        let (disk, copy) = (place.join(DISK), place.join(COPY));
        if is_there(&disk)? {
            return Ok(());
        }
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&copy);
        drop(file.map_err(StoreError::io("create the disk", &copy))?);
        let Lock::Held(_lock) = disk::try_lock(&copy)? else { return Err(StoreError::BeingMade(id.into())) };
        let copied = self.copy_disk(region, &volume, &copy, go_on);
        let copied = copied.and_then(|()| fs::rename(&copy, &disk).map_err(StoreError::io("create the disk", &disk)));
        if copied.is_err() {
            // Best effort: a full disk should get its room back at once, and the next try begins anew anyway.
            let _removed = fs::remove_file(&copy);
        }
        copied
    }

    fn copy_disk(
        &self,
        region: &Region,
        volume: &VolumeRecord,
        copy: &Path,
        go_on: impl FnMut(u64, u64) -> bool,
    ) -> StoreResult<()> {
        let source = self.disk_of(region, &volume.base)?;
        let file = File::options().read(true).write(true).open(copy);
        let file = file.map_err(StoreError::io("create the disk", copy))?;
        // What an earlier try left goes; but a new file is not truncated: ext4 would take that for a careless replacement
        // of a file's content and write all of it to the disk at the end (`auto_da_alloc`), 100 ms for a small Debian.
        if file.metadata().map_err(StoreError::io("look at", copy))?.len() > 0 {
            file.set_len(0).map_err(StoreError::io("empty the disk", copy))?;
        }
        // Not synced: until it is sealed a volume is scratch, and after a power cut its bake starts again with another one.
        disk::copy(&source, &file, copy, go_on)
    }

    /// Returns the file of a volume's bytes, to bake on.
    pub fn volume_disk(&self, region: &Region, id: &str) -> StoreResult<PathBuf> {
        let (place, _) = self.existing::<VolumeRecord>(region, id)?;
        let disk = place.join(DISK);
        if !is_there(&disk)? {
            return Err(StoreError::VolumeIncomplete(id.into()));
        }
        // Root may write read-only files, and these bytes are those of a snapshot.
        match disk::is_sealed(&disk).map_err(StoreError::io("look at", &disk))? {
            true => Err(StoreError::VolumeSealed(id.into())),
            false => Ok(disk),
        }
    }

    /// Deletes a volume, unless somebody has its disk open. `run` guards against deleting what another run made.
    pub fn delete_volume(&self, region: &Region, id: &str, run: Option<&str>) -> StoreResult<Removed> {
        let Some((place, volume)) = self.find::<VolumeRecord>(region, id)? else { return Ok(Removed::Gone) };
        check_run(&volume, run)?;
        let mut locks = Vec::new();
        for name in [DISK, COPY] {
            match disk::try_lock(&place.join(name))? {
                Lock::Held(lock) => locks.push(lock),
                Lock::Absent => {}
                Lock::InUse => return Ok(Removed::InUse("a process that has its disk open".into())),
            }
        }
        making::remove(&place)?;
        Ok(Removed::Gone)
    }

    /// The disk of a base, or of an image that serves as one.
    pub(crate) fn disk_of(&self, region: &Region, id: &str) -> StoreResult<PathBuf> {
        if Shelf::Images.is_id(id) {
            let (_, image) = self.existing::<ImageRecord>(region, id)?;
            return Ok(self.snapshot_of(region, &image)?.0);
        }
        Ok(self.existing::<BaseRecord>(region, id)?.0.join(DISK))
    }

    /// The disk of the snapshot that an image is made of, and its record.
    pub(crate) fn snapshot_of(&self, region: &Region, image: &ImageRecord) -> StoreResult<(PathBuf, SnapshotRecord)> {
        if let Some((place, snapshot)) = self.find::<SnapshotRecord>(region, &image.snapshot)? {
            let disk = place.join(DISK);
            if is_there(&disk)? {
                return Ok((disk, snapshot));
            }
        }
        Err(StoreError::ImageWithoutDisk { image: image.id.clone(), region: region.clone() })
    }

    /// Reads the record of an id that may be there, and tells its folder.
    pub(crate) fn find<R: Record>(&self, region: &Region, id: &str) -> StoreResult<Option<(PathBuf, R)>> {
        let place = self.place(region, R::SHELF, id)?;
        let record = self.read(region, id)?;
        Ok(place.zip(record))
    }
}

fn is_there(path: &Path) -> StoreResult<bool> {
    path.try_exists().map_err(StoreError::io("look at", path))
}

/// The tag that says which run made a thing.
pub(crate) const RUN_TAG: &str = "bake:run";

/// Refuses what another run made.
pub(crate) fn check_run<R: Record>(record: &R, run: Option<&str>) -> StoreResult<()> {
    let Some(expected) = run else { return Ok(()) };
    let found = record.tags().get(RUN_TAG).map_or("nobody", String::as_str);
    if found == expected {
        return Ok(());
    }
    Err(StoreError::NotOurs { id: record.id().into(), expected: expected.into(), found: found.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shop, maker, message};

    const RUN: Option<&str> = Some("20261130-120000-k3f9");

    #[test]
    fn a_volume_is_a_copy_and_the_same_maker_gets_the_same_one() {
        let shop = Shop::new();
        let base = shop.base("debian", b"bytes of the base");
        let volume = shop.volume(&base.id, "create");
        let disk = shop.store.volume_disk(&shop.region, &volume.id).unwrap();
        assert_eq!(fs::read(&disk).unwrap(), b"bytes of the base");
        assert_eq!(volume.tags["bake:run"], "20261130-120000-k3f9");
        fs::write(&disk, "changed").unwrap();
        assert_eq!(shop.volume(&base.id, "create"), volume);
        assert_eq!(fs::read(&disk).unwrap(), b"changed", "filling again leaves it alone");
        assert_ne!(shop.volume(&base.id, "another step").id, volume.id);
    }

    #[test]
    fn a_volume_without_bytes_cannot_be_used() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.store.create_volume(&shop.region, &BaseId::new(base.id), &maker("create")).unwrap();
        let refused = shop.store.volume_disk(&shop.region, &volume.id).unwrap_err();
        assert!(matches!(refused, StoreError::VolumeIncomplete(_)));
    }

    #[test]
    fn a_half_made_copy_is_made_anew() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.store.create_volume(&shop.region, &BaseId::new(base.id), &maker("create")).unwrap();
        let place = shop.store.place(&shop.region, Shelf::Volumes, &volume.id).unwrap().unwrap();
        fs::write(place.join(COPY), "a long leftover of a process that died").unwrap();
        shop.store.fill_volume(&shop.region, &volume.id, |_, _| true).unwrap();
        assert_eq!(fs::read(place.join(DISK)).unwrap(), b"disk");
        assert!(!place.join(COPY).exists());
    }

    #[test]
    fn undoing_twice_is_well() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.volume(&base.id, "create");
        for _ in 0..2 {
            assert_eq!(shop.store.delete_volume(&shop.region, &volume.id, RUN).unwrap(), Removed::Gone);
        }
        assert!(shop.store.volumes(&shop.region).unwrap().is_empty());
    }

    #[test]
    fn a_volume_that_is_open_stays() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.volume(&base.id, "create");
        let disk = shop.store.volume_disk(&shop.region, &volume.id).unwrap();
        let open = File::options().write(true).open(disk).unwrap();
        open.try_lock().unwrap();
        let refused = shop.store.delete_volume(&shop.region, &volume.id, RUN).unwrap();
        assert!(matches!(refused, Removed::InUse(_)));
        let refused = shop.store.create_snapshot(&shop.region, &volume.id, "", &maker("snapshot")).unwrap_err();
        assert!(matches!(refused, StoreError::VolumeInUse(_)));
        drop(open);
        assert_eq!(shop.store.delete_volume(&shop.region, &volume.id, RUN).unwrap(), Removed::Gone);
    }

    #[test]
    fn what_another_run_made_stays() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.volume(&base.id, "create");
        let error = shop.store.delete_volume(&shop.region, &volume.id, Some("another")).unwrap_err();
        insta::assert_snapshot!(message(&error), @"`[id]` belongs to run `20261130-120000-k3f9`, not to `another`");
        assert_eq!(shop.store.volumes(&shop.region).unwrap(), [volume]);
    }

    #[test]
    fn a_base_that_is_not_there_leaves_no_volume() {
        let shop = Shop::new();
        for base in ["base-0000000000000000", "img-0000000000000000", "../../x", ""] {
            let refused = shop.store.create_volume(&shop.region, &BaseId::new(base), &maker("create")).unwrap_err();
            assert!(matches!(refused, StoreError::NotFound { .. }), "{base}");
        }
        assert!(shop.store.volumes(&shop.region).unwrap().is_empty());
    }

    #[test]
    fn a_baked_image_can_be_baked_on() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        let volume = shop.volume(&image.id, "second bake");
        let disk = shop.store.volume_disk(&shop.region, &volume.id).unwrap();
        fs::write(disk, "other bytes").unwrap();
        let of_image = shop.store.disk_of(&shop.region, &image.id).unwrap();
        assert_eq!(fs::read(of_image).unwrap(), b"bytes of the base");
    }
}
