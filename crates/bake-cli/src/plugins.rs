//! The built-in plugins: one readable list of what exists, and how an environment's choice is put together.

use std::sync::Arc;

use anyhow::{Context, bail};
use bake_config::{Built, Catalog, Environment, FinalizerSet, PluginInfo, PluginKind, Setting, Stage, Takes};
use bake_core::{
    BlockDevice, Cloud, Composition, DEFAULT_DESCRIPTION, DESCRIPTION, Finalizer, FinalizerUse, ImageName, Provisioner,
    Volumes,
};
use bake_engine::Mutations;
use finalizer_http::{HttpCalls, HttpPoke};
use volume_linux::LinuxVolumes;

use crate::places::Places;

/// Tells everything that may be named in a file.
pub(crate) fn catalog() -> Catalog {
    Catalog::new(vec![
        cloud_local::INFO,
        ec2(cloud_ec2::INFO),
        blockdevice_loop::INFO,
        ec2(blockdevice_linux::INFO),
        volume_linux::INFO,
        provisioner_apt::INFO,
        unbuilt(PluginKind::Provisioner, "yum", "Installs RPM packages with the root's own dnf or yum"),
        finalizer_register::INFO,
        ec2(finalizer_register::REGISTER_EBS_AMI),
        ec2(PluginInfo {
            settings: &REGISTER_S3_AMI,
            ..unbuilt_finalizer("register_s3_ami", Stage::Register, "Registers an S3-backed AMI")
        }),
        finalizer_tag::INFO,
        finalizer_distribute::INFO,
        finalizer_http::HTTP_POKE,
        finalizer_http::ASGARD_POKE,
    ])
}

/// A plugin that files may name, and that this version does not have yet.
const fn unbuilt(kind: PluginKind, name: &'static str, summary: &'static str) -> PluginInfo {
    let built = Built::No { how: "this version of bake does not have it yet" };
    PluginInfo { kind, name, version: "", summary, stage: None, settings: &[], usual: &[], built }
}

const fn unbuilt_finalizer(name: &'static str, stage: Stage, summary: &'static str) -> PluginInfo {
    PluginInfo { stage: Some(stage), ..unbuilt(PluginKind::Finalizer, name, summary) }
}

/// A plugin of the feature `ec2`: left out of a build without it, and in the others still to come.
fn ec2(info: PluginInfo) -> PluginInfo {
    match cfg!(feature = "ec2") {
        true => info,
        false => PluginInfo { built: Built::No { how: "build bake with its feature `ec2`" }, ..info },
    }
}

/// Settings that environments may already hold, so that they are kept and checked until their plugin comes.
const REGISTER_S3_AMI: [Setting; 6] = [
    text(ImageName::KEY, Some(S3_NAME), "Template of the AMI's name"),
    text(DESCRIPTION, Some(DEFAULT_DESCRIPTION), "Template of the AMI's description"),
    text("bucket", None, "The S3 bucket of the image's parts"),
    text("cert", None, "File of the X.509 certificate that the image is signed with"),
    text("privatekey", None, "File of its private key"),
    text("ec2_user", None, "The account id that the image is signed for"),
];

/// The name that Aminator gives to S3-backed AMIs.
const S3_NAME: &str = "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-s3";

const fn text(name: &'static str, default: Option<&'static str>, summary: &'static str) -> Setting {
    Setting { name, takes: Takes::Text, default, summary }
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
        "linux" => {
            Arc::new(blockdevice_linux::LinuxBlockDevice::build(&environment.blockdevice.settings, places.host())?)
        }
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
    if environment.finalizer_set.members().all(|member| member.stage != Stage::Register) {
        let FinalizerSet { origin, .. } = &environment.finalizer_set;
        bail!(
            "{origin}: no finalizer of the environment `{}` registers an image, so its bakes would make nothing",
            environment.name
        );
    }
    let finalizers = finalizers(environment, cloud.as_ref(), &finalizer_http::register(mutations))?;
    let composition = Composition { cloud, blockdevice, volume, provisioner, finalizers };
    composition.check().with_context(|| format!("the environment `{}` cannot work", environment.name))?;
    Ok(composition)
}

/// Registers every kind of change that any built-in plugin makes, so that a run can be taken back whatever it used. `config` is
/// the environment as the run's journal has it.
pub(crate) fn register_all(
    #[cfg_attr(not(feature = "ec2"), expect(unused_variables, reason = "the local cloud is where it always is"))]
    config: &serde_json::Value,
    places: &Places,
    mutations: &mut Mutations,
) -> anyhow::Result<()> {
    cloud_local::register(&cloud_local::Store::open(places.store())?, mutations);
    #[cfg(feature = "ec2")]
    {
        let cloud = Some(&config["cloud"]).filter(|cloud| cloud["plugin"] == "ec2");
        let settings = cloud.map_or(&serde_json::Value::Null, |cloud| &cloud["settings"]);
        cloud_ec2::register(settings, &places.ec2(), mutations);
    }
    finalizer_http::register(mutations);
    Ok(())
}

