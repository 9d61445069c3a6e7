//! What runs have made and nobody needs: found by its tags, when no journal knows of it.

use bake_core::{Region, Scrap, ScrapKind};

use crate::error::StoreResult;
use crate::record::Record;
use crate::store::{Removed, Store};
use crate::volumes::RUN_TAG;

impl Store {
    /// Returns the volumes that runs have made, and their snapshots of which there is no image.
    pub fn scraps(&self) -> StoreResult<Vec<Scrap>> {
        let mut scraps = Vec::new();
        for region in self.regions()? {
            let images = self.images(&region)?;
            let of_volumes = self.volumes(&region)?;
            scraps
                .extend(of_volumes.iter().filter_map(|volume| scrap(ScrapKind::Volume, volume, volume.size, &region)));
            let snapshots = self.snapshots(&region)?.into_iter();
            let alone = snapshots.filter(|snapshot| images.iter().all(|image| image.snapshot != snapshot.id));
            scraps.extend(alone.filter_map(|one| scrap(ScrapKind::Snapshot, &one, one.size, &region)));
        }
        Ok(scraps)
    }

    /// Removes a scrap, unless somebody uses it now.
    pub fn remove_scrap(&self, scrap: &Scrap) -> StoreResult<Removed> {
        match scrap.kind {
            ScrapKind::Volume => self.delete_volume(&scrap.region, &scrap.id, Some(&scrap.run)),
            ScrapKind::Snapshot => self.delete_snapshot(&scrap.region, &scrap.id, Some(&scrap.run)),
        }
    }
}

/// What no run has made is nobody's scrap.
fn scrap(kind: ScrapKind, record: &impl Record, size: u64, region: &Region) -> Option<Scrap> {
    let run = record.tags().get(RUN_TAG)?.clone();
    Some(Scrap { kind, id: record.id().to_owned(), region: region.clone(), run, created: record.created(), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Shop;

    #[test]
    fn scraps_are_what_runs_made_and_no_image_needs() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        assert_eq!(shop.store.scraps().unwrap(), [], "a base is no scrap");
        let image = shop.baked("hello");
        let kinds = || shop.store.scraps().unwrap().into_iter().map(|scrap| scrap.kind).collect::<Vec<_>>();
        assert!(!kinds().contains(&ScrapKind::Snapshot), "its snapshot is needed");
        shop.store.deregister_image(&shop.region, &image.id, None).unwrap();
        assert!(kinds().contains(&ScrapKind::Snapshot));
        let bases = shop.store.bases(&shop.region).unwrap().len();
        shop.volume(&base.id, "another");
        for scrap in shop.store.scraps().unwrap() {
            assert!(!scrap.run.is_empty());
            assert_eq!(shop.store.remove_scrap(&scrap).unwrap(), Removed::Gone);
        }
        assert_eq!(shop.store.scraps().unwrap(), []);
        assert_eq!(shop.store.bases(&shop.region).unwrap().len(), bases, "bases stay");
    }
}
