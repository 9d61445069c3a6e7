//! The bake itself: an environment and a request become a plan.
//!
//! [`Bake::plan`] reads as the recipe it is. It touches nothing: the same plan is printed, drawn or run.

use std::sync::Arc;
use std::time::Duration;

use bake_engine::{Handle, LiveGuard, Plan, Retry, Slot, StepContext, StepDefaults, StepResult, Steps, Undo, Verdict};

use crate::identity::{IdentityTemplates, render_identity};
use crate::plugin::{
    BakeHandles, BaseQuery, BlockDevice, Cloud, Finalizer, Images, Medium, OpenVolume, PlanError, Provisioner, Volumes,
};
use crate::template;
use crate::{
    BaseImage, CreateSnapshot, CreateVolume, Identity, Image, Installed, PackageRequest, Sealed, Snapshot, Volume,
};

/// The plugins of one environment, put together and known to fit.
#[derive(Clone)]
pub struct Composition {
    /// Where images live.
    pub cloud: Arc<dyn Cloud>,
    /// How a volume's bytes come to this machine.
    pub blockdevice: Arc<dyn BlockDevice>,
    /// How its root is opened.
    pub volume: Arc<dyn Volumes>,
    /// What installs packages.
    pub provisioner: Arc<dyn Provisioner>,
    /// What happens after the snapshot, in order; the members of a group run together.
    pub finalizers: Vec<Vec<FinalizerUse>>,
}

/// A finalizer at its place in a set, with what the environment lays on it.
#[derive(Clone)]
pub struct FinalizerUse {
    /// Its name in this set; the plugin's, unless one plugin stands in the set twice.
    pub name: String,
    /// The plugin.
    pub finalizer: Arc<dyn Finalizer>,
    /// Its failure is reported, and the bake succeeds.
    pub optional: bool,
    /// How long each try of each of its steps may take.
    pub timeout: Option<Duration>,
    /// How often each of its steps is tried again after a failure that may pass; the engine's own number if not set.
    pub retry: Option<u32>,
    /// A predicate on what is known after provisioning: it runs only if that holds.
    pub when: Option<String>,
    /// Members of the set that end, well or not, before it starts.
    pub after: Vec<String>,
}

impl FinalizerUse {
    /// Places a finalizer under a name, with nothing laid on it.
    pub fn new(name: impl Into<String>, finalizer: Arc<dyn Finalizer>) -> Self {
        Self {
            name: name.into(),
            finalizer,
            optional: false,
            timeout: None,
            retry: None,
            when: None,
            after: Vec::new(),
        }
    }
}

/// A composition that cannot work.
#[derive(Debug, thiserror::Error)]
#[error("the block device `{blockdevice}` cannot open volumes of the cloud `{cloud}`, which come as {mediums}")]
pub struct MediumMismatch {
    blockdevice: String,
    cloud: String,
    mediums: String,
}

impl Composition {
    /// Refuses a cloud and a block device that cannot work together.
    pub fn check(&self) -> Result<(), MediumMismatch> {
        if self.cloud.mediums().contains(&self.blockdevice.medium()) {
            return Ok(());
        }
        let words = |medium: &Medium| match medium {
            Medium::Attached => "attached devices",
            Medium::File => "files",
        };
        Err(MediumMismatch {
            blockdevice: self.blockdevice.name().into(),
            cloud: self.cloud.name().into(),
            mediums: self.cloud.mediums().iter().map(words).collect::<Vec<_>>().join(" or "),
        })
    }
}

/// Everything that is fixed before a bake is planned.
#[derive(Clone)]
pub struct Bake {
    /// The plugins.
    pub composition: Composition,
    /// What to start from.
    pub base: BaseQuery,
    /// What to install.
    pub request: PackageRequest,
    /// How the result is named and tagged.
    pub identity: IdentityTemplates,
}

/// A bake as a graph, and the steps whose outputs a report wants.
pub struct Planned {
    /// The graph.
    pub plan: Plan,
    /// What its steps promise.
    pub handles: BakeHandles,
}

