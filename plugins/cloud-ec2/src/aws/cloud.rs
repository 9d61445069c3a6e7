//! EC2 as a cloud.

use std::path::PathBuf;

use async_trait::async_trait;
use bake_config::{ConfigErrors, Settings};
use bake_core::plugin::{BaseQuery, Cloud, CloudKinds, Medium, Scrap, VolumeKinds};
use bake_core::{Account, Ahead, BaseImage, Image, Region, Volume};
use bake_engine::{Mutations, StepContext, StepResult, Undone};

use crate::aws::attachments::Attachments;
use crate::aws::connection::Keys;
use crate::aws::context::{Ec2, Folders};
use crate::aws::copies::Copies;
use crate::aws::disks::Disks;
use crate::aws::guarding::Guarding;
use crate::aws::images::{self, Images};
use crate::aws::own_base::OwnBases;
use crate::aws::sharing::Sharing;
use crate::aws::snapshots::Uploads;
use crate::aws::tagging::Tagging;
use crate::aws::volumes::{VolumeSnapshots, Volumes};
use crate::aws::{base, preflight, scraps};
use crate::settings::{Ec2Settings, INFO};

/// Makes the cloud from its settings. Nothing is asked of anybody before the first call.
pub fn build(settings: &Settings, folders: &Folders, mutations: &mut Mutations) -> Result<Ec2Cloud, ConfigErrors> {
    Ok(Ec2Cloud::new(settings.parse()?, folders, mutations))
}

/// Registers all kinds of change that this cloud makes, for taking back what a run has made. `settings` are those that the run's
/// journal has, and null if it had another cloud.
///
/// What was made knows how its account is reached; of what may have been made, only the run knows.
pub fn register(settings: &serde_json::Value, folders: &Folders, mutations: &mut Mutations) -> CloudKinds {
    register_with(&Ec2::new(Ec2Settings::recorded(settings), folders, None), mutations)
}

fn register_with(ec2: &Ec2, mutations: &mut Mutations) -> CloudKinds {
    let files = VolumeKinds {
        own: Some(mutations.register(OwnBases(ec2.clone()))),
        create: mutations.register(Disks(ec2.clone())),
        attach: None,
        snapshot: Some(mutations.register(Uploads(ec2.clone()))),
    };
    let attached = VolumeKinds {
        // A volume can be made of what may only be read.
        own: None,
        create: mutations.register(Volumes(ec2.clone())),
        attach: Some(mutations.register(Attachments::new(ec2.clone()))),
        snapshot: Some(mutations.register(VolumeSnapshots(ec2.clone()))),
    };
    CloudKinds {
        volumes: [(Medium::File, files), (Medium::Attached, attached)].into(),
        image: Some(mutations.register(Images(ec2.clone()))),
        copy: Some(mutations.register(Copies(ec2.clone()))),
        share: Some(mutations.register(Sharing(ec2.clone()))),
        guard: Some(mutations.register(Guarding(ec2.clone()))),
        tag: Some(mutations.register(Tagging(ec2.clone()))),
    }
}

/// EC2 as a cloud.
pub struct Ec2Cloud {
    ec2: Ec2,
    kinds: CloudKinds,
}

impl Ec2Cloud {
    /// Makes the cloud and registers its kinds of change.
    pub fn new(settings: Ec2Settings, folders: &Folders, mutations: &mut Mutations) -> Self {
        Self::with_keys(settings, folders, None, mutations)
    }

    /// Makes the cloud with keys that are given, in place of those that AWS tools would use here.
    pub fn with_keys(settings: Ec2Settings, folders: &Folders, keys: Option<Keys>, mutations: &mut Mutations) -> Self {
        let ec2 = Ec2::new(settings, folders, keys);
        let kinds = register_with(&ec2, mutations);
        Self { ec2, kinds }
    }
}

#[async_trait]
impl Cloud for Ec2Cloud {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn kinds(&self) -> &CloudKinds {
        &self.kinds
    }

    fn check_region(&self, region: &Region) -> Result<(), String> {
        // `eu-west-1`, `us-gov-east-1`, `cn-north-1`, `ap-southeast-10`: words of letters and a number at the end.
        let mut words = region.as_str().split('-').rev();
        let number =
            words.next().is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()));
        let mut count = 0;
        let letters = words.all(|word| {
            count += 1;
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
        });
        match number && letters && count >= 2 {
            true => Ok(()),
            false => Err(format!("`{region}` is no name of a region; they look like `eu-west-1`")),
        }
    }

    async fn resolve_base(&self, _: StepContext, query: &BaseQuery) -> StepResult<BaseImage> {
        let place = self.ec2.home(query.region.as_ref()).await?;
        base::resolve(&place, query, self.ec2.settings()).await
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    async fn preflight(&self, _: StepContext, ahead: &Ahead) -> StepResult<Vec<String>> {
        preflight::look(&self.ec2, ahead).await
    }

    async fn holder_of_name(
        &self,
        name: &str,
        region: &Region,
        account: Option<&Account>,
    ) -> StepResult<Option<String>> {
        let place = self.ec2.place_for(region, account).await?;
        Ok(images::named(&place, name).await?.first().map(images::told))
    }

    async fn scraps(&self, _: StepContext) -> StepResult<Vec<Scrap>> {
        scraps::list(&self.ec2).await
    }

    async fn remove_scrap(&self, _: StepContext, scrap: &Scrap) -> StepResult<Undone> {
        scraps::remove(&self.ec2, scrap).await
    }

    async fn has_image(&self, _: StepContext, image: &Image) -> StepResult<bool> {
        let place = self.ec2.place_for(&image.region, image.account.as_ref()).await?;
        Ok(images::read(&place, image.id.as_str()).await?.is_some())
    }

    async fn disk_file(&self, volume: &Volume) -> StepResult<PathBuf> {
        Ok(self.ec2.disks().file(volume.id.as_str()))
    }
}
