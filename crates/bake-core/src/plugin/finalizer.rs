use std::collections::BTreeMap;
use std::sync::Arc;

use bake_config::{Origin, Stage, Text};
use bake_engine::{At, Classify, Handle, Outcome, StepResult, Steps};

use crate::image_name::TooShort;
use crate::known::Known;
use crate::tag_limits::TagError;
use crate::template::{self, TemplateError};
use crate::{BaseImage, Identity, Image, Installed, MediumMismatch, Region, Snapshot, Tags, Wishes};

/// Images by a name that stays the same from run to run: `local`, `ebs`, `eu-west-1/ebs`.
///
/// Step ids come from these names, so that a resumed run finds its steps again.
pub type Images = BTreeMap<String, Handle<Image>>;

/// A set of finalizers that makes no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A finalizer wants a snapshot, and its `needs` did not say so.
    #[error("the finalizer `{finalizer}` needs a snapshot and did not declare it")]
    UndeclaredSnapshot {
        /// Which one.
        finalizer: String,
    },
    /// A finalizer copies to a region, and its `wishes` did not say so.
    #[error("the finalizer `{finalizer}` copies to `{region}` and did not declare it")]
    UndeclaredRegion {
        /// Which one.
        finalizer: String,
        /// Where to.
        region: Region,
    },
    /// A cloud cannot do what a finalizer is for.
    #[error("the finalizer `{finalizer}` cannot work with the cloud `{cloud}`, which has no {kind}")]
    MissingKind {
        /// Which finalizer.
        finalizer: String,
        /// Which cloud.
        cloud: String,
        /// What it would need: `images`, `tags`.
        kind: &'static str,
    },
    /// A template or a predicate that cannot work, whatever its values will be.
    #[error("{origin}: `{key}` of the finalizer `{finalizer}`")]
    Template {
        /// Which finalizer.
        finalizer: String,
        /// What it is for: `image_name`, `tags.creator`, `when`.
        key: String,
        /// Where it is written.
        origin: Origin,
        /// What is wrong with it.
        #[source]
        source: Box<TemplateError>,
    },
    /// A tag that no cloud would take.
    #[error("{origin}: a tag of the finalizer `{finalizer}`")]
    Tag {
        /// Which finalizer.
        finalizer: String,
        /// Where it is written.
        origin: Origin,
        /// What is wrong with it.
        #[source]
        source: TagError,
    },
    /// A name that no cloud would take.
    #[error("{origin}: `image_name` of the finalizer `{finalizer}`")]
    ImageName {
        /// Which finalizer.
        finalizer: String,
        /// Where it is written.
        origin: Origin,
        /// What is wrong with it.
        #[source]
        source: TooShort,
    },
    /// Settings are laid on a step that is not there.
    #[error("{origin}: there is no step `{path}`")]
    UnknownStep {
        /// The path that was written.
        path: String,
        /// Where it is written.
        origin: Origin,
        /// The steps that there are.
        known: Vec<String>,
    },
    /// A finalizer cannot do what its settings ask for with this cloud.
    #[error("the finalizer `{finalizer}` cannot work with the cloud `{cloud}`: {reason}")]
    Unsupported {
        /// Which finalizer.
        finalizer: String,
        /// Which cloud.
        cloud: String,
        /// Why not.
        reason: String,
    },
    /// The cloud and the block device do not fit.
    #[error(transparent)]
    Medium(#[from] MediumMismatch),
    /// The graph itself is wrong.
    #[error("the plan is not sound: {0}")]
    Graph(String),
}

impl PlanError {
    /// Returns what to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Template { .. } => Some("`bake env vars` lists what templates may name".into()),
            Self::UnknownStep { known, .. } => Some(format!("the steps are: {}", known.join(", "))),
            Self::UndeclaredSnapshot { .. }
            | Self::UndeclaredRegion { .. }
            | Self::MissingKind { .. }
            | Self::Unsupported { .. }
            | Self::Tag { .. }
            | Self::ImageName { .. }
            | Self::Medium(_)
            | Self::Graph(_) => None,
        }
    }
}

/// What a finalizer works from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The snapshot taken on leaving the volume context.
    pub snapshot: bool,
}

/// What a finalizer wants filled in. Each text keeps where it was written, so that a mistake in it can be shown there.
///
/// All but `late` are filled in by the step `identity`, once the package database has spoken and before anything that
/// stays is made; the finalizer's steps then need them by [`BakeHandles::text`] and [`BakeHandles::tags`].
#[derive(Clone, Debug, Default)]
pub struct Templates {
    /// Name of the image that a registering finalizer makes.
    pub image_name: Option<ImageName>,
    /// Other texts, by their key. `description` of the first registering finalizer is the snapshot's, too.
    pub texts: BTreeMap<String, Text>,
    /// Tables of tags, by what they are for.
    pub tags: BTreeMap<String, TagTemplates>,
    /// Tags of the copies of images, filled in for each region that they go to.
    pub copy_tags: TagTemplates,
    /// Texts that need an image. The finalizer fills them in itself, by [`BakeHandles::fill_in`].
    pub late: BTreeMap<String, Text>,
}

/// Templates of tags, by their key.
pub type TagTemplates = BTreeMap<String, Text>;

/// The template of an image's name.
#[derive(Clone, Debug)]
pub struct ImageName {
    /// The template.
    pub template: Text,
    /// What such images always end in: `-ebs`. A name that is given for the whole bake gets it appended.
    pub ending: &'static str,
}

impl ImageName {
    /// The key of the rendered name, and of the setting.
    pub const KEY: &'static str = "image_name";
}

