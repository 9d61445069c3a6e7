//! The bake itself: an environment and a request become a plan.
//!
//! [`Bake::plan`] reads as the recipe it is. It touches nothing: the same plan is printed, drawn or run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bake_config::{ByteSize, Condition, StepUse, Text};
use bake_engine::{
    Handle, LiveGuard, Plan, Retry, Slot, StepContext, StepDefaults, StepError, StepResult, Steps, Undo, Verdict,
};

use crate::identity::{self, IdentityPlan};
use crate::known::{Known, Moment};
use crate::plugin::{
    Ahead, BakeHandles, BaseQuery, BlockDevice, Cloud, Finalizer, ImageName, Images, Medium, OpenVolume, PlanError,
    Provisioner, VolumeKinds, Volumes, Wishes, pointer,
};
use crate::{
    AttachVolume, Attachment, BaseImage, CreateSnapshot, CreateVolume, Identity, Image, Installed, OwnBase,
    PackageRequest, Region, Rendered, Sealed, Snapshot, Tags, Volume,
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
    /// What must be so for it to run; decided once.
    pub conditions: Vec<Condition>,
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
            conditions: Vec::new(),
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
        self.volume_kinds().map(|_| ())
    }

    /// What the cloud can do with volumes that come to this machine as the block device wants them.
    fn volume_kinds(&self) -> Result<&VolumeKinds, MediumMismatch> {
        let words = |medium: &Medium| match medium {
            Medium::Attached => "attached devices",
            Medium::File => "files",
        };
        let all = &self.cloud.kinds().volumes;
        all.get(&self.blockdevice.medium()).ok_or_else(|| MediumMismatch {
            blockdevice: self.blockdevice.name().into(),
            cloud: self.cloud.name().into(),
            mediums: all.keys().map(words).collect::<Vec<_>>().join(" or "),
        })
    }
}

impl Composition {
    /// Finds every mistake in templates and predicates that does not depend on their values.
    pub fn mistakes(&self, known: &Known, name: Option<&Text>) -> Vec<PlanError> {
        self.identity(known, name).check()
    }

    /// Names every text that a bake evaluates: the finalizer, what it is for, and the text.
    pub fn texts(&self) -> Vec<(String, String, Text)> {
        let of = |placed: &FinalizerUse| {
            let templates = placed.finalizer.templates();
            let texts = templates.all().into_iter().map(|(key, text)| (key, text.clone()));
            let conditions = placed.conditions.iter().map(|one| ("when".to_owned(), one.predicate.clone()));
            let all = texts.chain(conditions);
            all.map(|(key, text)| (placed.name.clone(), key, text)).collect::<Vec<_>>()
        };
        self.finalizers.iter().flatten().flat_map(of).collect()
    }

    fn identity(&self, known: &Known, name: Option<&Text>) -> IdentityPlan {
        IdentityPlan::new(Arc::new(known.clone()), name, self.finalizers.iter().flatten())
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
    /// What templates may name before anything is made.
    pub known: Known,
    /// What the images are called, whatever the finalizers say: a template.
    pub name: Option<Text>,
    /// What is laid on single steps.
    pub steps: Vec<StepUse>,
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
        let names = self.composition.identity(&self.known, self.name.as_ref());
        if let Some(mistake) = names.check().into_iter().next() {
            return Err(mistake);
        }
        let mut plan = Plan::new();
        let mut steps = plan.steps();

        let base = steps.step("base").run((self.composition.cloud.clone(), self.base.clone()), resolve_base);
        let preflight = self.preflight(&mut steps, base);
        let (installed, sealed) = self.bake_volume(&mut steps, base, preflight)?;
        let identity = steps
            .step("identity")
            .needs((base, installed))
            .run(names.clone(), async |names, cx, (base, installed)| names.render(&cx, &base, &installed));
        let copy_tags = self.copy_tags(&mut steps, &names, (base, installed, identity));
        let snapshot = match self.wants_snapshot() {
            true => {
                let ready = (self.check_names(&mut steps, base, identity), copy_tags.values().copied().collect());
                Some(self.take_snapshot(&mut steps, sealed, identity, ready)?)
            }
            false => None,
        };

        let known = Arc::new(self.known.clone());
        let (images, place) = (Images::new(), String::new());
        let mut handles = BakeHandles { base, installed, identity, snapshot, images, place, known, copy_tags };
        self.finalize(&mut steps, &mut handles)?;
        self.lay_on_steps(&mut plan)?;
        plan.check().map_err(|errors| PlanError::Graph(errors.to_string()))?;
        Ok(Planned { plan, handles })
    }