/// What to do with what a bake made when it does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Take it back.
    TakeBack,
    /// Leave it, for somebody to look into.
    Keep,
}

/// Decides what is taken back when a run has ended.
///
/// A bake that went well loses its scaffold. One that did not loses everything, unless an image exists: a good image is not
/// destroyed because a later step failed.
pub fn to_take_back(verdict: Verdict, images: &[Image], on_failure: OnFailure) -> Option<Undo> {
    match (verdict, on_failure) {
        (Verdict::Done, _) => Some(Undo::Scaffolds),
        (_, OnFailure::Keep) => None,
        (_, OnFailure::TakeBack) if !images.is_empty() => Some(Undo::Scaffolds),
        (_, OnFailure::TakeBack) => Some(Undo::Everything),
    }
}

impl Bake {
    /// Turns the bake into a graph of steps.
    pub fn plan(&self) -> Result<Planned, PlanError> {
        self.check_predicates()?;
        let mut plan = Plan::new();
        let mut steps = plan.steps();

        let base = steps.step("base").run((self.composition.cloud.clone(), self.base.clone()), resolve_base);
        let (installed, sealed) = self.bake_volume(&mut steps, base);
        let identity = steps
            .step("identity")
            .needs((base, installed))
            .run(self.identity.clone(), async |templates, _cx, (base, installed)| {
                render_identity(&templates, &base, &installed)
            });
        let snapshot = self.wants_snapshot().then(|| self.take_snapshot(&mut steps, sealed, identity)).transpose()?;

        let mut handles = BakeHandles { base, installed, identity, snapshot, images: Images::new() };
        self.finalize(&mut steps, &mut handles)?;
        plan.check().map_err(|errors| PlanError::Graph(errors.to_string()))?;
        Ok(Planned { plan, handles })
    }

    fn check_predicates(&self) -> Result<(), PlanError> {
        let with_predicate =
            self.composition.finalizers.iter().flatten().filter_map(|placed| Some((placed, placed.when.as_ref()?)));
        for (placed, predicate) in with_predicate {
            template::check_predicate(predicate)
                .map_err(|source| PlanError::Predicate { finalizer: placed.name.clone(), source })?;
        }
        Ok(())
    }

    /// The volume context: everything between making the volume and having it sealed.
    fn bake_volume(&self, steps: &mut Steps<'_>, base: Handle<BaseImage>) -> (Handle<Installed>, Handle<Sealed>) {
        let Composition { cloud, blockdevice, volume: volumes, provisioner, .. } = &self.composition;
        steps.scope("volume", |scope| {
            let volume = scope
                .step("create")
                .needs(base)
                .slot(Slot::LocalIo)
                .mutate(&cloud.kinds().volume, |base| CreateVolume { base: base.id, region: base.region });
            let opener = Opener { cloud: cloud.clone(), blockdevice: blockdevice.clone(), volumes: volumes.clone() };
            let open = scope.step("open").needs(volume).slot(Slot::LocalIo).open(opener, open, discard);
            let installed = scope
                .step("provision")
                .needs((open, base))
                .slot(Slot::Chroot)
                .run((provisioner.clone(), self.request.clone()), install);
            // `installed` is needed although it is not looked at: a root is sealed only if provisioning succeeded.
            let sealed = scope.step("seal").needs((open, volume, installed)).slot(Slot::LocalIo).run((), seal);
            (installed, sealed)
        })
    }

    fn take_snapshot(
        &self,
        steps: &mut Steps<'_>,
        sealed: Handle<Sealed>,
        identity: Handle<Identity>,
    ) -> Result<Handle<Snapshot>, PlanError> {
        let cloud = &self.composition.cloud;
        let kind = cloud.kinds().snapshot.as_ref().ok_or_else(|| PlanError::MissingKind {
            finalizer: self.snapshot_users().collect::<Vec<_>>().join("`, `"),
            cloud: cloud.name().into(),
            kind: "snapshots",
        })?;
        Ok(steps.step("snapshot").needs((sealed, identity)).mutate(kind, |(sealed, identity)| CreateSnapshot {
            volume: sealed.volume,
            region: sealed.region,
            description: identity.description,
        }))
    }

