//! What a bake changes in the store, as the engine's mutations.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bake_core::plugin::{CloudKinds, Medium, VolumeKinds};
use bake_core::{
    CopyImage, CreateSnapshot, CreateVolume, Image, ImageId, Region, RegisterImage, Snapshot, SnapshotId, TagResource,
    Tagged, Volume, VolumeId,
};
use bake_engine::{Calls, Found, Keep, Mutation, Mutations, Op, Resend, StepContext, StepError, StepResult, Undone};
use serde::{Deserialize, Serialize};

use crate::error::StoreResult;
use crate::program::blocking;
use crate::record::{ImageRecord, Record, SnapshotRecord, VolumeRecord};
use crate::shelf::Shelf;
use crate::store::{Maker, Removed, Store};

/// How an image's root disk is kept here.
const STORE_WORD: &str = "local";

/// Registers all kinds of change that this cloud makes. `store` is where new things are made; what is in a journal already
/// knows its own store, and is undone there.
pub fn register(store: &Store, mutations: &mut Mutations) -> CloudKinds {
    let volumes = VolumeKinds {
        own: None,
        create: mutations.register(LocalVolumes(store.clone())),
        attach: None,
        snapshot: Some(mutations.register(LocalSnapshots(store.clone()))),
    };
    CloudKinds {
        volumes: [(Medium::File, volumes)].into(),
        image: Some(mutations.register(LocalImages(store.clone()))),
        copy: Some(mutations.register(LocalCopies(store.clone()))),
        share: None,
        guard: None,
        tag: Some(mutations.register(LocalTags(store.clone()))),
    }
}

/// What a mutation made: enough to find it from another process with other settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeLocally {
    /// The folder of the store.
    pub store: PathBuf,
    /// The region.
    pub region: Region,
    /// The id.
    pub id: String,
}

impl MadeLocally {
    fn new(store: &Store, region: &Region, id: &str) -> Self {
        Self { store: store.path().to_owned(), region: region.clone(), id: id.into() }
    }
}

/// Works on the store and region where something was made, on a thread made for blocking.
async fn there<T: Send + 'static>(
    made: &MadeLocally,
    work: impl FnOnce(&Store, &Region, &str) -> StoreResult<T> + Send + 'static,
) -> StepResult<T> {
    let MadeLocally { store, region, id } = made.clone();
    Ok(blocking(move || work(&Store::open(store)?, &region, &id)).await?)
}

/// Works like [`there`] on what may take long. The work tells how far it is, and hears whether anybody waits for it still.
async fn there_for_long<T: Send + 'static>(
    cx: &StepContext,
    made: &MadeLocally,
    work: impl FnOnce(&Store, &Region, &str, &mut dyn FnMut(u64, u64) -> bool) -> StoreResult<T> + Send + 'static,
) -> StepResult<T> {
    let waiting = Waiting(Arc::new(AtomicBool::new(true)));
    let (somebody_waits, reporter) = (waiting.0.clone(), cx.clone());
    let working = there(made, move |store, region, id| {
        work(store, region, id, &mut |done, total| {
            reporter.progress(done, Some(total), "bytes");
            somebody_waits.load(Ordering::SeqCst)
        })
    });
    tokio::select! {
        done = working => done,
        () = cx.cancelled() => Err(StepError::cancelled()),
    }
}

/// Somebody who waits, until it is dropped: by a cancel, by a time limit, or since the work is done.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Looks for what an operation makes: its id follows from the token.
async fn find<R: Record>(store: &Store, region: &Region, op: &Op) -> StepResult<Found<MadeLocally>> {
    let made = MadeLocally::new(store, region, &R::SHELF.id(op.token()));
    let found = there(&made, |store, region, id| store.read::<R>(region, id).map(|record| record.is_some())).await?;
    Ok(if found { Found::Made(made) } else { Found::Absent })
}

/// Tells of an image what others may know.
fn read_back(region: &Region, image: ImageRecord) -> Image {
    Image {
        id: ImageId::new(image.id),
        name: image.name,
        region: region.clone(),
        store: STORE_WORD.into(),
        account: None,
    }
}

