//! The store as a cloud.

use std::path::PathBuf;

use async_trait::async_trait;
use bake_config::{Built, ConfigErrors, PluginInfo, PluginKind, Setting, Settings, Takes};
use bake_core::plugin::{BaseQuery, Cloud, CloudKinds, Scrap};
use bake_core::{BaseImage, Image, Region, Volume};
use bake_engine::{Mutations, StepContext, StepResult, Undone};
use serde::Deserialize;

use crate::mutations::register;
use crate::program::blocking;
use crate::store::{Removed, Store, check_region};

/// What this plugin says of itself.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Cloud,
    name: "local",
    version: env!("CARGO_PKG_VERSION"),
    summary: "base images, volumes, snapshots and images in a folder of this machine",
    stage: None,
    settings: &[
        Setting {
            name: "region",
            takes: Takes::Text,
            default: Some("local"),
            summary: "the part of the store to work in, a folder",
        },
        Setting {
            name: "base",
            takes: Takes::Text,
            default: None,
            summary: "the base image to use when none is asked for, by name or id",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of this plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSettings {
    /// The part of the store to work in.
    pub region: Region,
    /// The base image to use when none is asked for.
    #[serde(default)]
    pub base: Option<String>,
}

/// Makes the cloud from its settings.
pub fn build(settings: &Settings, store: Store, mutations: &mut Mutations) -> Result<LocalCloud, ConfigErrors> {
    Ok(LocalCloud::new(store, settings.parse()?, mutations))
}

/// The store as a cloud.
pub struct LocalCloud {
    store: Store,
    settings: LocalSettings,
    kinds: CloudKinds,
}

impl LocalCloud {
    /// Makes the cloud and registers its kinds of change.
    pub fn new(store: Store, settings: LocalSettings, mutations: &mut Mutations) -> Self {
        let kinds = register(&store, mutations);
        Self { store, settings, kinds }
    }
}

#[async_trait]
impl Cloud for LocalCloud {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn kinds(&self) -> &CloudKinds {
        &self.kinds
    }

    fn check_region(&self, region: &Region) -> Result<(), String> {
        check_region(region.as_str()).map_err(|error| error.to_string())
    }

    async fn resolve_base(&self, _: StepContext, query: &BaseQuery) -> StepResult<BaseImage> {
        let store = self.store.clone();
        let region = query.region.as_ref().unwrap_or(&self.settings.region).clone();
        let wanted = query.wanted.as_ref().or(self.settings.base.as_ref()).cloned();
        Ok(blocking(move || store.resolve_base(&region, wanted.as_deref())).await?)
    }

    async fn scraps(&self, _: StepContext) -> StepResult<Vec<Scrap>> {
        let store = self.store.clone();
        Ok(blocking(move || store.scraps()).await?)
    }

    async fn remove_scrap(&self, _: StepContext, scrap: &Scrap) -> StepResult<Undone> {
        let (store, scrap) = (self.store.clone(), scrap.clone());
        Ok(match blocking(move || store.remove_scrap(&scrap)).await? {
            Removed::Gone => Undone::Gone,
            Removed::InUse(_) => Undone::InUse,
        })
    }

    async fn has_image(&self, _: StepContext, image: &Image) -> StepResult<bool> {
        let (store, image) = (self.store.clone(), image.clone());
        Ok(blocking(move || Ok(store.images(&image.region)?.iter().any(|there| there.id == image.id.as_str()))).await?)
    }

    async fn disk_file(&self, volume: &Volume) -> StepResult<PathBuf> {
        let (store, volume) = (self.store.clone(), volume.clone());
        Ok(blocking(move || store.volume_disk(&volume.region, volume.id.as_str())).await?)
    }
}

#[cfg(test)]
mod tests {
    use bake_engine::{Cancel, Class};

    use super::*;
    use crate::testing::Shop;

    async fn resolve(shop: &Shop, setting: Option<&str>, query: BaseQuery) -> StepResult<BaseImage> {
        let settings = LocalSettings { region: shop.region.clone(), base: setting.map(Into::into) };
        let cloud = LocalCloud::new(shop.store.clone(), settings, &mut Mutations::new());
        cloud.resolve_base(StepContext::detached("base", &Cancel::new()), &query).await
    }

    fn query(wanted: &str) -> BaseQuery {
        BaseQuery { wanted: Some(wanted.into()), region: None }
    }

    #[tokio::test]
    async fn what_is_asked_for_goes_before_the_setting_and_that_before_the_only_one() {
        let shop = Shop::new();
        shop.base("one", b"disk");
        assert_eq!(resolve(&shop, None, BaseQuery::default()).await.unwrap().name, "one");
        shop.base("two", b"disk");
        let error = resolve(&shop, None, BaseQuery::default()).await.unwrap_err();
        assert_eq!((error.class(), error.hint_text()), (Class::Permanent, Some("choose one with `--base NAME`")));
        assert_eq!(error.detail_lines().len(), 2);
        assert_eq!(resolve(&shop, Some("two"), BaseQuery::default()).await.unwrap().name, "two");
        assert_eq!(resolve(&shop, Some("two"), query("one")).await.unwrap().name, "one");
    }

    #[tokio::test]
    async fn another_region_has_bases_of_its_own() {
        let shop = Shop::new();
        shop.base("one", b"disk");
        let there = BaseQuery { wanted: Some("one".into()), region: Some(Region::new("there")) };
        let error = resolve(&shop, None, there).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no base image `one` in region `there`");
    }

    #[tokio::test]
    async fn the_disk_of_a_volume_is_a_file() {
        let shop = Shop::new();
        let base = shop.base("one", b"disk");
        let volume = shop.volume(&base.id, "create");
        let settings = LocalSettings { region: shop.region.clone(), base: None };
        let cloud = LocalCloud::new(shop.store.clone(), settings, &mut Mutations::new());
        let volume = Volume { id: volume.id.as_str().into(), region: shop.region.clone(), size: volume.size };
        assert_eq!(std::fs::read(cloud.disk_file(&volume).await.unwrap()).unwrap(), b"disk");
    }
}
