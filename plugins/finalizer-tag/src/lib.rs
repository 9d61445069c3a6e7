//! `tag_artifacts`: puts the bake's tags on its snapshot and on every image of the set.
//!
//! Start with [`TagArtifacts`]. What the tags are called and say is settled before, in the step `identity`.

use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes};
use bake_core::{BakeHandles, Cloud, Finalizer, Images, Needs, PlanError, TagResource, Taggable, Tagged};
use bake_engine::{MutationKind, Steps};

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "tag_artifacts",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Tags the snapshot and every image of the set",
    stage: Some(Stage::Tag),
    settings: &[Setting {
        name: "tags",
        takes: Takes::TextMap,
        default: None,
        summary: "Tag names and templates of their values; added to the default ones",
    }],
    built: Built::Yes,
};

/// Tags the snapshot and every image that the set has made so far.
pub struct TagArtifacts {
    tags: MutationKind<TagResource, Tagged>,
}

impl TagArtifacts {
    /// Makes the finalizer for a cloud; refused where the cloud knows no tags.
    pub fn new(cloud: &dyn Cloud) -> Result<Self, PlanError> {
        let tags = cloud.kinds().tag.clone().ok_or_else(|| PlanError::MissingKind {
            finalizer: INFO.name.into(),
            cloud: cloud.name().into(),
            kind: "tags",
        })?;
        Ok(Self { tags })
    }
}

impl Finalizer for TagArtifacts {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn stage(&self) -> Stage {
        Stage::Tag
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: false }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        if let Some(snapshot) = bake.maybe_snapshot() {
            steps.step("snapshot").needs((snapshot, bake.identity)).mutate(&self.tags, |(snapshot, identity)| {
                TagResource { resource: Taggable::Snapshot(snapshot.id), region: snapshot.region, tags: identity.tags }
            });
        }
        for (name, &image) in &bake.images {
            steps.step(name).needs((image, bake.identity)).mutate(&self.tags, |(image, identity)| TagResource {
                resource: Taggable::Image(image.id),
                region: image.region,
                tags: identity.tags,
            });
        }
        Ok(Images::new())
    }
}
