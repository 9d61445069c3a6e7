//! The plugins that an imported file names, with the settings it may write.

use bake_config::{Built, Catalog, Config, Layers, PluginInfo, PluginKind, Setting, Stage, Takes};

const fn text(name: &'static str) -> Setting {
    Setting { name, takes: Takes::Text, default: None, summary: "a setting" }
}

const fn plugin(kind: PluginKind, name: &'static str, settings: &'static [Setting]) -> PluginInfo {
    PluginInfo { kind, name, version: "1", summary: "a plugin", stage: None, settings, usual: &[], built: Built::Yes }
}

const fn finalizer(name: &'static str, stage: Stage, settings: &'static [Setting]) -> PluginInfo {
    PluginInfo { stage: Some(stage), ..plugin(PluginKind::Finalizer, name, settings) }
}

const EC2: &[Setting] = &[text("region"), text("base")];
const EBS: &[Setting] = &[text("image_name"), text("description")];
const S3: &[Setting] =
    &[text("image_name"), text("description"), text("bucket"), text("cert"), text("privatekey"), text("ec2_user")];
const TAGS: &[Setting] = &[Setting { name: "tags", takes: Takes::TextMap, default: None, summary: "tags" }];

/// Environments such as those that ship with bake: imported ones of the same names lie over them.
const BUILT_IN: &str = "\
default: ec2_apt_linux
ec2_apt_linux: { cloud: ec2, blockdevice: linux, volume: linux, provisioner: apt, finalizer_set: [register_ebs_ami] }
ec2_yum_linux: { extends: ec2_apt_linux, provisioner: yum }
ec2_apt_linux_s3: { extends: ec2_apt_linux, finalizer_set: [register_s3_ami] }
";

/// Loads a file over the built-in environments.
pub(crate) fn load(yaml: &str) -> Config {
    use PluginKind::{BlockDevice, Cloud, Provisioner, Volume};
    let catalog = Catalog::new(vec![
        plugin(Cloud, "ec2", EC2),
        plugin(BlockDevice, "linux", &[]),
        plugin(Volume, "linux", &[]),
        plugin(Provisioner, "apt", &[]),
        plugin(Provisioner, "yum", &[]),
        finalizer("register_ebs_ami", Stage::Register, EBS),
        finalizer("register_s3_ami", Stage::Register, S3),
        finalizer("tag_artifacts", Stage::Tag, TAGS),
    ]);
    let loaded = Layers::new().built_in(BUILT_IN).file("environments.yaml", yaml).load(&catalog);
    loaded.unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}