/// Takes something back that a run made.
async fn undo(
    op: &Op,
    made: &MadeLocally,
    remove: impl FnOnce(&Store, &Region, &str, Option<&str>) -> StoreResult<Removed> + Send + 'static,
) -> StepResult<Undone> {
    let run = op.run().to_string();
    match there(made, move |store, region, id| remove(store, region, id, Some(&run))).await? {
        Removed::Gone => Ok(Undone::Gone),
        Removed::InUse(by) => {
            tracing::debug!(id = made.id, by, "still in use");
            Ok(Undone::InUse)
        }
    }
}

struct LocalVolumes(Store);

impl Mutation for LocalVolumes {
    type Request = CreateVolume;
    type Made = MadeLocally;
    type Result = Volume;

    fn name(&self) -> &'static str {
        "local.volume"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["create volume"], settle: &["copy disk"], undo: &["delete volume"] }
    }

    fn keep(&self) -> Keep {
        Keep::Scaffold
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, op: &Op, request: &CreateVolume) -> StepResult<MadeLocally> {
        let (store, request, maker) = (self.0.clone(), request.clone(), Maker::from(op));
        let made = blocking(move || {
            let volume = store.create_volume(&request.region, &request.base, &maker)?;
            Ok(MadeLocally::new(&store, &request.region, &volume.id))
        });
        Ok(made.await?)
    }

    async fn find(&self, op: &Op, request: &CreateVolume) -> StepResult<Found<MadeLocally>> {
        find::<VolumeRecord>(&self.0, &request.region, op).await
    }

    /// Copies the base's disk. It is done here since it may take long: a cancel ends the wait, and another try begins anew.
    async fn settle(&self, cx: &StepContext, _: &CreateVolume, made: &MadeLocally) -> StepResult<Volume> {
        there_for_long(cx, made, |store, region, id, go_on| {
            store.fill_volume(region, id, go_on)?;
            let volume = store.existing::<VolumeRecord>(region, id)?.1;
            Ok(Volume { id: VolumeId::new(id), region: region.clone(), size: volume.size })
        })
        .await
    }

    async fn undo(&self, op: &Op, made: &MadeLocally) -> StepResult<Undone> {
        undo(op, made, Store::delete_volume).await
    }
}

struct LocalSnapshots(Store);

impl Mutation for LocalSnapshots {
    type Request = CreateSnapshot;
    type Made = MadeLocally;
    type Result = Snapshot;

    fn name(&self) -> &'static str {
        "local.snapshot"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["create snapshot"], settle: &["read snapshot"], undo: &["delete snapshot"] }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, op: &Op, request: &CreateSnapshot) -> StepResult<MadeLocally> {
        let (store, request, maker) = (self.0.clone(), request.clone(), Maker::from(op));
        let made = blocking(move || {
            let CreateSnapshot { volume, region, description, tags } = request;
            let maker = maker.with_tags(tags);
            let snapshot = store.create_snapshot(&region, volume.as_str(), &description, &maker)?;
            Ok(MadeLocally::new(&store, &region, &snapshot.id))
        });
        Ok(made.await?)
    }

    async fn find(&self, op: &Op, request: &CreateSnapshot) -> StepResult<Found<MadeLocally>> {
        find::<SnapshotRecord>(&self.0, &request.region, op).await
    }

    async fn settle(&self, _: &StepContext, _: &CreateSnapshot, made: &MadeLocally) -> StepResult<Snapshot> {
        there(made, |store, region, id| {
            let (_, snapshot) = store.existing::<SnapshotRecord>(region, id)?;
            Ok(Snapshot { id: SnapshotId::new(id), region: region.clone(), size: snapshot.size })
        })
        .await
    }

    async fn undo(&self, op: &Op, made: &MadeLocally) -> StepResult<Undone> {
        undo(op, made, Store::delete_snapshot).await
    }
}

struct LocalImages(Store);

impl Mutation for LocalImages {
    type Request = RegisterImage;
    type Made = MadeLocally;
    type Result = Image;

