//! The built-in plugins: one readable list of what exists, and how an environment's choice is put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use bake_config::{Built, Catalog, Environment, PluginInfo, PluginKind, Stage};
use bake_core::{
    BlockDevice, Cloud, Composition, DEFAULT_DESCRIPTION, DEFAULT_NAME, DEFAULT_TAGS, Finalizer, FinalizerUse,
    Provisioner, Volumes,
};
use bake_engine::Mutations;
use volume_linux::LinuxVolumes;

use crate::places::Places;

/// Tells everything that may be named in a file.
pub(crate) fn catalog() -> Catalog {
    Catalog::new(vec![
        cloud_local::INFO,
        ec2(PluginKind::Cloud, "ec2", None, "Amazon EC2: AMIs, EBS volumes and snapshots"),
        blockdevice_loop::INFO,
        ec2(PluginKind::BlockDevice, "linux", None, "A volume attached to the instance that bake runs on"),
        volume_linux::INFO,
        provisioner_apt::INFO,
        later(PluginKind::Provisioner, "yum", None, "Installs RPM packages with the root's own dnf or yum"),
        finalizer_register::INFO,
        ec2(PluginKind::Finalizer, "register_ebs_ami", Some(Stage::Register), "Registers an EBS-backed AMI"),
        ec2(PluginKind::Finalizer, "register_s3_ami", Some(Stage::Register), "Registers an S3-backed AMI"),
        finalizer_tag::INFO,
        later(
            PluginKind::Finalizer,
            "distribute_images",
            Some(Stage::Distribute),
            "Copies images to regions and accounts",
        ),
        later(PluginKind::Finalizer, "asgard_poke", Some(Stage::Notify), "Tells Asgard that there is a new image"),
    ])
}

/// A plugin that files may name, and that this version does not have yet.
const fn later(kind: PluginKind, name: &'static str, stage: Option<Stage>, summary: &'static str) -> PluginInfo {
    unbuilt(kind, name, stage, summary, "this version of bake does not have it yet")
}

/// A plugin of the feature `ec2`: left out of a build without it, and in the others still to come.
const fn ec2(kind: PluginKind, name: &'static str, stage: Option<Stage>, summary: &'static str) -> PluginInfo {
    match cfg!(feature = "ec2") {
        true => later(kind, name, stage, summary),
        false => unbuilt(kind, name, stage, summary, "build bake with its feature `ec2`"),
    }
}

const fn unbuilt(
    kind: PluginKind,
    name: &'static str,
    stage: Option<Stage>,
    summary: &'static str,
    how: &'static str,
) -> PluginInfo {
    let built = Built::No { how };
    PluginInfo { kind, name, version: "", summary, stage, settings: &[], built }
}

/// What the command line says about plugins, over what the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// `--partition`.
    pub(crate) partition: Option<u32>,
}

/// Makes the plugins of an environment and checks that they fit.
///
/// A name that the catalog has and this function lacks is a mistake of the program: the test below tries them all.
pub(crate) fn compose(
    environment: &Environment,
    overrides: &Overrides,
    places: &Places,
    mutations: &mut Mutations,
) -> anyhow::Result<Composition> {
    let cloud = cloud(environment, places, mutations)?;
    let blockdevice: Arc<dyn BlockDevice> = match environment.blockdevice.plugin.as_str() {
        "loop" => Arc::new(blockdevice_loop::LoopBlockDevice),
        other => bail!("the block device `{other}` is in the catalog only"),
    };
    let volume: Arc<dyn Volumes> = match environment.volume.plugin.as_str() {
        "linux" => {
            let volumes = LinuxVolumes::build(&environment.volume.settings)?;
            Arc::new(match overrides.partition {
                Some(number) => volumes.with_partition(number),
                None => volumes,
            })
        }
        other => bail!("the volume `{other}` is in the catalog only"),
    };
    let provisioner: Arc<dyn Provisioner> = match environment.provisioner.plugin.as_str() {
        "apt" => Arc::new(provisioner_apt::Apt::build(&environment.provisioner.settings)?),
        other => bail!("the provisioner `{other}` is in the catalog only"),
    };
    let finalizers = finalizers(environment, cloud.as_ref())?;
    let composition = Composition { cloud, blockdevice, volume, provisioner, finalizers };
    composition.check().with_context(|| format!("the environment `{}` cannot work", environment.name))?;
    Ok(composition)
}

/// Registers every kind of change that any built-in plugin makes, so that a run can be taken back whatever it used.
pub(crate) fn register_all(places: &Places, mutations: &mut Mutations) -> anyhow::Result<()> {
    cloud_local::register(&cloud_local::Store::open(places.store())?, mutations);
    Ok(())
}

