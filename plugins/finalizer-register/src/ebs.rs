//! `register_ebs_ami`: makes an AMI of the snapshot, with everything that an AMI says of machines and their root disk.

use std::sync::Arc;

use bake_config::{Built, ByteSize, PluginInfo, PluginKind, Setting, Stage, Takes, Text};
use bake_core::{
    BakeHandles, Cloud, DEFAULT_DESCRIPTION, DESCRIPTION, Finalizer, Image, ImageName, Images, Machine, Needs,
    PlanError, RegisterImage, RootDisk, Templates, Wishes,
};
use bake_engine::{MutationKind, Steps};
use serde::Deserialize;

use crate::{image_kind, register, templates};

/// What the names of such AMIs end in.
const ENDING: &str = "-ebs";

/// How such an AMI is called within a bake, unless its place in the set says otherwise.
const KEY: &str = "ebs";

/// Leaves an attribute as the base image has it.
const INHERIT: &str = "inherit";

/// What may be written about this plugin in `environments.yaml`.
pub const REGISTER_EBS_AMI: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "register_ebs_ami",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Registers an EBS-backed AMI",
    stage: Some(Stage::Register),
    settings: &[
        text(
            ImageName::KEY,
            "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-ebs",
            "Template of the AMI's name",
        ),
        text(DESCRIPTION, DEFAULT_DESCRIPTION, "Template of the description of AMI and snapshot"),
        one_of("boot_mode", &[INHERIT, "uefi", "uefi-preferred", "legacy-bios"], "The firmware that it boots with"),
        one_of(
            "ena",
            &[INHERIT, "true", "false"],
            "Whether it drives the elastic network adapter, which newer types need",
        ),
        one_of("sriov", &[INHERIT, "simple"], "Whether it drives the network adapter of older types"),
        one_of("tpm", &[INHERIT, "v2.0"], "The trusted platform module that it wants; needs a `uefi` firmware"),
        one_of("imds", &[INHERIT, "v2.0"], "Whether its machines answer to version 2 of the metadata service alone"),
        Setting {
            name: "volume_type",
            takes: Takes::OneOf(&["gp3", "gp2", "io1", "io2", "standard"]),
            default: Some("gp3"),
            summary: "The type of its root disk",
        },
        Setting {
            name: "volume_size",
            takes: Takes::Size,
            default: None,
            summary: "The size of its root disk; that of the snapshot if it is left out",
        },
        number("iops", "Operations per second of its root disk: `gp3`, `io1`, `io2`"),
        number("throughput", "MiB per second of its root disk: `gp3`"),
    ],
    usual: &[],
    built: Built::Yes,
};

const fn text(name: &'static str, default: &'static str, summary: &'static str) -> Setting {
    Setting { name, takes: Takes::Text, default: Some(default), summary }
}

const fn one_of(name: &'static str, words: &'static [&'static str], summary: &'static str) -> Setting {
    Setting { name, takes: Takes::OneOf(words), default: Some(INHERIT), summary }
}

const fn number(name: &'static str, summary: &'static str) -> Setting {
    Setting { name, takes: Takes::Integer, default: None, summary }
}

/// The settings of this plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EbsSettings {
    /// Template of the AMI's name.
    pub image_name: Text,
    /// Template of the description.
    pub description: Text,
    /// The firmware.
    pub boot_mode: String,
    /// The elastic network adapter.
    pub ena: String,
    /// The network adapter of older types.
    pub sriov: String,
    /// The trusted platform module.
    pub tpm: String,
    /// The metadata service.
    pub imds: String,
    /// The type of the root disk.
    pub volume_type: String,
    /// Its size.
    #[serde(default)]
    pub volume_size: Option<ByteSize>,
    /// Operations per second.
    #[serde(default)]
    pub iops: Option<u32>,
    /// MiB per second.
    #[serde(default)]
    pub throughput: Option<u32>,
}

impl Default for EbsSettings {
    fn default() -> Self {
        let default = |name| REGISTER_EBS_AMI.settings.iter().find(|setting| setting.name == name);
        let default = |name| default(name).and_then(|setting| setting.default).expect("it has one");
        let inherit = || INHERIT.to_owned();
        Self {
            image_name: Text::built_in(default(ImageName::KEY)),
            description: Text::built_in(default(DESCRIPTION)),
            boot_mode: inherit(),
            ena: inherit(),
            sriov: inherit(),
            tpm: inherit(),
            imds: inherit(),
            volume_type: default("volume_type").to_owned(),
            volume_size: None,
            iops: None,
            throughput: None,
        }
    }
}

/// What the settings say instead of the base image; `None` is what they leave as it is.
#[derive(Clone, Debug)]
struct Changes {
    boot_mode: Option<String>,
    ena: Option<bool>,
    sriov: Option<String>,
    tpm: Option<String>,
    imds: Option<String>,
}

impl Changes {
    fn of(settings: &EbsSettings) -> Self {
        let said = |text: &String| Some(text.clone()).filter(|text| text != INHERIT);
        Self {
            boot_mode: said(&settings.boot_mode),
            ena: said(&settings.ena).map(|text| text == "true"),
            sriov: said(&settings.sriov),
            tpm: said(&settings.tpm),
            imds: said(&settings.imds),
        }
    }

