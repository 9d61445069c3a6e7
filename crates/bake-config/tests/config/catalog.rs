//! Plugins as a program would list them: some of each kind, some of them not built.

use bake_config::{Built, Catalog, Config, ConfigErrors, Layers, PluginInfo, PluginKind, Setting, Stage, Takes};

const fn setting(name: &'static str, takes: Takes) -> Setting {
    Setting { name, takes, default: None, summary: "a setting" }
}

const fn with_default(name: &'static str, takes: Takes, default: &'static str) -> Setting {
    Setting { default: Some(default), ..setting(name, takes) }
}

const fn plugin(kind: PluginKind, name: &'static str, settings: &'static [Setting]) -> PluginInfo {
    PluginInfo { kind, name, version: "1", summary: "a plugin", stage: None, settings, usual: &[], built: Built::Yes }
}

const fn finalizer(name: &'static str, stage: Stage, settings: &'static [Setting]) -> PluginInfo {
    PluginInfo { stage: Some(stage), ..plugin(PluginKind::Finalizer, name, settings) }
}

const LOCAL: &[Setting] = &[setting("store", Takes::Text), setting("keys", Takes::List(&Takes::Secret))];
const EC2: &[Setting] = &[
    setting("region", Takes::Text),
    setting("token", Takes::Secret),
    setting("owner", Takes::AccountId),
    with_default("attempts", Takes::Integer, "5"),
    with_default("wait", Takes::Duration, "10m"),
    with_default("volume_type", Takes::OneOf(&["gp2", "gp3"]), "gp3"),
    with_default("encrypted", Takes::Boolean, "false"),
    with_default("cache_size", Takes::Size, "8GiB"),
];
const TAG: &[Setting] = &[with_default("tags", Takes::TextMap, "{ creator: \"{{ vars.creator }}\", Owner: nobody }")];
const DISTRIBUTE: &[Setting] = &[
    with_default("regions", Takes::List(&Takes::Text), "[]"),
    setting("accounts", Takes::List(&Takes::AccountId)),
    setting("per_region", Takes::Map(&Takes::TextMap)),
];
const POKE: &[Setting] = &[setting("url", Takes::Text)];
const APT: &[Setting] = &[with_default("recommends", Takes::Boolean, "false")];

pub(crate) fn catalog() -> Catalog {
    use PluginKind::{BlockDevice, Cloud, Provisioner, Volume};
    let yum = plugin(Provisioner, "yum", &[]);
    Catalog::new(vec![
        plugin(Cloud, "local", LOCAL),
        plugin(Cloud, "ec2", EC2),
        plugin(BlockDevice, "loop", &[]),
        plugin(BlockDevice, "linux", &[]),
        plugin(Volume, "linux", &[]),
        plugin(Provisioner, "apt", APT),
        PluginInfo { built: Built::No { how: "build with `--features yum`" }, ..yum },
        finalizer("register_image", Stage::Register, &[]),
        finalizer("register_ebs_ami", Stage::Register, &[]),
        finalizer("register_s3_ami", Stage::Register, &[]),
        finalizer("tag_artifacts", Stage::Tag, TAG),
        finalizer("distribute_images", Stage::Distribute, DISTRIBUTE),
        PluginInfo {
            usual: &[("optional", "true"), ("timeout", "30s")],
            ..finalizer("asgard_poke", Stage::Notify, POKE)
        },
    ])
}

pub(crate) fn load(text: &str) -> Result<Config, ConfigErrors> {
    Layers::new().file("environments.yaml", text).load(&catalog())
}

/// A complete environment called `e`, with more of its keys appended.
pub(crate) fn environment(more: &str) -> String {
    let slots = "e:\n  cloud: ec2\n  blockdevice: loop\n  volume: linux\n  provisioner: apt\n";
    match more.contains("finalizer_set") {
        true => format!("{slots}{more}"),
        false => format!("{slots}  finalizer_set: [register_image]\n{more}"),
    }
}

/// What is wrong with a text, as people see it.
pub(crate) fn errors(text: &str) -> String {
    match load(text) {
        Ok(_) => "no error".to_owned(),
        Err(errors) => errors.to_string(),
    }
}
