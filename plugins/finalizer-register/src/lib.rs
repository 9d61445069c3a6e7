//! `register_image`: makes an image of the snapshot, in whatever cloud the environment has.
//!
//! Start with [`RegisterImageFinalizer`]. What the image is called is settled before, in the step `identity`, from the
//! templates in this plugin's settings.

use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes, Text};
use bake_core::{
    BakeHandles, Cloud, DEFAULT_DESCRIPTION, DEFAULT_NAME, DESCRIPTION, Finalizer, Image, ImageName, Images, Needs,
    PlanError, RegisterImage, Rendered, RootDisk, Templates,
};
use bake_engine::{MutationKind, Steps};
use serde::Deserialize;

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "register_image",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Registers an image from the snapshot",
    stage: Some(Stage::Register),
    settings: &[
        Setting {
            name: ImageName::KEY,
            takes: Takes::Text,
            default: Some(DEFAULT_NAME),
            summary: "Template of the image's name",
        },
        Setting {
            name: DESCRIPTION,
            takes: Takes::Text,
            default: Some(DEFAULT_DESCRIPTION),
            summary: "Template of the description of image and snapshot",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of this plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterSettings {
    /// Template of the image's name.
    pub image_name: Text,
    /// Template of the description.
    pub description: Text,
}

impl Default for RegisterSettings {
    fn default() -> Self {
        Self { image_name: Text::built_in(DEFAULT_NAME), description: Text::built_in(DEFAULT_DESCRIPTION) }
    }
}

/// Registers one image from the snapshot.
pub struct RegisterImageFinalizer {
    images: MutationKind<RegisterImage, Image>,
    /// How the image is called within the bake: by the place in the set, unless that is the plugin's own name.
    key: String,
    settings: RegisterSettings,
}

impl RegisterImageFinalizer {
    /// Makes the finalizer for a cloud, at its place in a set; refused where the cloud registers no images.
    pub fn new(cloud: &dyn Cloud, place: &str, settings: RegisterSettings) -> Result<Self, PlanError> {
        let images = cloud.kinds().image.clone().ok_or_else(|| PlanError::MissingKind {
            finalizer: INFO.name.into(),
            cloud: cloud.name().into(),
            kind: "images",
        })?;
        let key = if place == INFO.name { cloud.name() } else { place };
        Ok(Self { images, key: key.to_owned(), settings })
    }
}

impl Finalizer for RegisterImageFinalizer {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn stage(&self) -> Stage {
        Stage::Register
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: true }
    }

    fn templates(&self) -> Templates {
        Templates {
            image_name: Some(ImageName { template: self.settings.image_name.clone(), ending: "" }),
            texts: [(DESCRIPTION.to_owned(), self.settings.description.clone())].into(),
            ..Templates::default()
        }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let called = (bake.text(ImageName::KEY), bake.text(DESCRIPTION));
        let inputs = (bake.snapshot(INFO.name)?, bake.base, bake.installed, bake.identity, called);
        let image = steps.step("image").needs(inputs).mutate(
            &self.images,
            |(snapshot, base, installed, identity, (name, description))| RegisterImage {
                name,
                description,
                snapshot: snapshot.id,
                region: snapshot.region,
                architecture: base.architecture,
                base: base.id,
                packages: installed.requested,
                tags: identity.tags_at_creation(Rendered::IMAGE),
                machine: base.machine,
                disk: RootDisk::default(),
            },
        );
        Ok([(self.key.clone(), image)].into())
    }
}