/// Makes the cloud, and registers what it can change.
fn cloud(environment: &Environment, places: &Places, mutations: &mut Mutations) -> anyhow::Result<Arc<dyn Cloud>> {
    match environment.cloud.plugin.as_str() {
        "local" => {
            let store = cloud_local::Store::open(places.store())?;
            Ok(Arc::new(cloud_local::build(&environment.cloud.settings, store, mutations)?))
        }
        #[cfg(feature = "ec2")]
        "ec2" => Ok(Arc::new(cloud_ec2::build(&environment.cloud.settings, &places.ec2(), mutations)?)),
        other => bail!("the cloud `{other}` is in the catalog only"),
    }
}

fn finalizers(
    environment: &Environment,
    cloud: &dyn Cloud,
    calls: &HttpCalls,
) -> anyhow::Result<Vec<Vec<FinalizerUse>>> {
    let place = |placed: &bake_config::FinalizerUse| -> anyhow::Result<FinalizerUse> {
        let finalizer = finalizer(placed, cloud, calls)
            .with_context(|| format!("{}: the finalizer `{}`", placed.origin, placed.name))?;
        Ok(FinalizerUse {
            name: placed.name.clone(),
            finalizer,
            optional: placed.optional,
            timeout: placed.timeout,
            retry: placed.retry,
            conditions: placed.conditions.clone(),
            after: placed.after.iter().map(|after| after.text.clone()).collect(),
        })
    };
    environment.finalizer_set.groups.iter().map(|group| group.members.iter().map(place).collect()).collect()
}

