use std::path::PathBuf;

use async_trait::async_trait;
use bake_engine::{MutationKind, StepContext, StepError, StepResult};

use crate::{
    BaseImage, CopyImage, CreateSnapshot, CreateVolume, Image, Medium, Region, RegisterImage, Snapshot, TagResource,
    Tagged, Volume,
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
    /// A writable disk from a base image. Scaffold: undone when the run ends.
    pub volume: MutationKind<CreateVolume, Volume>,
    /// The immutable bytes of a sealed volume.
    pub snapshot: Option<MutationKind<CreateSnapshot, Snapshot>>,
    /// A registered image.
    pub image: Option<MutationKind<RegisterImage, Image>>,
    /// The same image in another region, with bytes of its own there. The copy belongs to the run that made it.
    pub copy: Option<MutationKind<CopyImage, Image>>,
    /// Tags on what was made.
    pub tag: Option<MutationKind<TagResource, Tagged>>,
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

    /// Returns how this cloud's volumes can be reached from here.
    fn mediums(&self) -> &'static [Medium];

    /// Says what is wrong with the name of a region that files or flags ask for, without asking anybody.
    fn check_region(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }

    /// Finds the base image. Ambiguity is an error that lists the candidates; it is never resolved by a guess.
    async fn resolve_base(&self, cx: StepContext, query: &BaseQuery) -> StepResult<BaseImage>;

    /// Returns the file that holds a volume's bytes, where the medium is [`Medium::File`].
    async fn disk_file(&self, volume: &Volume) -> StepResult<PathBuf> {
        Err(StepError::bug(format!("the cloud `{}` keeps volume `{}` in no file", self.name(), volume.id)))
    }
}
