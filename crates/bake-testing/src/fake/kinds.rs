//! What a fake cloud can change, as the engine's mutations.

use std::marker::PhantomData;

use bake_core::{
    CloudKinds, CopyImage, CreateSnapshot, CreateVolume, Image, ImageId, Medium, Region, RegisterImage, Snapshot,
    SnapshotId, TagResource, Taggable, Tagged, Volume, VolumeId, VolumeKinds,
};
use bake_engine::{
    Calls, Found, Keep, Mutation, MutationKind, Mutations, Op, Resend, StepContext, StepError, StepResult, Undone,
};
use serde::{Deserialize, Serialize};

use super::cloud::{FakeCloud, Lacks, State, Thing};

pub(super) fn register(cloud: &FakeCloud, lacks: Lacks, mutations: &mut Mutations) -> CloudKinds {
    let volume = making(cloud, mutations);
    let snapshot = (lacks != Lacks::Snapshots).then(|| making(cloud, mutations));
    let image = (lacks != Lacks::Images).then(|| making(cloud, mutations));
    let tag = (lacks != Lacks::Tags).then(|| mutations.register(Tagging(cloud.clone())));
    let copy = (lacks != Lacks::Copies).then(|| making(cloud, mutations));
    let medium = if cloud.state().disks.is_some() { Medium::File } else { Medium::Attached };
    let volumes = [(medium, VolumeKinds { own: None, create: volume, attach: None, snapshot })].into();
    CloudKinds { volumes, image, copy, tag, share: None, guard: None }
}

fn making<Q: Making>(cloud: &FakeCloud, mutations: &mut Mutations) -> MutationKind<Q, Q::Thing> {
    mutations.register(Maker::<Q>::new(cloud))
}

/// A request that makes one thing.
pub(super) trait Making: Serialize + for<'de> Deserialize<'de> + Send + Sync + 'static {
    /// What is read back.
    type Thing: Serialize + for<'de> Deserialize<'de> + Send + Sync + 'static;
    const NAME: &'static str;
    /// Send, look, settle, undo.
    const CALLS: [&'static str; 4];
    const KEEP: Keep;
    const RESEND: Resend;

    fn make(&self, op: &Op, state: &State) -> StepResult<Thing>;
    fn read_back(id: &str, thing: &Thing) -> Self::Thing;
}

pub(super) struct Maker<Q> {
    cloud: FakeCloud,
    request: PhantomData<fn(Q)>,
}

impl<Q> Maker<Q> {
    pub(super) fn new(cloud: &FakeCloud) -> Self {
        Self { cloud: cloud.clone(), request: PhantomData }
    }
}

/// Enough to find it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    region: Region,
    id: String,
}

impl<Q: Making> Mutation for Maker<Q> {
    type Request = Q;
    type Made = Made;
    type Result = Q::Thing;

    fn name(&self) -> &'static str {
        Q::NAME
    }

    fn calls(&self) -> Calls {
        const { Calls { send: &[Q::CALLS[0]], settle: &[Q::CALLS[2]], undo: &[Q::CALLS[3]] } }
    }

    fn keep(&self) -> Keep {
        Q::KEEP
    }

    fn resend(&self) -> Resend {
        Q::RESEND
    }

    async fn send(&self, op: &Op, request: &Q) -> StepResult<Made> {
        self.cloud.call(Q::CALLS[0], |state| {
            if Q::RESEND == Resend::SameAnswer
                && let [made] = &made_by(op, state)[..]
            {
                return Ok(made.clone());
            }
            let thing = request.make(op, state)?;
            Ok(Made { region: thing.region.clone(), id: state.make(thing) })
        })
    }

    async fn find(&self, op: &Op, _: &Q) -> StepResult<Found<Made>> {
        self.cloud.call(Q::CALLS[1], |state| {
            let mut made = made_by(op, state);
            Ok(match made.len() {
                0 => Found::Absent,
                1 => Found::Made(made.remove(0)),
                _ => Found::Ambiguous(made.into_iter().map(|made| made.id).collect()),
            })
        })
    }

    async fn settle(&self, _: &StepContext, _: &Q, made: &Made) -> StepResult<Q::Thing> {
        self.cloud.call(Q::CALLS[2], |state| Ok(Q::read_back(&made.id, state.existing(&made.region, &made.id)?)))
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        self.cloud.call(Q::CALLS[3], |state| {
            let Some(thing) = state.things.get(&made.id) else { return Ok(Undone::Gone) };
            if thing.tags.get("bake:run").map(String::as_str) != Some(op.run().as_str()) {
                return Err(StepError::permanent(format!("`{}` is not of run `{}`", made.id, op.run())));
            }
            if state.things.values().any(|other| other.uses.as_ref() == Some(&made.id)) {
                return Ok(Undone::InUse);
            }
            state.remove(&made.id);
            Ok(Undone::Gone)
        })
    }
}

fn made_by(op: &Op, state: &State) -> Vec<Made> {
    let ours = state.things.iter().filter(|(_, thing)| thing.token == op.token());
    ours.map(|(id, thing)| Made { region: thing.region.clone(), id: id.clone() }).collect()
}