fn finalizer(
    placed: &bake_config::FinalizerUse,
    cloud: &dyn Cloud,
    calls: &HttpCalls,
) -> anyhow::Result<Arc<dyn Finalizer>> {
    let settings = &placed.settings;
    Ok(match placed.plugin.as_str() {
        "register_image" => {
            Arc::new(finalizer_register::RegisterImageFinalizer::new(cloud, &placed.name, settings.parse()?)?)
        }
        "register_ebs_ami" if cloud.name() == "ec2" => {
            Arc::new(finalizer_register::RegisterEbsAmi::new(cloud, &placed.name, settings.parse()?)?)
        }
        "register_ebs_ami" => {
            bail!("it registers AMIs, and the cloud `{}` has none; `register_image` fits any", cloud.name())
        }
        "http_poke" => Arc::new(HttpPoke::new(&placed.name, settings.parse()?, calls)?),
        "asgard_poke" => Arc::new(HttpPoke::asgard(&placed.name, settings.parse()?, calls)?),
        "distribute_images" => Arc::new(finalizer_distribute::DistributeImages::new(cloud, settings.parse()?)?),
        "tag_artifacts" => Arc::new(finalizer_tag::TagArtifacts::new(cloud, settings.parse()?)?),
        other => bail!("the finalizer `{other}` is in the catalog only"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bake_config::Layers;

    /// An environment with every built plugin that none of the shipped ones names.
    const MORE: &str = "more: { extends: local_apt_linux, finalizer_set: [register_image, \
                        distribute_images, http_poke: { url: 'http://h/' }, asgard_poke: { url: 'http://h/' }] }\n\
                        ami: { extends: ec2_apt_loop }\n\
                        attached: { extends: ec2_apt_linux }";

    #[test]
    fn every_built_plugin_of_the_catalog_can_be_put_together() {
        let shipped = include_str!("../../../environments.yaml");
        let layers = Layers::new().built_in(shipped).file("environments.yaml", MORE);
        let config = layers.load(&catalog()).unwrap_or_else(|errors| panic!("{errors}"));
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(|_| Some(folder.path().into()));
        let mut tried = Vec::new();
        for name in config.environments() {
            let Ok(environment) = config.environment(name) else { continue };
            let (mut used, mut all) = (Mutations::new(), Mutations::new());
            compose(&environment, &Overrides::default(), &places, &mut used)
                .unwrap_or_else(|error| panic!("`{name}`: {error:#}"));
            register_all(&serde_json::Value::Null, &places, &mut all).unwrap();
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

    /// A value that a setting may have, as it is written in a file.
    fn sample(takes: Takes) -> String {
        match takes {
            Takes::Text | Takes::Secret => "text".into(),
            Takes::Integer => "1".into(),
            Takes::Boolean => "true".into(),
            Takes::Duration => "90s".into(),
            Takes::Size => "8GiB".into(),
            Takes::AccountId => "'012345678901'".into(),
            Takes::OneOf(words) => words[0].into(),
            Takes::List(item) => format!("[{}]", sample(*item)),
            Takes::TextMap => "{ Key: text }".into(),
            Takes::Map(value) => format!("{{ Key: {} }}", sample(*value)),
        }
    }

    /// What a file may say and what the plugin reads are written down in two places.
    #[test]
    fn every_setting_takes_what_it_says_that_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(|_| Some(folder.path().into()));
        for info in catalog().iter().filter(|info| info.built == Built::Yes) {
            let (name, ec2) = (info.name, ["ec2", "linux", "register_ebs_ami"].contains(&info.name));
            let set = match (info.kind, info.stage) {
                (PluginKind::Finalizer, Some(Stage::Register)) => format!("[{name}]"),
                (PluginKind::Finalizer, _) => format!("[register_image, {name}]"),
                _ if ec2 => "[register_ebs_ami]".into(),
                _ => "[register_image]".into(),
            };
            let base = if ec2 { "ec2_apt_linux" } else { "local_apt_linux" };
            for setting in info.settings {
                // A poke has to have somewhere to go to.
                let more = match name {
                    "http_poke" | "asgard_poke" if setting.name != "url" => ", url: 'http://h/'",
                    _ => "",
                };
                let value = if setting.name == "url" { "'http://h/'".into() } else { sample(setting.takes) };
                let (kind, key) = (info.kind, setting.name);
                let plugins = format!("plugins: {{ {kind}: {{ {name}: {{ {key}: {value}{more} }} }} }}");
                let text = format!("e: {{ extends: {base}, finalizer_set: {set}, {plugins} }}");
                let layers =
                    Layers::new().built_in(include_str!("../../../environments.yaml")).file("e.yaml", text.as_str());
                let config = layers.load(&catalog()).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
                let environment = config.environment("e").unwrap_or_else(|error| panic!("{text}\n{error}"));
                let composed = compose(&environment, &Overrides::default(), &places, &mut Mutations::new());
                // What it means may be refused.
                let error = composed.err().map(|error| format!("{error:#}")).unwrap_or_default();
                assert!(!error.contains("is wanted") && !error.contains("unknown field"), "{text}\n{error}");
            }
        }
    }

    /// The steps of a bake with this finalizer set, as a plan prints them.
    fn plan(set: &str) -> serde_json::Value {
        let text = format!("e: {{ extends: local_apt_linux, finalizer_set: {set} }}");
        let layers = Layers::new().built_in(include_str!("../../../environments.yaml")).file("environments.yaml", text);
        let config = layers.load(&catalog()).unwrap_or_else(|errors| panic!("{errors}"));
        let environment = config.environment("e").unwrap();
        let places = Places::new(|_| Some("/nowhere".into()));
        let composition = compose(&environment, &Overrides::default(), &places, &mut Mutations::new()).unwrap();
        let vars = crate::variables::variables(&environment, &Default::default());
        let known = crate::variables::known(&vars, &environment, "run", jiff::Timestamp::UNIX_EPOCH).unwrap();
        let request = bake_core::PackageRequest::parse(&["hello".to_owned()], None, "/".as_ref()).unwrap();
        let (base, steps) = (bake_core::BaseQuery::default(), environment.steps.clone());
        bake_core::Bake { composition, base, request, known, name: None, steps }.plan().unwrap().plan.describe()
    }

    #[test]
    fn a_set_is_the_same_graph_flat_nested_or_with_after() {
        let three = "register_image, register_image: { name: b, image_name: b-b }, register_image: { name: c, image_name: c-c }";
        let flat = plan(&format!("[{three}, tag_artifacts, distribute_images: {{ regions: [there] }}]"));
        assert_eq!(flat, plan(&format!("[[{three}], [tag_artifacts], [distribute_images: {{ regions: [there] }}]]")));
        let after = "tag_artifacts: { after: [c, b, register_image] }, \
                     distribute_images: { after: tag_artifacts, regions: [there] }";
        assert_eq!(flat, plan(&format!("[{three}, {after}]")));
        let steps = flat["steps"].as_object().unwrap();
        assert!(
            ["finalize/b/image", "finalize/tag_artifacts/c", "finalize/distribute_images/there/local"]
                .iter()
                .all(|step| steps.contains_key(*step))
        );
        assert_eq!(steps["finalize/c/image"]["after"], serde_json::json!([]), "nothing is between the three");
    }

    #[test]
    fn amis_are_called_as_aminator_calls_them() {
        assert_eq!(S3_NAME, format!("{}-s3", bake_core::DEFAULT_NAME));
    }

    #[test]
    fn an_environment_whose_plugin_is_not_built_says_so_when_it_is_chosen() {
        let config = Layers::new().built_in(include_str!("../../../environments.yaml")).load(&catalog()).unwrap();
        let error = config.environment("ec2_yum_linux").unwrap_err().to_string();
        let how = "this version of bake does not have it yet";
        assert!(error.contains("provisioner `yum`") && error.contains(how), "{error}");
    }
}