    fn name(&self) -> &'static str {
        "local.image"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["register image"], settle: &["read image"], undo: &["deregister image"] }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, op: &Op, request: &RegisterImage) -> StepResult<MadeLocally> {
        let (store, request, maker) = (self.0.clone(), request.clone(), Maker::from(op));
        let made = blocking(move || {
            let image = store.register_image(&request, &maker)?;
            Ok(MadeLocally::new(&store, &request.region, &image.id))
        });
        Ok(made.await?)
    }

    async fn find(&self, op: &Op, request: &RegisterImage) -> StepResult<Found<MadeLocally>> {
        find::<ImageRecord>(&self.0, &request.region, op).await
    }

    async fn settle(&self, _: &StepContext, _: &RegisterImage, made: &MadeLocally) -> StepResult<Image> {
        there(made, |store, region, id| Ok(read_back(region, store.existing::<ImageRecord>(region, id)?.1))).await
    }

    async fn undo(&self, op: &Op, made: &MadeLocally) -> StepResult<Undone> {
        undo(op, made, Store::deregister_image).await
    }
}

struct LocalCopies(Store);

/// What makes a copy, and the two things that it makes, the second first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeCopy {
    /// The image.
    pub image: MadeLocally,
    /// The id of its snapshot, in the same region.
    pub snapshot: String,
    /// On whose behalf they are made.
    pub maker: Maker,
}

impl MadeCopy {
    fn new(store: &Store, region: &Region, maker: Maker) -> Self {
        let image = MadeLocally::new(store, region, &Shelf::Images.id(&maker.token));
        Self { image, snapshot: Shelf::Snapshots.id(&maker.token), maker }
    }
}

impl Mutation for LocalCopies {
    type Request = CopyImage;
    type Made = MadeCopy;
    type Result = Image;

    fn name(&self) -> &'static str {
        "local.copy"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["check image"],
            settle: &["copy snapshot", "register image"],
            undo: &["deregister image", "delete snapshot"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    /// Makes nothing yet. A copy is two things, and a crash between the two would leave the first if the ids of both were
    /// not in the journal by then.
    async fn send(&self, op: &Op, request: &CopyImage) -> StepResult<MadeCopy> {
        let (store, request, mut maker) = (self.0.clone(), request.clone(), Maker::from(op));
        let made = blocking(move || {
            if let Some(copy) = store.check_copy(&request, &maker)? {
                // The answer is the first one again, whoever asks.
                maker.time = copy.created;
            }
            Ok(MadeCopy::new(&store, &request.region, maker))
        });
        Ok(made.await?)
    }

    async fn find(&self, op: &Op, request: &CopyImage) -> StepResult<Found<MadeCopy>> {
        Ok(match find::<ImageRecord>(&self.0, &request.region, op).await? {
            Found::Made(_) => Found::Made(MadeCopy::new(&self.0, &request.region, Maker::from(op))),
            Found::Absent => Found::Absent,
            Found::Ambiguous(ids) => Found::Ambiguous(ids),
        })
    }

    async fn settle(&self, cx: &StepContext, request: &CopyImage, made: &MadeCopy) -> StepResult<Image> {
        let (request, maker) = (request.clone(), made.maker.clone());
        there_for_long(cx, &made.image, move |store, region, _, go_on| {
            Ok(read_back(region, store.copy_image(&request, &maker, go_on)?))
        })
        .await
    }

    async fn undo(&self, op: &Op, made: &MadeCopy) -> StepResult<Undone> {
        let snapshot = made.snapshot.clone();
        undo(op, &made.image, move |store, region, image, run| store.remove_copy(region, image, &snapshot, run)).await
    }
}

struct LocalTags(Store);

impl Mutation for LocalTags {
    type Request = TagResource;
    type Made = MadeTags;
    type Result = Tagged;