    /// What all finalizers will ask of the cloud.
    fn wishes(&self) -> Wishes {
        let mut all = Wishes::default();
        self.composition.finalizers.iter().flatten().for_each(|placed| all.add(placed.finalizer.wishes()));
        all
    }

    /// Looks for what will keep the bake from ending well, with all findings at once; nothing is made meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if there is any.
    pub async fn look_ahead(&self, cx: StepContext, base: &BaseImage) -> StepResult<()> {
        let ahead = Ahead { base: base.clone(), medium: self.composition.blockdevice.medium(), wishes: self.wishes() };
        let small = ahead.wishes.root_disks.iter().filter(|size| **size < base.size);
        let mut findings: Vec<_> = small
            .map(|size| {
                format!(
                    "a root disk of {} is asked for, and the base image has {}",
                    ByteSize(*size),
                    ByteSize(base.size)
                )
            })
            .collect();
        findings.extend(self.composition.cloud.preflight(cx, &ahead).await?);
        match findings.is_empty() {
            true => Ok(()),
            false => Err(StepError::permanent("this bake cannot end well").details(findings)),
        }
    }

    fn preflight(&self, steps: &mut Steps<'_>, base: Handle<BaseImage>) -> Option<Handle<()>> {
        if !self.composition.cloud.looks_ahead() {
            return None;
        }
        let step = steps.step("preflight").needs(base);
        Some(step.run(self.clone(), async |bake, cx, base| bake.look_ahead(cx, &base).await))
    }

    /// Makes sure that the names of all images are free, now that they are known, wherever the images will be.
    fn check_names(
        &self,
        steps: &mut Steps<'_>,
        base: Handle<BaseImage>,
        identity: Handle<Identity>,
    ) -> Option<Handle<()>> {
        if !self.composition.cloud.looks_ahead() {
            return None;
        }
        let state = (self.composition.cloud.clone(), self.wishes());
        Some(steps.step("names").needs((base, identity)).run(state, names_are_free))
    }

    /// The tags of copies, a step for each region, so that a bake that is resumed can go to one region more.
    fn copy_tags(
        &self,
        steps: &mut Steps<'_>,
        names: &IdentityPlan,
        from: (Handle<BaseImage>, Handle<Installed>, Handle<Identity>),
    ) -> BTreeMap<Region, Handle<Tags>> {
        let regions: BTreeSet<Region> = self.wishes().copies.into_iter().map(|copy| copy.region).collect();
        let mut steps = steps.under("identity");
        let mut tags_in = |region: &Region| {
            let state = (names.clone(), region.clone());
            steps.step(region.as_str()).needs(from).run(
                state,
                async |(names, region), _, (base, installed, identity)| {
                    names.copy_tags(&region, (&base, &installed, &identity))
                },
            )
        };
        regions.iter().map(|region| (region.clone(), tags_in(region))).collect()
    }

    fn lay_on_steps(&self, plan: &mut Plan) -> Result<(), PlanError> {
        for step in &self.steps {
            let mut settings = StepDefaults::new();
            if let Some(limit) = step.timeout {
                settings = settings.timeout(limit);
            }
            if let Some(again) = step.retry {
                settings = settings.retry(tries_again(again));
            }
            let settings = step.after.iter().fold(settings, |settings, other| settings.after_path(&other.text));
            if plan.lay(&step.path.text, &settings) == 0 {
                let known = plan.paths().map(ToOwned::to_owned).collect();
                return Err(PlanError::UnknownStep {
                    path: step.path.text.clone(),
                    origin: step.path.origin.clone(),
                    known,
                });
            }
        }
        Ok(())
    }