impl Templates {
    /// Names every text that is filled in, once: its key, and the text.
    pub fn all(&self) -> Vec<(String, &Text)> {
        let name = self.image_name.iter().map(|name| (ImageName::KEY.to_owned(), &name.template));
        let texts = self.texts.iter().map(|(key, text)| (key.clone(), text));
        let tables = self.tags.values().chain([&self.copy_tags]);
        let tags = tables.flatten().map(|(key, text)| (format!("tags.{key}"), text));
        let late = self.late.iter().map(|(key, text)| (key.clone(), text));
        let mut all: Vec<_> = name.chain(texts).chain(tags).chain(late).collect();
        // One tag may be for several things.
        all.sort_by(|(one, a), (other, b)| (one, &a.origin, &a.text).cmp(&(other, &b.origin, &b.text)));
        all.dedup();
        all
    }
}

/// The outputs of the bake that finalizers build on.
#[derive(Clone)]
pub struct BakeHandles {
    /// What the bake started from.
    pub base: Handle<BaseImage>,
    /// What was installed.
    pub installed: Handle<Installed>,
    /// Names and tags, rendered.
    pub identity: Handle<Identity>,
    pub(crate) snapshot: Option<Handle<Snapshot>>,
    /// The images that earlier stages of the set make.
    pub images: Images,
    /// The name of the finalizer that is being planned.
    pub(crate) place: String,
    pub(crate) known: Arc<Known>,
    pub(crate) copy_tags: BTreeMap<Region, Handle<Tags>>,
}

impl BakeHandles {
    /// Returns the images that a run of the plan has made: first those that were registered, then their copies.
    pub fn images_made(&self, outcome: &Outcome) -> StepResult<Vec<Image>> {
        let (copies, registered): (Vec<_>, Vec<_>) = self.images.iter().partition(|(name, _)| name.contains('/'));
        let all = registered.into_iter().chain(copies);
        all.filter_map(|(_, &image)| outcome.output(image).transpose()).collect()
    }

    /// Returns the snapshot, for a finalizer whose [`Needs`] asked for it.
    pub fn snapshot(&self, finalizer: &str) -> Result<Handle<Snapshot>, PlanError> {
        self.snapshot.ok_or_else(|| PlanError::UndeclaredSnapshot { finalizer: finalizer.into() })
    }

    /// Returns the snapshot if the set takes one.
    pub fn maybe_snapshot(&self) -> Option<Handle<Snapshot>> {
        self.snapshot
    }

    /// Promises a text of this finalizer's [`Templates`], rendered.
    pub fn text(&self, key: &str) -> At<String> {
        self.identity.at(pointer(&["finalizers", &self.place, "texts", key]))
    }

    /// Promises a table of tags of this finalizer's [`Templates`], rendered.
    pub fn tags(&self, table: &str) -> At<Tags> {
        self.identity.at(pointer(&["finalizers", &self.place, "tags", table]))
    }

    /// Promises the tags that the set gives to copies in a region, one of this finalizer's [`Finalizer::wishes`].
    pub fn copy_tags(&self, region: &Region) -> Result<Handle<Tags>, PlanError> {
        self.copy_tags
            .get(region)
            .copied()
            .ok_or_else(|| PlanError::UndeclaredRegion { finalizer: self.place.clone(), region: region.clone() })
    }

    /// Adds a step, `fill in`, that renders texts over all that is known once there are images. `image` is the one that is
    /// meant, where there may be several; without it, a set's only image is.
    pub fn fill_in(
        &self,
        steps: &mut Steps<'_>,
        image: Option<Handle<Image>>,
        texts: BTreeMap<String, Text>,
    ) -> Result<Handle<BTreeMap<String, String>>, PlanError> {
        let names = || self.images.keys().map(String::as_str);
        for (key, text) in &texts {
            let checked = self.known.check_with_images(&text.text, names(), image.map(|_| "image"));
            checked.map_err(|source| PlanError::Template {
                finalizer: self.place.clone(),
                key: key.clone(),
                origin: text.origin.clone(),
                source: Box::new(source),
            })?;
        }
        let images: BTreeMap<_, _> = self.images.iter().map(|(name, image)| (name.clone(), image.maybe())).collect();
        let state = (Arc::clone(&self.known), texts);
        Ok(steps.step("fill in").needs((self.base, self.installed, image, images)).run(
            state,
            async |(known, texts), _, (base, installed, image, images)| {
                let images = images.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
                let values = known.provisioned(&base, &installed).with_images(image.as_ref(), &images).to_value();
                let render = |(key, text): (String, Text)| {
                    let rendered = template::render(&text.text, &values).permanent();
                    let rendered = rendered.map_err(|error| error.context(format!("{}: `{key}`", text.origin)))?;
                    Ok((key, rendered))
                };
                texts.into_iter().map(render).collect()
            },
        ))
    }
}

/// A JSON pointer (RFC 6901) of these keys.
pub(crate) fn pointer(keys: &[&str]) -> String {
    keys.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}

/// One action after the snapshot: register, tag, distribute or notify.
///
/// A finalizer adds steps to the plan and does nothing else; whether a step runs, how often it is tried, what waits for
/// it and whether its failure matters is laid on from outside, by the environment.
pub trait Finalizer: Send + Sync + 'static {
    /// Returns the name that finalizer sets use: `register_image`.
    fn name(&self) -> &'static str;

    /// Returns when it runs, relative to the others of its set.
    fn stage(&self) -> Stage;

    /// Returns what it works from.
    fn needs(&self) -> Needs;

    /// Returns what it wants filled in.
    fn templates(&self) -> Templates {
        Templates::default()
    }

    /// Returns what it will ask of the cloud. Copies go to no other regions.
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    /// Adds its steps and returns the images they make. Touches nothing.
    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError>;
}
