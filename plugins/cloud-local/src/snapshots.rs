//! Snapshots: the bytes of sealed volumes, kept for ever.

use std::fs::{self, File};
use std::path::Path;

use bake_core::Region;

use crate::disk::{self, Lock};
use crate::error::{StoreError, StoreResult};
use crate::making::{self, Begun, Making};
use crate::record::{self, SnapshotRecord, VolumeRecord};
use crate::shelf::Shelf;
use crate::store::{DISK, Maker, Removed, Store};
use crate::volumes::check_run;

impl Store {
    /// Keeps the bytes of a sealed volume, which nobody may have open. The same maker gets the same snapshot again.
    ///
    /// It costs nothing: the snapshot is another name of the volume's disk, which is never written again. So a volume
    /// that is deleted later leaves its snapshot as it is.
    pub fn create_snapshot(
        &self,
        region: &Region,
        volume: &str,
        description: &str,
        maker: &Maker,
    ) -> StoreResult<SnapshotRecord> {
        let id = Shelf::Snapshots.id(&maker.token);
        // Before the volume is looked at: it may be gone since the first try.
        if let Some(made) = self.read(region, &id)? {
            return Ok(made);
        }
        let (place, VolumeRecord { size, .. }) = self.existing(region, volume)?;
        let disk = place.join(DISK);
        let _lock = match disk::try_lock(&disk)? {
            Lock::Held(lock) => lock,
            Lock::InUse => return Err(StoreError::VolumeInUse(volume.into())),
            Lock::Absent => return Err(StoreError::VolumeIncomplete(volume.into())),
        };
        let making = match Making::begin(&self.shelf(region, Shelf::Snapshots)?, &id)? {
            Begun::New(making) => making,
            Begun::There => return Ok(self.existing(region, &id)?.1),
        };
        let snapshot = SnapshotRecord {
            id,
            volume: volume.into(),
            description: description.into(),
            size,
            created: maker.time,
            tags: maker.tags.clone(),
        };
        finish(making, &disk, snapshot, |_, _| true)
    }

    /// Deletes a snapshot, unless an image is made of it. `run` guards against deleting what another run made.
    pub fn delete_snapshot(&self, region: &Region, id: &str, run: Option<&str>) -> StoreResult<Removed> {
        // No image may be registered between the look and the removal.
        let _lock = self.lock(region)?;
        let Some((place, snapshot)) = self.find::<SnapshotRecord>(region, id)? else { return Ok(Removed::Gone) };
        check_run(&snapshot, run)?;
        if let Some(image) = self.images(region)?.iter().find(|image| image.snapshot == id) {
            return Ok(Removed::InUse(format!("the image `{}`", image.id)));
        }
        making::remove(&place)?;
        Ok(Removed::Gone)
    }
}

/// Lets a snapshot appear with the bytes of a disk that is never written again. `go_on` is asked while they are copied.
pub(crate) fn finish(
    making: Making,
    disk: &Path,
    snapshot: SnapshotRecord,
    go_on: impl FnMut(u64, u64) -> bool,
) -> StoreResult<SnapshotRecord> {
    keep(disk, &making.folder().join(DISK), go_on)?;
    record::write(making.folder(), &snapshot)?;
    making.finish()?;
    Ok(snapshot)
}

/// Gives the disk another name, or copies it where the filesystem cannot, and makes it read-only.
fn keep(disk: &Path, kept: &Path, go_on: impl FnMut(u64, u64) -> bool) -> StoreResult<()> {
    if let Err(error) = fs::hard_link(disk, kept) {
        tracing::debug!(%error, "the disk cannot be linked and is copied");
        let file = File::create_new(kept).map_err(StoreError::io("create the disk", kept))?;
        disk::copy(disk, &file, kept, go_on)?;
    }
    disk::seal(kept)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::testing::{Shop, maker};

    #[test]
    fn a_snapshot_costs_nothing_and_outlives_its_volume() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.volume(&base.id, "create");
        let disk = shop.store.volume_disk(&shop.region, &volume.id).unwrap();
        let snapshot = shop.snapshot(&volume.id, "snapshot");
        let kept = shop.store.place(&shop.region, Shelf::Snapshots, &snapshot.id).unwrap().unwrap().join(DISK);
        let about = |path: &Path| fs::metadata(path).map(|about| (about.ino(), about.mode() & 0o777)).unwrap();
        assert_eq!(about(&kept), about(&disk));
        assert_eq!(about(&kept).1, 0o400);
        let refused = shop.store.volume_disk(&shop.region, &volume.id).unwrap_err();
        assert!(matches!(refused, StoreError::VolumeSealed(_)));

        assert_eq!(shop.store.delete_volume(&shop.region, &volume.id, None).unwrap(), Removed::Gone);
        assert_eq!(fs::read(kept).unwrap(), b"disk");
        assert_eq!(shop.snapshot(&volume.id, "snapshot"), snapshot, "the same answer, although the volume is gone");
    }

    #[test]
    fn a_snapshot_stays_while_an_image_is_made_of_it() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        let refused = shop.store.delete_snapshot(&shop.region, &image.snapshot, None).unwrap();
        assert_eq!(refused, Removed::InUse(format!("the image `{}`", image.id)));
        shop.store.deregister_image(&shop.region, &image.id, None).unwrap();
        for _ in 0..2 {
            let removed = shop.store.delete_snapshot(&shop.region, &image.snapshot, None).unwrap();
            assert_eq!(removed, Removed::Gone);
        }
        assert!(shop.store.snapshots(&shop.region).unwrap().is_empty());
    }

    #[test]
    fn a_volume_without_bytes_has_no_snapshot() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = shop.store.create_volume(&shop.region, &base.id.as_str().into(), &maker("create")).unwrap();
        let refused = shop.store.create_snapshot(&shop.region, &volume.id, "", &maker("snapshot")).unwrap_err();
        assert!(matches!(refused, StoreError::VolumeIncomplete(_)));
        assert!(shop.store.snapshots(&shop.region).unwrap().is_empty());
    }
}
