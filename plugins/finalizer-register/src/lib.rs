//! `register_image`: makes an image of the snapshot, in whatever cloud the environment has.
//!
//! Start with [`RegisterImageFinalizer`]. What the image is called is settled before, in the step `identity`, from the
//! templates in this plugin's settings.

use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes};
use bake_core::{
    BakeHandles, Cloud, DEFAULT_DESCRIPTION, DEFAULT_NAME, Finalizer, Image, Images, Needs, PlanError, RegisterImage,
};
use bake_engine::{MutationKind, Steps};

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "register_image",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Registers an image from the snapshot",
    stage: Some(Stage::Register),
    settings: &[
        Setting {
            name: "image_name",
            takes: Takes::Text,
            default: Some(DEFAULT_NAME),
            summary: "Template of the image's name",
        },
        Setting {
            name: "description",
            takes: Takes::Text,
            default: Some(DEFAULT_DESCRIPTION),
            summary: "Template of the description of image and snapshot",
        },
    ],
    built: Built::Yes,
};

/// Registers one image from the snapshot.
pub struct RegisterImageFinalizer {
    images: MutationKind<RegisterImage, Image>,
    store: &'static str,
}

impl RegisterImageFinalizer {
    /// Makes the finalizer for a cloud; refused where the cloud registers no images.
    pub fn new(cloud: &dyn Cloud) -> Result<Self, PlanError> {
        let images = cloud.kinds().image.clone().ok_or_else(|| PlanError::MissingKind {
            finalizer: INFO.name.into(),
            cloud: cloud.name().into(),
            kind: "images",
        })?;
        Ok(Self { images, store: cloud.name() })
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

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let snapshot = bake.snapshot(INFO.name)?;
        let image = steps.step("image").needs((snapshot, bake.base, bake.installed, bake.identity)).mutate(
            &self.images,
            |(snapshot, base, installed, identity)| RegisterImage {
                name: identity.name,
                description: identity.description,
                snapshot: snapshot.id,
                region: snapshot.region,
                architecture: base.architecture,
                base: base.id,
                packages: installed.requested,
            },
        );
        Ok([(self.store.to_owned(), image)].into())
    }
}
