//! `distribute_images`: copies every image of the set to other regions, with the tags that the set gives to copies.
//!
//! Start with [`DistributeImages`]. Each image and region is a step of its own, so that each has its own result, its own
//! tries, and its own place in the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes, Text};
use bake_core::{BakeHandles, Cloud, CopyImage, Encryption, Finalizer, Image, Images, Needs, PlanError, Region};
use bake_engine::{MutationKind, Slot, Steps};
use serde::Deserialize;

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "distribute_images",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Copies images to other regions",
    stage: Some(Stage::Distribute),
    settings: &[
        Setting {
            name: "regions",
            takes: Takes::List(&Takes::Text),
            default: Some("[]"),
            summary: "Regions to copy every image to. One where the image is already is passed over",
        },
        Setting {
            name: "accounts",
            takes: Takes::List(&Takes::AccountId),
            default: Some("[]"),
            summary: "Accounts to share the images with, for clouds that have accounts",
        },
        Setting {
            name: "success",
            takes: Takes::OneOf(&["all", "best_effort"]),
            default: Some("all"),
            summary: "Whether the bake fails if one region does, or only says so",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of this plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistributeSettings {
    /// Where to copy the images to.
    pub regions: Vec<Text>,
    /// With whom to share them.
    pub accounts: Vec<Text>,
    /// What counts as success.
    pub success: Success,
}

/// What counts as success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// Every region has every image.
    #[default]
    All,
    /// What failed is reported, and the bake succeeds.
    BestEffort,
}

/// Copies all images that the set has made so far to each of its regions.
pub struct DistributeImages {
    copies: MutationKind<CopyImage, Image>,
    regions: BTreeSet<Region>,
    success: Success,
}

impl DistributeImages {
    /// Makes the finalizer for a cloud; refused where the cloud cannot do what the settings ask for.
    pub fn new(cloud: &dyn Cloud, settings: DistributeSettings) -> Result<Self, PlanError> {
        let unsupported =
            |reason| PlanError::Unsupported { finalizer: INFO.name.into(), cloud: cloud.name().into(), reason };
        let copies = cloud.kinds().copy.clone().ok_or_else(|| PlanError::MissingKind {
            finalizer: INFO.name.into(),
            cloud: cloud.name().into(),
            kind: "copies",
        })?;
        if let Some(account) = settings.accounts.first() {
            let reason = format!("{}: it has no accounts, and `{}` is one", account.origin, account.text);
            return Err(unsupported(reason));
        }
        let mut regions = BTreeSet::new();
        for Text { text, origin } in &settings.regions {
            let region = Region::new(text);
            cloud.check_region(&region).map_err(|reason| unsupported(format!("{origin}: {reason}")))?;
            regions.insert(region);
        }
        Ok(Self { copies, regions, success: settings.success })
    }
}

impl Finalizer for DistributeImages {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn stage(&self) -> Stage {
        Stage::Distribute
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: false }
    }

    fn regions(&self) -> Vec<Region> {
        self.regions.iter().cloned().collect()
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let mut copies = Images::new();
        for region in &self.regions {
            let copy_tags = bake.copy_tags(region)?;
            let mut steps = steps.under(region.as_str());
            for (name, &image) in &bake.images {
                let (target, elsewhere) = (region.clone(), region.clone());
                let step = steps.step(name).needs((image, copy_tags)).slot(Slot::LocalIo).when(
                    &format!("the image is not in `{region}` already"),
                    image,
                    move |image: Image| Ok(image.region != elsewhere),
                );
                let step = match self.success {
                    Success::All => step,
                    Success::BestEffort => step.optional(),
                };
                let copy = step.mutate(&self.copies, move |(image, tags)| CopyImage {
                    image: image.id,
                    from: image.region,
                    region: target.clone(),
                    name: image.name,
                    tags,
                    account: None,
                    encryption: Encryption::Inherit,
                });
                copies.insert(format!("{region}/{name}"), copy);
            }
        }
        Ok(copies)
    }
}