    fn name(&self) -> &'static str {
        "local.tags"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["set tags"], settle: &["read tags"], undo: &[] }
    }

    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, _: &Op, request: &TagResource) -> StepResult<MadeTags> {
        let (store, request) = (self.0.clone(), request.clone());
        let made = MadeTags { store: store.path().to_owned() };
        blocking(move || store.set_tags(&request.region, &request.resource, &request.tags)).await?;
        Ok(made)
    }

    async fn find(&self, _: &Op, request: &TagResource) -> StepResult<Found<MadeTags>> {
        let (store, request) = (self.0.clone(), request.clone());
        let made = MadeTags { store: store.path().to_owned() };
        let set = blocking(move || {
            let tags = store.tags(&request.region, &request.resource)?;
            Ok(request.tags.iter().all(|(key, value)| tags.get(key) == Some(value)))
        });
        Ok(if set.await? { Found::Made(made) } else { Found::Absent })
    }

    async fn settle(&self, _: &StepContext, request: &TagResource, made: &MadeTags) -> StepResult<Tagged> {
        let (made, request) = (made.clone(), request.clone());
        let tags = blocking(move || Store::open(made.store)?.tags(&request.region, &request.resource));
        Ok(Tagged { tags: tags.await? })
    }

    async fn undo(&self, _: &Op, _: &MadeTags) -> StepResult<Undone> {
        // They go with what carries them.
        Ok(Undone::Gone)
    }
}

/// Where tags were set; on what is in the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MadeTags {
    store: PathBuf,
}

#[cfg(test)]
mod tests {
    use bake_core::{BaseId, Encryption, Taggable, Tags};
    use bake_engine::{Cancel, Class};

    use super::*;
    use crate::testing::{Shop, op, op_of};

    fn cx() -> StepContext {
        StepContext::detached("step", &Cancel::new())
    }

    /// Every kind keeps the engine's promises: the same answer twice, found by its token, undone twice, by its own run only.
    async fn keeps_its_promises<M>(kind: &M, request: &M::Request, step: &str)
    where
        M: Mutation<Made: Clone + PartialEq + std::fmt::Debug>,
    {
        let op = op(step);
        assert_eq!(kind.find(&op, request).await.unwrap(), Found::Absent);
        let made = kind.send(&op, request).await.unwrap();
        assert_eq!(kind.send(&op, request).await.unwrap(), made);
        kind.settle(&cx(), request, &made).await.unwrap();
        kind.settle(&cx(), request, &made).await.unwrap();
        assert_eq!(kind.send(&op, request).await.unwrap(), made);
        assert_eq!(kind.find(&op, request).await.unwrap(), Found::Made(made.clone()));
        let refused = kind.undo(&op_of("20261130-120000-zzzz", step), &made).await.unwrap_err();
        assert_eq!(refused.class(), Class::Permanent);
        assert_eq!(kind.undo(&op, &made).await.unwrap(), Undone::Gone);
        assert_eq!(kind.undo(&op, &made).await.unwrap(), Undone::Gone);
        assert_eq!(kind.find(&op, request).await.unwrap(), Found::Absent);
    }

