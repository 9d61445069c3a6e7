//! `register_image`: makes an image of the snapshot, in whatever cloud the environment has. `register_ebs_ami`: makes an AMI of it,
//! and says what only AMIs have.
//!
//! Start with [`RegisterImageFinalizer`]. What the image is called is settled before, in the step `identity`, from the
//! templates in the settings.

mod ebs;

use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes, Text};
use bake_core::{
    BakeHandles, Cloud, DEFAULT_DESCRIPTION, DEFAULT_NAME, DESCRIPTION, Finalizer, Image, ImageName, Images, Needs,
    PlanError, RegisterImage, Rendered, RootDisk, Templates,
};
use bake_engine::{Handle, MutationKind, Steps};
use serde::Deserialize;

pub use ebs::{EbsSettings, REGISTER_EBS_AMI, RegisterEbsAmi};

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
        let images = image_kind(cloud, INFO.name)?;
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
        templates(&self.settings.image_name, "", &self.settings.description)
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let image = register(INFO.name, &self.images, bake, steps, |request| request)?;
        Ok([(self.key.clone(), image)].into())
    }
}

fn image_kind(cloud: &dyn Cloud, finalizer: &str) -> Result<MutationKind<RegisterImage, Image>, PlanError> {
    cloud.kinds().image.clone().ok_or_else(|| PlanError::MissingKind {
        finalizer: finalizer.into(),
        cloud: cloud.name().into(),
        kind: "images",
    })
}

fn templates(image_name: &Text, ending: &'static str, description: &Text) -> Templates {
    Templates {
        image_name: Some(ImageName { template: image_name.clone(), ending }),
        texts: [(DESCRIPTION.to_owned(), description.clone())].into(),
        ..Templates::default()
    }
}

/// Adds the step that registers. The request begins with what the base image says; `change` has the last word.
fn register(
    finalizer: &str,
    images: &MutationKind<RegisterImage, Image>,
    bake: &BakeHandles,
    steps: &mut Steps<'_>,
    change: impl Fn(RegisterImage) -> RegisterImage + Send + Sync + 'static,
) -> Result<Handle<Image>, PlanError> {
    let called = (bake.text(ImageName::KEY), bake.text(DESCRIPTION));
    let inputs = (bake.snapshot(finalizer)?, bake.base, bake.installed, bake.identity, called);
    Ok(steps.step("image").needs(inputs).mutate(
        images,
        move |(snapshot, base, installed, identity, (name, description))| {
            change(RegisterImage {
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
            })
        },
    ))
}
