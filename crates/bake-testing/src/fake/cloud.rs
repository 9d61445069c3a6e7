use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bake_core::{
    Architecture, BaseId, BaseImage, BaseQuery, Cloud, CloudKinds, CopyImage, Image, Machine, Region, Scrap, ScrapKind,
    Tags, Volume, VolumeId,
};
use bake_engine::{Cancel, Mutation, Mutations, StepContext, StepError, StepResult, Undone};
use tempfile::TempDir;

use super::kinds;

/// Large enough for the tree of a [`FakeRoot`](super::FakeRoot).
const BASE_SIZE: u64 = 64 << 10;

/// A cloud in memory. Clones, and everything that [`build`](FakeCloud::build) gives, share one state.
///
/// As in EC2, a volume is made once however often it is asked for with one token; of snapshots, images and copies a second call
/// makes a second one, so the engine has to look before it sends again.
#[derive(Clone)]
pub struct FakeCloud {
    state: Arc<Mutex<State>>,
    lacks: Lacks,
}

/// What a call does instead of working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happened, and never will.
    Refused,
    /// Nothing happened; the next time it works.
    Hiccup,
    /// Nothing happened, and the caller cannot know.
    LostRequest,
    /// It happened, and the caller does not hear of it.
    LostReply,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 4] = [Fault::Refused, Fault::Hiccup, Fault::LostRequest, Fault::LostReply];
}

/// A kind of change that a fake cloud does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lacks {
    /// It has them all.
    #[default]
    Nothing,
    /// It takes no snapshots.
    Snapshots,
    /// It registers no images.
    Images,
    /// It copies no images.
    Copies,
    /// It knows no tags.
    Tags,
}

/// Something that was made and is not gone.
pub(super) struct Thing {
    pub(super) kind: &'static str,
    pub(super) region: Region,
    pub(super) name: String,
    pub(super) size: u64,
    /// Of the operation that made it.
    pub(super) token: String,
    /// The id of what it is made of, and keeps in use.
    pub(super) uses: Option<String>,
    pub(super) tags: Tags,
}

pub(super) struct State {
    pub(super) bases: Vec<BaseImage>,
    /// By id.
    pub(super) things: BTreeMap<String, Thing>,
    pub(super) disks: Option<Disks>,
    made: usize,
    calls: Vec<&'static str>,
    fault: Option<(usize, Fault)>,
    cancel: Option<(usize, Cancel, u8)>,
}

/// Where volumes have their bytes, and what these are at first.
pub(super) struct Disks {
    folder: TempDir,
    base: PathBuf,
}

impl Disks {
    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!("{id}.raw"))
    }
}

impl State {
    /// Makes a thing, with an id that nothing had before.
    pub(super) fn make(&mut self, thing: Thing) -> String {
        self.made += 1;
        let id = format!("{}-{}", thing.kind, self.made);
        if let (Some(disks), "volume") = (&self.disks, thing.kind) {
            crate::copy_disk(&disks.base, &disks.file(&id));
        }
        self.things.insert(id.clone(), thing);
        id
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let (Some(disks), Some(_)) = (&self.disks, self.things.remove(id)) {
            // A snapshot has no file.
            let _ = std::fs::remove_file(disks.file(id));
        }
    }

    /// Finds a thing that a request names.
    pub(super) fn existing(&self, region: &Region, id: &str) -> StepResult<&Thing> {
        let found = self.things.get(id).filter(|thing| thing.region == *region);
        found.ok_or_else(|| StepError::permanent(format!("there is no `{id}` in region `{region}`")))
    }
}