    /// The volume context: everything between making the volume and having it sealed.
    fn bake_volume(
        &self,
        steps: &mut Steps<'_>,
        base: Handle<BaseImage>,
        preflight: Option<Handle<()>>,
    ) -> Result<(Handle<Installed>, Handle<Sealed>), PlanError> {
        let Composition { cloud, blockdevice, volume: volumes, provisioner, .. } = &self.composition;
        let kinds = self.composition.volume_kinds()?;
        let own = kinds.own.as_ref().map(|kind| {
            let step = steps.step("own").needs((base, preflight));
            let step = step.when("the base image is another account's", base, |base: BaseImage| Ok(base.borrowed));
            step.mutate(kind, |(base, _)| OwnBase { base: base.id, region: base.region })
        });
        let own = own.map(|own| own.maybe());
        Ok(steps.scope("volume", |scope| {
            let volume = scope.step("create").needs((base, preflight, own)).slot(Slot::LocalIo).mutate(
                &kinds.create,
                |(base, _, own)| CreateVolume {
                    base: base.id,
                    region: base.region,
                    snapshot: own.flatten().map(|own| own.snapshot).or(base.snapshot),
                },
            );
            let attachment = kinds.attach.as_ref().map(|kind| {
                let request = |volume: Volume| AttachVolume { volume: volume.id, region: volume.region };
                scope.step("attach").needs(volume).mutate(kind, request)
            });
            let opener = Opener { cloud: cloud.clone(), blockdevice: blockdevice.clone(), volumes: volumes.clone() };
            let open = scope.step("open").needs((volume, attachment)).slot(Slot::LocalIo).open(opener, open, discard);
            let installed = scope
                .step("provision")
                .needs((open, base))
                .slot(Slot::Chroot)
                .run((provisioner.clone(), self.request.clone()), install);
            // `installed` is needed although it is not looked at: a root is sealed only if provisioning succeeded.
            let sealed = scope.step("seal").needs((open, volume, installed)).slot(Slot::LocalIo).run((), seal);
            (installed, sealed)
        }))
    }