    fn over(self, base: Machine) -> Machine {
        Machine {
            root_device: base.root_device,
            boot_mode: self.boot_mode.or(base.boot_mode),
            ena: self.ena.or(base.ena),
            sriov: self.sriov.or(base.sriov),
            tpm: self.tpm.or(base.tpm),
            imds: self.imds.or(base.imds),
        }
    }
}

/// Registers one AMI from the snapshot.
pub struct RegisterEbsAmi {
    images: MutationKind<RegisterImage, Image>,
    key: String,
    settings: EbsSettings,
    disk: RootDisk,
}

impl RegisterEbsAmi {
    /// Makes the finalizer at its place in a set; refused where the root disk cannot be as the settings say.
    pub fn new(cloud: &dyn Cloud, place: &str, settings: EbsSettings) -> Result<Self, PlanError> {
        let name = REGISTER_EBS_AMI.name;
        let images = image_kind(cloud, name)?;
        let disk = root_disk(&settings).map_err(|reason| PlanError::Unsupported {
            finalizer: place.to_owned(),
            cloud: cloud.name().into(),
            reason,
        })?;
        let key = if place == name { KEY } else { place };
        Ok(Self { images, key: key.to_owned(), settings, disk })
    }
}

/// The root disk, if there is one like that (EBS volume types, as the EC2 API's reference has them).
fn root_disk(settings: &EbsSettings) -> Result<RootDisk, String> {
    let EbsSettings { volume_type, volume_size, iops, throughput, .. } = settings;
    let operations = match volume_type.as_str() {
        "gp3" => Some(3_000..=80_000),
        "io1" => Some(100..=64_000),
        "io2" => Some(100..=256_000),
        _ => None,
    };
    match (iops, operations) {
        (None, Some(_)) if volume_type != "gp3" => return Err(format!("a disk of type `{volume_type}` needs `iops`")),
        (Some(iops), Some(range)) if !range.contains(iops) => {
            let (least, most) = range.into_inner();
            return Err(format!("`iops` of a disk of type `{volume_type}` is between {least} and {most}, not {iops}"));
        }
        (Some(_), None) => return Err(format!("a disk of type `{volume_type}` takes no `iops`")),
        _ => {}
    }
    match throughput {
        Some(_) if volume_type != "gp3" => return Err(format!("a disk of type `{volume_type}` takes no `throughput`")),
        Some(rate) if !(125..=2_000).contains(rate) => {
            return Err(format!("`throughput` is between 125 and 2000 MiB per second, not {rate}"));
        }
        _ => {}
    }
    Ok(RootDisk {
        kind: Some(volume_type.clone()),
        size: volume_size.map(|size| size.0),
        iops: *iops,
        throughput: *throughput,
    })
}

impl Finalizer for RegisterEbsAmi {
    fn name(&self) -> &'static str {
        REGISTER_EBS_AMI.name
    }

    fn stage(&self) -> Stage {
        Stage::Register
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: true }
    }

    fn templates(&self) -> Templates {
        templates(&self.settings.image_name, ENDING, &self.settings.description)
    }

    fn wishes(&self) -> Wishes {
        Wishes { root_disks: self.disk.size.into_iter().collect(), ..Wishes::default() }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let (changes, disk) = (Changes::of(&self.settings), self.disk.clone());
        let image = register(REGISTER_EBS_AMI.name, &self.images, bake, steps, move |request| RegisterImage {
            machine: changes.clone().over(request.machine),
            disk: disk.clone(),
            ..request
        })?;
        Ok([(self.key.clone(), image)].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(volume_type: &str, iops: Option<u32>, throughput: Option<u32>) -> EbsSettings {
        EbsSettings { volume_type: volume_type.into(), iops, throughput, ..EbsSettings::default() }
    }

    #[test]
    fn its_name_is_the_usual_one_with_an_ending() {
        assert_eq!(EbsSettings::default().image_name.text, format!("{}{ENDING}", bake_core::DEFAULT_NAME));
    }

    #[test]
    fn disks_that_do_not_exist_are_refused() {
        assert!(root_disk(&settings("gp3", None, None)).is_ok());
        assert!(root_disk(&settings("gp3", Some(4_000), Some(500))).is_ok());
        assert!(root_disk(&settings("io2", Some(256_000), None)).is_ok());
        let refused = |kind, iops, throughput| root_disk(&settings(kind, iops, throughput)).unwrap_err();
        assert_eq!(refused("io1", None, None), "a disk of type `io1` needs `iops`");
        assert_eq!(refused("gp2", Some(100), None), "a disk of type `gp2` takes no `iops`");
        assert_eq!(refused("gp3", Some(1), None), "`iops` of a disk of type `gp3` is between 3000 and 80000, not 1");
        assert_eq!(refused("io1", Some(100), Some(125)), "a disk of type `io1` takes no `throughput`");
        assert_eq!(refused("gp3", None, Some(1)), "`throughput` is between 125 and 2000 MiB per second, not 1");
    }

    #[test]
    fn what_is_not_said_is_as_in_the_base() {
        let base = Machine {
            root_device: Some("/dev/sda1".into()),
            boot_mode: Some("uefi".into()),
            ena: Some(true),
            ..Machine::default()
        };
        assert_eq!(Changes::of(&EbsSettings::default()).over(base.clone()), base);
        let said = EbsSettings { ena: "false".into(), imds: "v2.0".into(), ..EbsSettings::default() };
        let there = Changes::of(&said).over(base.clone());
        assert_eq!(there, Machine { ena: Some(false), imds: Some("v2.0".into()), ..base });
    }
}