    #[tokio::test]
    async fn volumes_keep_the_promises() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let request = CreateVolume { base: BaseId::new(base.id), region: shop.region.clone(), snapshot: None };
        keeps_its_promises(&LocalVolumes(shop.store.clone()), &request, "volume").await;
    }

    #[tokio::test]
    async fn snapshots_keep_the_promises() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let volume = VolumeId::new(shop.volume(&base.id, "volume").id);
        let request =
            CreateSnapshot { volume, region: shop.region.clone(), description: "a test".into(), tags: Tags::new() };
        keeps_its_promises(&LocalSnapshots(shop.store.clone()), &request, "snapshot").await;
    }

    #[tokio::test]
    async fn images_keep_the_promises() {
        let shop = Shop::new();
        let snapshot = shop.baked("another").snapshot;
        keeps_its_promises(&LocalImages(shop.store.clone()), &shop.request(&snapshot, "hello"), "image").await;
    }

    fn copy_of(shop: &Shop, image: ImageRecord) -> CopyImage {
        let (image, from, region) = (ImageId::new(image.id), shop.region.clone(), Region::new("there"));
        CopyImage {
            image,
            from,
            region,
            name: "a copy".into(),
            tags: [("Team".into(), "red".into())].into(),
            account: None,
            encryption: Encryption::Inherit,
        }
    }

    #[tokio::test]
    async fn copies_keep_the_promises() {
        let shop = Shop::new();
        let request = copy_of(&shop, shop.baked("hello"));
        keeps_its_promises(&LocalCopies(shop.store.clone()), &request, "copy").await;
    }

    #[tokio::test]
    async fn nothing_is_made_of_a_copy_before_its_ids_are_known() {
        let shop = Shop::new();
        let (request, kind) = (copy_of(&shop, shop.baked("hello")), LocalCopies(shop.store.clone()));
        let made = kind.send(&op("copy"), &request).await.unwrap();
        assert!(!shop.store.path().join("there").exists());
        assert_eq!(kind.find(&op("copy"), &request).await.unwrap(), Found::Absent);
        assert_eq!(kind.undo(&op("copy"), &made).await.unwrap(), Undone::Gone);
    }

    #[tokio::test]
    async fn tags_are_set_found_and_read_back() {
        let shop = Shop::new();
        let (image, kind) = (shop.baked("hello"), LocalTags(shop.store.clone()));
        let request = TagResource {
            resource: Taggable::Image(ImageId::new(image.id)),
            region: shop.region.clone(),
            tags: [("Team".into(), "red".into())].into(),
        };
        assert_eq!(kind.find(&op("tag"), &request).await.unwrap(), Found::Absent);
        let made = kind.send(&op("tag"), &request).await.unwrap();
        assert_eq!(kind.find(&op("tag"), &request).await.unwrap(), Found::Made(made.clone()));
        assert_eq!(kind.settle(&cx(), &request, &made).await.unwrap().tags["Team"], "red");
        assert_eq!(kind.undo(&op("tag"), &made).await.unwrap(), Undone::Gone);
    }

    #[tokio::test]
    async fn a_snapshot_with_an_image_waits_for_its_turn() {
        let shop = Shop::new();
        let image = shop.baked("hello");
        let made = MadeLocally::new(&shop.store, &shop.region, &image.snapshot);
        let kind = LocalSnapshots(shop.store.clone());
        assert_eq!(kind.undo(&op("snapshot"), &made).await.unwrap(), Undone::InUse);
    }

    #[tokio::test]
    async fn what_was_made_in_another_store_is_undone_there() {
        let (shop, elsewhere) = (Shop::new(), Shop::new());
        let image = shop.baked("hello");
        let made = MadeLocally::new(&shop.store, &shop.region, &image.id);
        LocalImages(elsewhere.store.clone()).undo(&op("image"), &made).await.unwrap();
        assert!(shop.store.images(&shop.region).unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_cancel_ends_the_copying() {
        let shop = Shop::new();
        let base = shop.base("debian", b"disk");
        let kind = LocalVolumes(shop.store.clone());
        let request = CreateVolume { base: BaseId::new(base.id), region: shop.region.clone(), snapshot: None };
        let made = kind.send(&op("volume"), &request).await.unwrap();
        let cancel = Cancel::new();
        cancel.raise();
        let ended = kind.settle(&StepContext::detached("step", &cancel), &request, &made).await;
        // The copy of four bytes may be done before anybody looks.
        assert!(ended.is_ok() || ended.is_err_and(|error| error.class() == Class::Cancelled));
    }

    #[test]
    fn a_copy_that_nobody_waits_for_any_more_can_be_undone_for_good() {
        for pause in 0..20 {
            let shop = Shop::new();
            let (request, kind) = (copy_of(&shop, shop.baked("hello")), LocalCopies(shop.store.clone()));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let made = kind.send(&op("copy"), &request).await.unwrap();
                let cancel = Cancel::new();
                let cx = StepContext::detached("step", &cancel);
                // The work goes on on a thread of its own when it is left alone.
                let cancelling = async {
                    for _ in 0..pause * pause {
                        tokio::task::yield_now().await;
                    }
                    cancel.raise();
                };
                let _ended = tokio::join!(kind.settle(&cx, &request, &made), cancelling);
                while kind.undo(&op("copy"), &made).await.unwrap() == Undone::InUse {}
            });
            // This waits for the thread: nothing may appear later.
            drop(runtime);
            let there = Region::new("there");
            assert!(shop.store.images(&there).unwrap().is_empty() && shop.store.snapshots(&there).unwrap().is_empty());
        }
    }
}