/// Makes the cloud, and registers what it can change.
fn cloud(environment: &Environment, places: &Places, mutations: &mut Mutations) -> anyhow::Result<Arc<dyn Cloud>> {
    match environment.cloud.plugin.as_str() {
        "local" => {
            let store = cloud_local::Store::open(places.store())?;
            Ok(Arc::new(cloud_local::build(&environment.cloud.settings, store, mutations)?))
        }
        other => bail!("the cloud `{other}` is in the catalog only"),
    }
}

fn finalizers(environment: &Environment, cloud: &dyn Cloud) -> anyhow::Result<Vec<Vec<FinalizerUse>>> {
    let finalizer = |plugin: &str| -> anyhow::Result<Arc<dyn Finalizer>> {
        Ok(match plugin {
            "register_image" => Arc::new(finalizer_register::RegisterImageFinalizer::new(cloud)?),
            "tag_artifacts" => Arc::new(finalizer_tag::TagArtifacts::new(cloud)?),
            other => bail!("the finalizer `{other}` is in the catalog only"),
        })
    };
    let place = |placed: &bake_config::FinalizerUse| -> anyhow::Result<FinalizerUse> {
        Ok(FinalizerUse {
            name: placed.name.clone(),
            finalizer: finalizer(&placed.plugin)?,
            optional: placed.optional,
            timeout: placed.timeout,
            retry: placed.retry,
            when: placed.when.as_ref().map(|when| when.text.clone()),
            after: placed.after.iter().map(|after| after.text.clone()).collect(),
        })
    };
    environment.finalizer_set.groups.iter().map(|group| group.members.iter().map(place).collect()).collect()
}

/// The templates that an environment's finalizers bring along.
#[derive(Debug)]
pub(crate) struct Templates {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Collects the templates of names and tags from the finalizer set; what no member says is as Aminator has it.
pub(crate) fn templates(environment: &Environment) -> Templates {
    let members = || environment.finalizer_set.members();
    let text = |name: &str| {
        members()
            .filter(|member| member.stage == Stage::Register)
            .find_map(|member| member.settings.get(name)?.as_text())
    };
    let default_tags = DEFAULT_TAGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let own_tags = members().filter_map(|member| member.settings.get("tags")?.as_table()).flat_map(|table| {
        table.iter().filter_map(|(key, entry)| Some((key.to_owned(), entry.node.as_text()?.to_owned())))
    });
    Templates {
        name: text("image_name").unwrap_or(DEFAULT_NAME).to_owned(),
        description: text("description").unwrap_or(DEFAULT_DESCRIPTION).to_owned(),
        tags: default_tags.chain(own_tags).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bake_config::Layers;

    /// One environment for each built plugin that none of the shipped ones names would have to be added here.
    #[test]
    fn every_built_plugin_of_the_catalog_can_be_put_together() {
        let shipped = include_str!("../../../environments.yaml");
        let config = Layers::new().built_in(shipped).load(&catalog()).unwrap_or_else(|errors| panic!("{errors}"));
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(Some(folder.path().into()), Some(folder.path().into()));
        let mut tried = Vec::new();
        for name in config.environments() {
            let Ok(environment) = config.environment(name) else { continue };
            let (mut used, mut all) = (Mutations::new(), Mutations::new());
            compose(&environment, &Overrides::default(), &places, &mut used)
                .unwrap_or_else(|error| panic!("`{name}`: {error:#}"));
            register_all(&places, &mut all).unwrap();
            let forgotten: Vec<_> = used.names().filter(|used| !all.names().any(|known| known == *used)).collect();
            assert!(forgotten.is_empty(), "`bake teardown` could not take these back: {forgotten:?}");
            let slots =
                PluginKind::ALL.into_iter().filter_map(|kind| Some((kind, environment.chosen(kind)?.plugin.clone())));
            let members =
                environment.finalizer_set.members().map(|member| (PluginKind::Finalizer, member.plugin.clone()));
            tried.extend(slots.chain(members));
        }
        let built = catalog()
            .iter()
            .filter(|info| info.built == Built::Yes)
            .map(|info| (info.kind, info.name))
            .collect::<Vec<_>>();
        for (kind, name) in built {
            assert!(
                tried.iter().any(|(tried, plugin)| *tried == kind && plugin == name),
                "{kind} `{name}` was never put together"
            );
        }
    }

    #[test]
    fn an_environment_whose_plugin_is_not_built_says_so_when_it_is_chosen() {
        let config = Layers::new().built_in(include_str!("../../../environments.yaml")).load(&catalog()).unwrap();
        let error = config.environment("ec2_yum_linux").unwrap_err().to_string();
        let how = if cfg!(feature = "ec2") { "this version of bake does not have it yet" } else { "its feature `ec2`" };
        assert!(error.contains("cloud `ec2`") && error.contains(how), "{error}");
    }
}
