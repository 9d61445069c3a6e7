use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use bake_engine::{MutationKind, StepContext, StepError, StepResult, Undone};

use crate::{
    Account, Ahead, AttachVolume, Attachment, BaseImage, CopyImage, CreateSnapshot, CreateVolume, GuardImage, Image,
    Medium, OwnBase, OwnedBase, Region, RegisterImage, ShareImage, Shared, Snapshot, TagResource, Tagged, Volume,
};

/// Which base image is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BaseQuery {
    /// A name or an id; `None` asks the cloud for its default, which it gives only if there is no doubt.
    pub wanted: Option<String>,
    /// Where to look; `None` is the cloud's own default.
    pub region: Option<Region>,
}

/// The kinds of change a cloud can make, each registered with the engine once.
///
/// A kind that a cloud lacks is `None`; a finalizer that needs it is refused when the environment is put together.
#[derive(Clone)]
pub struct CloudKinds {
    /// What can be done with volumes, by how they come to this machine.
    pub volumes: BTreeMap<Medium, VolumeKinds>,
    /// A registered image.
    pub image: Option<MutationKind<RegisterImage, Image>>,
    /// The same image in another region, with bytes of its own there. The copy belongs to the run that made it.
    pub copy: Option<MutationKind<CopyImage, Image>>,
    /// The right of other accounts to use an image.
    pub share: Option<MutationKind<ShareImage, Shared>>,
    /// How long an image is good, and that it stays.
    pub guard: Option<MutationKind<GuardImage, ()>>,
    /// Tags on what was made.
    pub tag: Option<MutationKind<TagResource, Tagged>>,
}

/// The kinds of change around a volume, for one way that it comes to this machine.
#[derive(Clone)]
pub struct VolumeKinds {
    /// A base image of another account as one of our own, where volumes cannot be made of it otherwise. It stays for later bakes.
    pub own: Option<MutationKind<OwnBase, OwnedBase>>,
    /// A writable disk from a base image. Scaffold: undone when the run ends.
    pub create: MutationKind<CreateVolume, Volume>,
    /// The volume as a disk of this machine, where that is a change of its own. Scaffold, too.
    pub attach: Option<MutationKind<AttachVolume, Attachment>>,
    /// The immutable bytes of a sealed volume.
    pub snapshot: Option<MutationKind<CreateSnapshot, Snapshot>>,
}

/// Something that a run has made and that no image needs, as its tags tell.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Scrap {
    /// What it is.
    pub kind: ScrapKind,
    /// The cloud's own id.
    pub id: String,
    /// Where it is.
    pub region: Region,
    /// The run that made it.
    pub run: String,
    /// When it was made.
    pub created: jiff::Timestamp,
    /// Size in bytes.
    pub size: u64,
}

/// What can be scrap. An image never is: whoever bakes elsewhere knows what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrapKind {
    /// A volume.
    Volume,
    /// A snapshot without an image.
    Snapshot,
}

/// A place where base images, volumes, snapshots and images live.
///
/// Reads may be called at any time and as often as anybody likes; they change nothing. Every change goes through
/// [`Cloud::kinds`], so that the engine can journal it, find it again after a crash and undo it.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// Returns the name that environments use: `local`, `ec2`.
    fn name(&self) -> &'static str;

    /// Returns the registered kinds of change.
    fn kinds(&self) -> &CloudKinds;

    /// Says what is wrong with the name of a region that files or flags ask for, without asking anybody.
    fn check_region(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }

    /// Finds the base image. Ambiguity is an error that lists the candidates; it is never resolved by a guess.
    async fn resolve_base(&self, cx: StepContext, query: &BaseQuery) -> StepResult<BaseImage>;

    /// Tells whether it can say what will go wrong before anything is made. If not, it is not asked.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Looks for everything that will keep a bake from ending well, without making anything: a line for each finding.
    async fn preflight(&self, _: StepContext, _: &Ahead) -> StepResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Tells which image has a name in a region of an account, the bake's own if none is named; `None` if nobody has it.
    async fn holder_of_name(&self, _: &str, _: &Region, _: Option<&Account>) -> StepResult<Option<String>> {
        Ok(None)
    }

    /// Lists what runs have made, whoever's they were, and no image needs.
    async fn scraps(&self, cx: StepContext) -> StepResult<Vec<Scrap>>;

    /// Removes a scrap; says so if somebody uses it.
    async fn remove_scrap(&self, cx: StepContext, scrap: &Scrap) -> StepResult<Undone>;

    /// Tells whether an image is there.
    async fn has_image(&self, cx: StepContext, image: &Image) -> StepResult<bool>;

    /// Returns the file that holds a volume's bytes, where the medium is [`Medium::File`].
    async fn disk_file(&self, volume: &Volume) -> StepResult<PathBuf> {
        Err(StepError::bug(format!("the cloud `{}` keeps volume `{}` in no file", self.name(), volume.id)))
    }
}
