use std::sync::Arc;

use bake_config::{Origin, Stage, Text};
use bake_core::{
    BakeHandles, Cloud, DEFAULT_NAME, Finalizer, FinalizerUse, Image, ImageName, Images, Needs, PlanError,
    RegisterImage, Rendered, RootDisk, Snapshot, TagResource, TagTemplates, Taggable, Tagged, Tags, Templates,
};
use bake_engine::{Handle, MutationKind, StepContext, StepError, StepResult, Steps};
use tokio::sync::Barrier;

/// A finalizer that does what a test wants.
pub struct FakeFinalizer {
    name: &'static str,
    does: Does,
}

enum Does {
    /// The text goes behind the image's name.
    Register(MutationKind<RegisterImage, Image>, &'static str),
    /// The same, once as many others as the barrier counts are at the same point.
    RegisterTogether(MutationKind<RegisterImage, Image>, &'static str, Arc<Barrier>),
    Tag(MutationKind<TagResource, Tagged>),
    LookAtSnapshot,
    Nothing,
    Fail,
}

impl FakeFinalizer {
    /// Registers an image from the snapshot, as `fake_register`.
    pub fn register(cloud: &dyn Cloud) -> Result<Self, PlanError> {
        Self::register_as(cloud, "fake_register", "")
    }

    /// Registers another image from the same snapshot, as `fake_register_another`.
    pub fn register_another(cloud: &dyn Cloud) -> Result<Self, PlanError> {
        Self::register_as(cloud, "fake_register_another", "-another")
    }

    /// Registers an image, but first waits until all that share the barrier are running: `NAME`, with `-NAME` behind the
    /// image's name. Whoever runs them one after the other waits for ever, which a step's time limit ends.
    pub fn register_together(cloud: &dyn Cloud, name: &'static str, barrier: &Arc<Barrier>) -> Result<Self, PlanError> {
        let kind = cloud.kinds().image.clone().ok_or_else(|| missing(name, cloud, "images"))?;
        Ok(Self { name, does: Does::RegisterTogether(kind, name, barrier.clone()) })
    }

    fn register_as(cloud: &dyn Cloud, name: &'static str, suffix: &'static str) -> Result<Self, PlanError> {
        let kind = cloud.kinds().image.clone().ok_or_else(|| missing(name, cloud, "images"))?;
        Ok(Self { name, does: Does::Register(kind, suffix) })
    }

    /// Tags the images that there are by then, as `fake_tag`.
    pub fn tag(cloud: &dyn Cloud) -> Result<Self, PlanError> {
        let name = "fake_tag";
        let kind = cloud.kinds().tag.clone().ok_or_else(|| missing(name, cloud, "tags"))?;
        Ok(Self { name, does: Does::Tag(kind) })
    }

    /// Works from the snapshot, and makes nothing: `fake_look`.
    pub fn look() -> Self {
        Self { name: "fake_look", does: Does::LookAtSnapshot }
    }

    /// Has one step, which does nothing: `fake_nothing`.
    pub fn nothing() -> Self {
        Self { name: "fake_nothing", does: Does::Nothing }
    }

    /// Has one step, which fails: `fake_fail`.
    pub fn fail() -> Self {
        Self { name: "fake_fail", does: Does::Fail }
    }

    /// Places it in a set, under its own name; its failure fails the bake.
    pub fn placed(self) -> FinalizerUse {
        FinalizerUse::new(self.name, Arc::new(self))
    }
}

fn missing(finalizer: &str, cloud: &dyn Cloud, kind: &'static str) -> PlanError {
    PlanError::MissingKind { finalizer: finalizer.into(), cloud: cloud.name().into(), kind }
}

impl Finalizer for FakeFinalizer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self) -> Stage {
        match self.does {
            Does::Register(..) | Does::RegisterTogether(..) => Stage::Register,
            Does::Tag(_) => Stage::Tag,
            Does::LookAtSnapshot | Does::Nothing | Does::Fail => Stage::Notify,
        }
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: matches!(self.does, Does::Register(..) | Does::RegisterTogether(..) | Does::LookAtSnapshot) }
    }

    fn templates(&self) -> Templates {
        let text = |text: &str| Text { text: text.into(), origin: Origin::built_in() };
        match self.does {
            Does::Register(_, ending) | Does::RegisterTogether(_, ending, _) => {
                let template = text(&format!("{DEFAULT_NAME}{ending}"));
                Templates { image_name: Some(ImageName { template, ending }), ..Templates::default() }
            }
            Does::Tag(_) => {
                let copy_tags: TagTemplates = [("appversion".to_owned(), text("{{ package.appversion }}"))].into();
                let tags = [(Rendered::IMAGE.to_owned(), copy_tags.clone())].into();
                Templates { tags, copy_tags, ..Templates::default() }
            }
            Does::LookAtSnapshot | Does::Nothing | Does::Fail => Templates::default(),
        }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        match &self.does {
            Does::Register(kind, suffix) => return self.plan_image(kind, suffix, None, bake, steps),
            Does::RegisterTogether(kind, suffix, barrier) => {
                let met = steps.step("meet").needs(bake.identity).run(barrier.clone(), async |barrier, _, _| {
                    barrier.wait().await;
                    Ok(())
                });
                return self.plan_image(kind, suffix, Some(met), bake, steps);
            }
            Does::Tag(kind) => {
                for (name, &image) in &bake.images {
                    let inputs = (image, bake.tags(Rendered::IMAGE));
                    steps.step(name).needs(inputs).mutate(kind, |(image, tags)| TagResource {
                        resource: Taggable::Image(image.id),
                        region: image.region,
                        tags,
                    });
                }
            }
            Does::LookAtSnapshot => {
                let snapshot = bake.snapshot(self.name)?;
                steps
                    .step("look")
                    .needs(snapshot)
                    .run((), async |(), _: StepContext, snapshot: Snapshot| Ok(snapshot.size));
            }
            Does::Nothing => {
                steps.step("nothing").needs(bake.identity).run((), async |(), _, _| Ok(()));
            }
            Does::Fail => {
                steps.step("fail").needs(bake.identity).run((), async |(), _, _| -> StepResult<()> {
                    Err(StepError::permanent("this finalizer always fails"))
                });
            }
        }
        Ok(Images::new())
    }
}

impl FakeFinalizer {
    fn plan_image(
        &self,
        kind: &MutationKind<RegisterImage, Image>,
        suffix: &'static str,
        met: Option<Handle<()>>,
        bake: &BakeHandles,
        steps: &mut Steps<'_>,
    ) -> Result<Images, PlanError> {
        let inputs = (bake.snapshot(self.name)?, bake.base, bake.installed, bake.text(ImageName::KEY), met);
        let image =
            steps.step("image").needs(inputs).mutate(kind, |(snapshot, base, installed, name, _)| RegisterImage {
                name,
                description: "an image of a test".into(),
                snapshot: snapshot.id,
                region: snapshot.region,
                architecture: base.architecture,
                base: base.id,
                packages: installed.requested,
                tags: Tags::new(),
                machine: base.machine,
                disk: RootDisk::default(),
            });
        Ok([(format!("fake{suffix}"), image)].into())
    }
}