    fn take_snapshot(
        &self,
        steps: &mut Steps<'_>,
        sealed: Handle<Sealed>,
        identity: Handle<Identity>,
        ready: (Option<Handle<()>>, Vec<Handle<Tags>>),
    ) -> Result<Handle<Snapshot>, PlanError> {
        let cloud = &self.composition.cloud;
        let kind = self.composition.volume_kinds()?.snapshot.as_ref().ok_or_else(|| PlanError::MissingKind {
            finalizer: self.snapshot_users().collect::<Vec<_>>().join("`, `"),
            cloud: cloud.name().into(),
            kind: "snapshots",
        })?;
        // That names are free and copies can be tagged is needed although it is not looked at: what cannot be delivered is not made.
        Ok(steps.step("snapshot").needs((sealed, identity, ready)).mutate(kind, |(sealed, identity, _)| {
            let tags = identity.tags_at_creation(Rendered::SNAPSHOT);
            CreateSnapshot { volume: sealed.volume, region: sealed.region, description: identity.description, tags }
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
                let own_handles = BakeHandles { place: placed.name.clone(), ..handles.clone() };
                let defaults = defaults(placed);
                let mut own = steps.under(&placed.name).with(defaults.clone());
                let defaults = under_conditions(placed, &own_handles, &mut own, defaults);
                drop(own);
                let mut own = steps.under(&placed.name).with(defaults);
                made.extend(placed.finalizer.clone().plan(&own_handles, &mut own)?);
            }
            steps.wait_for_all_since(mark, &format!("group {}", number + 1));
            handles.images.extend(made);
        }
        Ok(())
    }
}

/// What the environment lays on every step of a finalizer; no plugin implements any of it.
fn defaults(placed: &FinalizerUse) -> StepDefaults {
    let mut defaults = StepDefaults::new().keep_going();
    if placed.optional {
        defaults = defaults.optional();
    }
    if let Some(limit) = placed.timeout {
        defaults = defaults.timeout(limit);
    }
    if let Some(again) = placed.retry {
        defaults = defaults.retry(tries_again(again));
    }
    placed.after.iter().fold(defaults, |defaults, other| defaults.after_path(&format!("finalize/{other}")))
}

fn tries_again(again: u32) -> Retry {
    Retry::attempts(again.saturating_add(1))
}

/// Lets the steps of a finalizer run only if its conditions are met.
///
/// That is decided once: in the step `identity`, or, if a predicate is about images, in a step of its own, `when`, after the
/// groups that make them. All steps of the finalizer go by that one answer.
fn under_conditions(
    placed: &FinalizerUse,
    handles: &BakeHandles,
    steps: &mut Steps<'_>,
    defaults: StepDefaults,
) -> StepDefaults {
    let Some(text) = Condition::joined(&placed.conditions) else { return defaults };
    if identity::moment(&placed.conditions) != Moment::Image {
        let runs = handles.identity.at::<bool>(pointer(&["runs", &placed.name]));
        return defaults.when(&text, runs, Ok);
    }
    let images: BTreeMap<_, _> = handles.images.iter().map(|(name, image)| (name.clone(), image.maybe())).collect();
    let state = (Arc::clone(&handles.known), placed.name.clone(), placed.conditions.clone());
    let runs = steps.step("when").needs((handles.base, handles.installed, images)).run(
        state,
        async |(known, name, conditions), _, (base, installed, images)| {
            let images = images.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
            let values = known.provisioned(&base, &installed).with_images(None, &images);
            identity::decide(&name, &conditions, &values.to_value())
        },
    );
    defaults.when(&text, runs, Ok)
}

async fn resolve_base((cloud, query): (Arc<dyn Cloud>, BaseQuery), cx: StepContext, _: ()) -> StepResult<BaseImage> {
    cloud.resolve_base(cx, &query).await
}

async fn names_are_free(
    (cloud, wishes): (Arc<dyn Cloud>, Wishes),
    _: StepContext,
    (base, identity): (BaseImage, Identity),
) -> StepResult<()> {
    let mut places: BTreeSet<_> = wishes.copies.into_iter().map(|copy| (copy.region, copy.account)).collect();
    places.insert((base.region, None));
    let rendered = identity.finalizers.iter().filter(|(name, _)| identity.runs.get(*name) != Some(&false));
    let names: BTreeSet<_> = rendered.filter_map(|(_, rendered)| rendered.texts.get(ImageName::KEY)).collect();
    let mut taken = Vec::new();
    for name in names {
        for (region, account) in &places {
            if let Some(holder) = cloud.holder_of_name(name, region, account.as_ref()).await? {
                taken.push(format!("the name `{name}` is taken in region `{region}`, by {holder}"));
            }
        }
    }
    match taken.is_empty() {
        true => Ok(()),
        false => Err(StepError::permanent("not every image can have its name")
            .details(taken)
            .hint("choose another name with `--name`, or another `--suffix`")),
    }
}

#[derive(Clone)]
struct Opener {
    cloud: Arc<dyn Cloud>,
    blockdevice: Arc<dyn BlockDevice>,
    volumes: Arc<dyn Volumes>,
}

async fn open(
    opener: Opener,
    cx: StepContext,
    (volume, attachment): (Volume, Option<Attachment>),
) -> StepResult<Box<dyn OpenVolume>> {
    let disk = opener.blockdevice.open(cx.clone(), opener.cloud.clone(), &volume, attachment.as_ref()).await?;
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