impl FakeCloud {
    /// Makes a cloud with base images of these names, which may be the same ones. Its volumes are attached devices.
    pub fn new(bases: &[&str]) -> Self {
        let bases = bases.iter().zip(1..).map(|(name, number)| BaseImage {
            id: BaseId::new(format!("base-{number}")),
            name: (*name).into(),
            region: Region::new("here"),
            architecture: Architecture::of_this_machine(),
            borrowed: false,
            size: BASE_SIZE,
            tags: [("base_ami_version".into(), "7".into())].into(),
            snapshot: None,
            machine: Machine::default(),
        });
        let state = State {
            bases: bases.collect(),
            things: BTreeMap::new(),
            disks: None,
            made: 0,
            calls: Vec::new(),
            fault: None,
            cancel: None,
        };
        Self { state: Arc::new(Mutex::new(state)), lacks: Lacks::Nothing }
    }

    /// Makes volumes files instead: copies of this disk.
    #[must_use]
    pub fn in_files(self, disk: &Path) -> Self {
        let size = std::fs::metadata(disk).unwrap_or_else(|error| panic!("{}: {error}", disk.display())).len();
        let folder = tempfile::Builder::new().prefix("bake-fake-").tempdir().expect("a temporary folder");
        let mut state = self.state();
        state.bases.iter_mut().for_each(|base| base.size = size);
        state.disks = Some(Disks { folder, base: disk.to_owned() });
        drop(state);
        self
    }

    /// Takes a kind of change away.
    #[must_use]
    pub fn lacking(self, lacks: Lacks) -> Self {
        Self { lacks, ..self }
    }

    /// Lets one call fail, counted from 0.
    #[must_use]
    pub fn failing_at(self, call: usize, fault: Fault) -> Self {
        self.state().fault = Some((call, fault));
        self
    }

    /// Raises `cancel` to a level when one call arrives, counted from 0; the call itself works.
    #[must_use]
    pub fn cancelling_at(self, call: usize, cancel: &Cancel, level: u8) -> Self {
        self.state().cancel = Some((call, cancel.clone(), level));
        self
    }