impl Making for CreateVolume {
    type Thing = Volume;
    const NAME: &'static str = "fake.volume";
    const CALLS: [&'static str; 4] = ["CreateVolume", "FindVolume", "WaitForVolume", "DeleteVolume"];
    const KEEP: Keep = Keep::Scaffold;
    const RESEND: Resend = Resend::SameAnswer;

    fn make(&self, op: &Op, state: &State) -> StepResult<Thing> {
        let base = state.bases.iter().find(|base| base.id == self.base);
        let base = base.ok_or_else(|| StepError::permanent(format!("there is no base image `{}`", self.base)))?;
        Ok(Thing { size: base.size, ..thing("volume", &self.region, op) })
    }

    fn read_back(id: &str, thing: &Thing) -> Volume {
        Volume { id: VolumeId::new(id), region: thing.region.clone(), size: thing.size }
    }
}

impl Making for CreateSnapshot {
    type Thing = Snapshot;
    const NAME: &'static str = "fake.snapshot";
    const CALLS: [&'static str; 4] = ["CreateSnapshot", "FindSnapshot", "WaitForSnapshot", "DeleteSnapshot"];
    const KEEP: Keep = Keep::Artifact;
    const RESEND: Resend = Resend::OnlyIfAbsent;

    fn make(&self, op: &Op, state: &State) -> StepResult<Thing> {
        let size = state.existing(&self.region, self.volume.as_str())?.size;
        Ok(Thing { size, ..thing("snapshot", &self.region, op) })
    }

    fn read_back(id: &str, thing: &Thing) -> Snapshot {
        Snapshot { id: SnapshotId::new(id), region: thing.region.clone(), size: thing.size }
    }
}

impl Making for RegisterImage {
    type Thing = Image;
    const NAME: &'static str = "fake.image";
    const CALLS: [&'static str; 4] = ["RegisterImage", "FindImage", "WaitForImage", "DeregisterImage"];
    const KEEP: Keep = Keep::Artifact;
    const RESEND: Resend = Resend::OnlyIfAbsent;

    fn make(&self, op: &Op, state: &State) -> StepResult<Thing> {
        let size = state.existing(&self.region, self.snapshot.as_str())?.size;
        let uses = Some(self.snapshot.to_string());
        Ok(Thing { size, uses, ..image(&self.name, &self.region, op, state)? })
    }

    fn read_back(id: &str, thing: &Thing) -> Image {
        read_back_image(id, thing)
    }
}

impl Making for CopyImage {
    type Thing = Image;
    const NAME: &'static str = "fake.copy";
    const CALLS: [&'static str; 4] = ["CopyImage", "FindCopy", "WaitForCopy", "DeregisterCopy"];
    const KEEP: Keep = Keep::Artifact;
    const RESEND: Resend = Resend::OnlyIfAbsent;

    fn make(&self, op: &Op, state: &State) -> StepResult<Thing> {
        let size = state.existing(&self.from, self.image.as_str())?.size;
        let mut copy = image(&self.name, &self.region, op, state)?;
        // Who made it is not for the request to say.
        copy.tags = self.tags.clone().into_iter().chain(copy.tags).collect();
        Ok(Thing { size, ..copy })
    }

    fn read_back(id: &str, thing: &Thing) -> Image {
        read_back_image(id, thing)
    }
}

fn image(name: &str, region: &Region, op: &Op, state: &State) -> StepResult<Thing> {
    let mut others = state.things.values().filter(|other| other.kind == "image" && other.region == *region);
    if others.any(|other| other.name == name) {
        // It may be our own, from a call whose answer was lost: whoever asked has to look.
        return Err(StepError::unknown(format!("the name `{name}` is taken in region `{region}`")));
    }
    Ok(Thing { name: name.into(), ..thing("image", region, op) })
}

fn read_back_image(id: &str, thing: &Thing) -> Image {
    let (name, region) = (thing.name.clone(), thing.region.clone());
    Image { id: ImageId::new(id), name, region, store: "fake".into(), account: None }
}

fn thing(kind: &'static str, region: &Region, op: &Op) -> Thing {
    let (region, token, tags) = (region.clone(), op.token().to_owned(), op.tags());
    Thing { kind, region, name: String::new(), size: 0, token, uses: None, tags }
}

/// Tags go with what carries them, so there is nothing to undo.
struct Tagging(FakeCloud);

impl Mutation for Tagging {
    type Request = TagResource;
    type Made = ();
    type Result = Tagged;

    fn name(&self) -> &'static str {
        "fake.tags"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["CreateTags"], settle: &["DescribeTags"], undo: &[] }
    }

    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, _: &Op, request: &TagResource) -> StepResult<()> {
        self.0.call("CreateTags", |state| {
            let id = tagged_id(request);
            state.existing(&request.region, id)?;
            let thing = state.things.get_mut(id).expect("it was just there");
            thing.tags.extend(request.tags.clone());
            Ok(())
        })
    }

    async fn find(&self, _: &Op, request: &TagResource) -> StepResult<Found<()>> {
        self.0.call("FindTags", |state| {
            let has = &state.existing(&request.region, tagged_id(request))?.tags;
            let set = request.tags.iter().all(|(key, value)| has.get(key) == Some(value));
            Ok(if set { Found::Made(()) } else { Found::Absent })
        })
    }

    async fn settle(&self, _: &StepContext, request: &TagResource, (): &()) -> StepResult<Tagged> {
        self.0.call("DescribeTags", |state| {
            Ok(Tagged { tags: state.existing(&request.region, tagged_id(request))?.tags.clone() })
        })
    }

    async fn undo(&self, _: &Op, (): &()) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

fn tagged_id(request: &TagResource) -> &str {
    match &request.resource {
        Taggable::Snapshot(id) => id.as_str(),
        Taggable::Image(id) => id.as_str(),
    }
}