    fn snapshot_users(&self) -> impl Iterator<Item = &str> {
        let finalizers = self.composition.finalizers.iter().flatten();
        finalizers.filter(|placed| placed.finalizer.needs().snapshot).map(|placed| placed.name.as_str())
    }

    fn wants_snapshot(&self) -> bool {
        self.snapshot_users().next().is_some()
    }

    /// The finalizer set: the members of a group run together, a later group waits for the earlier one.
    ///
    /// Waiting is order only. Whether a step runs is decided by its data, so an image that was not made takes only its own
    /// tags and copies with it.
    fn finalize(&self, steps: &mut Steps<'_>, handles: &mut BakeHandles) -> Result<(), PlanError> {
        let mut steps = steps.under("finalize");
        for (number, group) in self.composition.finalizers.iter().enumerate() {
            let mark = steps.len();
            let mut made = Images::new();
            for placed in group {
                let defaults = self.defaults(placed, handles);
                let mut own = steps.under(&placed.name).with(defaults);
                made.extend(placed.finalizer.clone().plan(handles, &mut own)?);
            }
            steps.wait_for_all_since(mark, &format!("group {}", number + 1));
            handles.images.extend(made);
        }
        Ok(())
    }

    /// What the environment lays on every step of a finalizer; no plugin implements any of it.
    fn defaults(&self, placed: &FinalizerUse, handles: &BakeHandles) -> StepDefaults {
        let mut defaults = StepDefaults::new().keep_going();
        if placed.optional {
            defaults = defaults.optional();
        }
        if let Some(limit) = placed.timeout {
            defaults = defaults.timeout(limit);
        }
        if let Some(again) = placed.retry {
            defaults = defaults.retry(Retry::attempts(again.saturating_add(1)));
        }
        if let Some(predicate) = placed.when.clone() {
            let (text, templates) = (predicate.clone(), self.identity.clone());
            let known = (handles.base, handles.installed);
            defaults =
                defaults.when(&text, known, move |(base, installed)| templates.decide(&predicate, &base, &installed));
        }
        placed.after.iter().fold(defaults, |defaults, other| defaults.after_path(&format!("finalize/{other}")))
    }
}

async fn resolve_base((cloud, query): (Arc<dyn Cloud>, BaseQuery), cx: StepContext, _: ()) -> StepResult<BaseImage> {
    cloud.resolve_base(cx, &query).await
}

#[derive(Clone)]
struct Opener {
    cloud: Arc<dyn Cloud>,
    blockdevice: Arc<dyn BlockDevice>,
    volumes: Arc<dyn Volumes>,
}

async fn open(opener: Opener, cx: StepContext, volume: Volume) -> StepResult<Box<dyn OpenVolume>> {
    let disk = opener.blockdevice.open(cx.clone(), opener.cloud.clone(), &volume).await?;
    opener.volumes.open(cx, disk).await
}

async fn discard(_: Opener, volume: Box<dyn OpenVolume>) -> StepResult<()> {
    volume.discard().await
}

async fn install(
    (provisioner, request): (Arc<dyn Provisioner>, PackageRequest),
    cx: StepContext,
    (mut volume, base): (LiveGuard<Box<dyn OpenVolume>>, BaseImage),
) -> StepResult<Installed> {
    provisioner.install(cx, volume.root(), &request, &base.architecture).await
}

async fn seal(
    _: (),
    cx: StepContext,
    (open, volume, _installed): (LiveGuard<Box<dyn OpenVolume>>, Volume, Installed),
) -> StepResult<Sealed> {
    let ended = open.take().seal(cx).await?;
    Ok(Sealed { volume: volume.id, region: volume.region, size: volume.size, ended })
}