    /// Registers the kinds of change and returns the cloud as a bake sees it.
    pub fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        let kinds = kinds::register(self, self.lacks, mutations);
        Arc::new(Client { cloud: self.clone(), kinds })
    }

    /// Makes a volume of the first base image, as if somebody had made it long ago.
    pub fn add_volume(&self) -> Volume {
        let mut state = self.state();
        let BaseImage { region, size, .. } = state.bases[0].clone();
        let id = state.make(Thing {
            kind: "volume",
            region: region.clone(),
            name: String::new(),
            size,
            token: String::new(),
            uses: None,
            tags: Tags::new(),
        });
        Volume { id: VolumeId::new(id), region, size }
    }

    /// Returns how it copies images, for a test that copies them in its own way.
    pub fn copies(&self) -> impl Mutation<Request = CopyImage, Result = Image> + use<> {
        kinds::Maker::<CopyImage>::new(self)
    }

    /// Removes a thing as if somebody had done so by hand.
    pub fn remove(&self, id: &str) {
        self.state().remove(id);
    }

    /// Names all that was made and is not gone, such as `volume-1`.
    pub fn alive(&self) -> Vec<String> {
        self.state().things.keys().cloned().collect()
    }

    /// Names the calls so far.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// Describes everything there is, base images included, a line for each.
    pub fn inventory(&self) -> Vec<String> {
        let state = self.state();
        let bases = state.bases.iter().map(|base| format!("{} {} {:?}", base.id, base.name, base.tags));
        let things =
            state.things.iter().map(|(id, thing)| format!("{id} {} {} {:?}", thing.region, thing.name, thing.tags));
        bases.chain(things).collect()
    }

    /// The folder that holds the disks of volumes, if they are files.
    pub fn folder(&self) -> Option<PathBuf> {
        self.state().disks.as_ref().map(|disks| disks.folder.path().to_owned())
    }

    /// One call to the cloud: counted, and failing if it is its turn.
    pub(super) fn call<T>(&self, name: &'static str, work: impl FnOnce(&mut State) -> StepResult<T>) -> StepResult<T> {
        let mut state = self.state();
        let number = state.calls.len();
        state.calls.push(name);
        if let Some((_, cancel, level)) = state.cancel.take_if(|(at, ..)| *at == number) {
            while cancel.level() < level {
                cancel.raise();
            }
        }
        match state.fault.take_if(|(at, _)| *at == number).map(|(_, fault)| fault) {
            None => work(&mut state),
            Some(Fault::Refused) => Err(StepError::permanent(format!("`{name}` is not allowed"))),
            Some(Fault::Hiccup) => Err(StepError::transient(format!("`{name}` did not work this time"))),
            Some(Fault::LostRequest) => Err(StepError::unknown(format!("no answer to `{name}`"))),
            Some(Fault::LostReply) => {
                work(&mut state)?;
                Err(StepError::unknown(format!("no answer to `{name}`")))
            }
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cloud as a bake sees it.
struct Client {
    cloud: FakeCloud,
    kinds: CloudKinds,
}

#[async_trait]
impl Cloud for Client {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn kinds(&self) -> &CloudKinds {
        &self.kinds
    }

    async fn resolve_base(&self, _: StepContext, query: &BaseQuery) -> StepResult<BaseImage> {
        self.cloud.call("DescribeBases", |state| resolve(&state.bases, query))
    }

    async fn scraps(&self, _: StepContext) -> StepResult<Vec<Scrap>> {
        self.cloud.call("DescribeScraps", |state| Ok(scraps(state)))
    }

    async fn remove_scrap(&self, _: StepContext, scrap: &Scrap) -> StepResult<Undone> {
        self.cloud.call("DeleteScrap", |state| {
            state.remove(&scrap.id);
            Ok(Undone::Gone)
        })
    }

    async fn has_image(&self, _: StepContext, image: &Image) -> StepResult<bool> {
        self.cloud.call("DescribeImage", |state| Ok(state.existing(&image.region, image.id.as_str()).is_ok()))
    }

    async fn disk_file(&self, volume: &Volume) -> StepResult<PathBuf> {
        self.cloud.call("DescribeVolume", |state| {
            state.existing(&volume.region, volume.id.as_str())?;
            let disks = state.disks.as_ref();
            disks.map(|disks| disks.file(volume.id.as_str())).ok_or_else(|| StepError::bug("its volumes are no files"))
        })
    }
}

fn scraps(state: &State) -> Vec<Scrap> {
    let kind = |id: &str, thing: &Thing| match thing.kind {
        "volume" => Some(ScrapKind::Volume),
        "snapshot" if state.things.values().all(|other| other.uses.as_deref() != Some(id)) => Some(ScrapKind::Snapshot),
        _ => None,
    };
    let scrap = |(id, thing): (&String, &Thing)| {
        let (kind, run) = (kind(id, thing)?, thing.tags.get("bake:run")?.clone());
        let (region, created) = (thing.region.clone(), jiff::Timestamp::UNIX_EPOCH);
        Some(Scrap { kind, id: id.clone(), region, run, created, size: thing.size })
    };
    state.things.iter().filter_map(scrap).collect()
}

fn resolve(bases: &[BaseImage], query: &BaseQuery) -> StepResult<BaseImage> {
    let here = bases.iter().filter(|base| query.region.as_ref().is_none_or(|region| base.region == *region));
    let meant: Vec<_> = match &query.wanted {
        None => here.collect(),
        Some(wanted) => here.filter(|base| base.id.as_str() == wanted || base.name == *wanted).collect(),
    };
    let wanted = query.wanted.as_deref().unwrap_or("any base image");
    match meant.as_slice() {
        [] => Err(StepError::permanent(format!("there is no base image `{wanted}`"))),
        [one] => Ok((*one).clone()),
        several => {
            let lines = several.iter().map(|base| format!("{} {}", base.id, base.name));
            Err(StepError::permanent(format!("`{wanted}` may be one of {}", several.len())).details(lines))
        }
    }
}
