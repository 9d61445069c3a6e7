//! `tag_artifacts`: puts the bake's tags on its snapshot, on every image of the set, and on the copies of these.
//!
//! Start with [`TagArtifacts`]. What the tags say is settled before, in the step `identity`. Copies get theirs from whoever makes
//! them, in the same call where a cloud can do that, so that nothing is ever there without them.

use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes};
use bake_core::{
    BakeHandles, Cloud, Finalizer, Images, Needs, PlanError, Rendered, TagResource, TagTemplates, Taggable, Tagged,
    Templates,
};
use bake_engine::{MutationKind, Steps};
use serde::Deserialize;

/// What other tools read (`appversion` is Asgard's and Spinnaker's), as Aminator sets it.
const DEFAULT_TAGS: &str = "{ appversion: \"{{ package.appversion }}\", \
     base_ami_version: \"{{ base.tags.base_ami_version | default('') }}\", creator: \"{{ vars.creator }}\", \
     creation_time: \"{{ date }}\" }";

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "tag_artifacts",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Tags the snapshot, every image of the set, and their copies",
    stage: Some(Stage::Tag),
    settings: &[
        Setting {
            name: "tags",
            takes: Takes::TextMap,
            default: Some(DEFAULT_TAGS),
            summary: "Tags of everything: their names, and templates of their values. `NAME: ~` takes one away",
        },
        more("snapshot_tags", "More tags of the snapshot; they win over `tags`"),
        more("image_tags", "More tags of the images; they win over `tags`"),
        more("copy_tags", "More tags of the images' copies; they win over `tags`. `region` is where the copy is"),
    ],
    usual: &[],
    built: Built::Yes,
};

const fn more(name: &'static str, summary: &'static str) -> Setting {
    Setting { name, takes: Takes::TextMap, default: None, summary }
}

/// Tags the snapshot and every image that the set has made so far.
pub struct TagArtifacts {
    kind: MutationKind<TagResource, Tagged>,
    settings: TagSettings,
}

/// The settings of this plugin: tag names, and templates of their values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TagSettings {
    /// For everything.
    pub tags: TagTemplates,
    /// For the snapshot besides.
    pub snapshot_tags: TagTemplates,
    /// For the images besides.
    pub image_tags: TagTemplates,
    /// For the images' copies besides.
    pub copy_tags: TagTemplates,
}

impl TagSettings {
    /// The tags of everything with those of one thing over them.
    fn with(&self, more: &TagTemplates) -> TagTemplates {
        self.tags.clone().into_iter().chain(more.clone()).collect()
    }
}

impl TagArtifacts {
    /// Makes the finalizer for a cloud; refused where the cloud knows no tags.
    pub fn new(cloud: &dyn Cloud, settings: TagSettings) -> Result<Self, PlanError> {
        let kind = cloud.kinds().tag.clone().ok_or_else(|| PlanError::MissingKind {
            finalizer: INFO.name.into(),
            cloud: cloud.name().into(),
            kind: "tags",
        })?;
        Ok(Self { kind, settings })
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

    fn templates(&self) -> Templates {
        let tags = [(Rendered::SNAPSHOT, &self.settings.snapshot_tags), (Rendered::IMAGE, &self.settings.image_tags)];
        Templates {
            tags: tags.map(|(table, more)| (table.to_owned(), self.settings.with(more))).into(),
            copy_tags: self.settings.with(&self.settings.copy_tags),
            ..Templates::default()
        }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        if let Some(snapshot) = bake.maybe_snapshot() {
            let inputs = (snapshot, bake.tags(Rendered::SNAPSHOT));
            steps.step("snapshot").needs(inputs).mutate(&self.kind, |(snapshot, tags)| TagResource {
                resource: Taggable::Snapshot(snapshot.id),
                region: snapshot.region,
                tags,
            });
        }
        for (name, &image) in &bake.images {
            let inputs = (image, bake.tags(Rendered::IMAGE));
            steps.step(name).needs(inputs).mutate(&self.kind, |(image, tags)| TagResource {
                resource: Taggable::Image(image.id),
                region: image.region,
                tags,
            });
        }
        Ok(Images::new())
    }
}
