use std::collections::BTreeMap;
use std::sync::Arc;

use bake_config::Stage;
use bake_engine::{Handle, Outcome, StepResult, Steps};

use crate::template::TemplateError;
use crate::{BaseImage, Identity, Image, Installed, Snapshot};

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
    /// A predicate that cannot be read.
    #[error("the predicate of the finalizer `{finalizer}` cannot be read")]
    Predicate {
        /// Which finalizer.
        finalizer: String,
        /// What is wrong with it.
        #[source]
        source: TemplateError,
    },
    /// The graph itself is wrong.
    #[error("the plan is not sound: {0}")]
    Graph(String),
}

/// What a finalizer works from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The snapshot taken on leaving the volume context.
    pub snapshot: bool,
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
}

impl BakeHandles {
    /// Returns the images that a run of the plan has made.
    pub fn images_made(&self, outcome: &Outcome) -> StepResult<Vec<Image>> {
        self.images.values().filter_map(|&image| outcome.output(image).transpose()).collect()
    }

    /// Returns the snapshot, for a finalizer whose [`Needs`] asked for it.
    pub fn snapshot(&self, finalizer: &str) -> Result<Handle<Snapshot>, PlanError> {
        self.snapshot.ok_or_else(|| PlanError::UndeclaredSnapshot { finalizer: finalizer.into() })
    }

    /// Returns the snapshot if the set takes one.
    pub fn maybe_snapshot(&self) -> Option<Handle<Snapshot>> {
        self.snapshot
    }
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

    /// Adds its steps and returns the images they make. Touches nothing.
    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError>;
}
