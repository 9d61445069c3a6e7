//! What the result is called: names, description and tags, rendered once the package database has spoken.

use std::collections::BTreeMap;

use bake_engine::{Classify, StepError, StepResult};
use serde::{Deserialize, Serialize};

use crate::{BaseImage, Identity, Installed, Package, Tags, template};

/// The name Aminator's users know. The suffix, a time stamp by default, keeps it unique.
pub const DEFAULT_NAME: &str =
    "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}";

/// The description Aminator's users know, of image and snapshot.
pub const DEFAULT_DESCRIPTION: &str = "name={{ package.name }}, arch={{ arch }}, ancestor_name={{ base.name }}, \
     ancestor_id={{ base.id }}, ancestor_version={{ base.tags.base_ami_version | default('') }}";

/// Tags of image and snapshot that other tools read (`appversion` is Asgard's and Spinnaker's).
pub const DEFAULT_TAGS: [(&str, &str); 4] = [
    ("appversion", "{{ package.name }}-{{ package.version_with_epoch }}-{{ package.release }}"),
    ("base_ami_version", "{{ base.tags.base_ami_version | default('') }}"),
    ("creator", "{{ vars.creator }}"),
    ("creation_time", "{{ date }}"),
];

/// Longest image name, in characters; EC2 allows no more, and what is local today may move there tomorrow.
const NAME_LIMIT: usize = 128;

/// The templates and the values that are known before the bake.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdentityTemplates {
    /// Template of the image's name.
    pub name: String,
    /// Template of the description.
    pub description: String,
    /// Templates of the tags.
    pub tags: BTreeMap<String, String>,
    /// What users may tune.
    pub vars: BTreeMap<String, String>,
    /// Name of the environment.
    pub environment: String,
    /// Id of the run.
    pub run: String,
    /// The one clock value of the bake, as text.
    pub date: String,
}

impl IdentityTemplates {
    /// Checks the syntax of all templates, before anything is known.
    pub fn check(&self) -> Result<(), template::TemplateError> {
        [&self.name, &self.description].into_iter().chain(self.tags.values()).try_for_each(|text| template::check(text))
    }

    /// Decides a predicate on what is known after provisioning, such as `arch == 'x86_64'`.
    pub(crate) fn decide(&self, predicate: &str, base: &BaseImage, installed: &Installed) -> StepResult<bool> {
        template::holds(predicate, &self.values(base, installed)).permanent()
    }

    fn values(&self, base: &BaseImage, installed: &Installed) -> serde_json::Value {
        let packages: Vec<_> = installed.requested.iter().map(package_values).collect();
        serde_json::json!({
            "package": package_values(&installed.main),
            "packages": packages,
            "base": base,
            "arch": base.architecture,
            "region": base.region,
            "vars": self.vars,
            "env": { "name": self.environment },
            "run": { "id": self.run },
            "date": self.date,
        })
    }
}

fn package_values(package: &Package) -> serde_json::Value {
    let with_epoch = match &package.epoch {
        Some(epoch) => format!("{epoch}:{}", package.version),
        None => package.version.clone(),
    };
    serde_json::json!({
        "name": package.name,
        "epoch": package.epoch.clone().unwrap_or_default(),
        "version": package.version,
        "version_with_epoch": with_epoch,
        "release": package.release,
        "architecture": package.architecture,
    })
}

/// Renders and checks what the bake's result is called.
pub(crate) fn render_identity(
    templates: &IdentityTemplates,
    base: &BaseImage,
    installed: &Installed,
) -> StepResult<Identity> {
    let values = templates.values(base, installed);
    let render = |text: &str| template::render(text, &values).permanent();
    let tags =
        templates.tags.iter().map(|(key, text)| Ok((key.clone(), render(text)?))).collect::<StepResult<Tags>>()?;
    let name = legal_name(&render(&templates.name)?);
    let length = name.chars().count();
    if length > NAME_LIMIT {
        let start: String = name.chars().take(NAME_LIMIT).collect();
        return Err(StepError::permanent(format!(
            "the image name `{start}…` has {length} characters, {NAME_LIMIT} are allowed"
        ))
        .hint("give a shorter one with `--name`, or a shorter `--suffix`"));
    }
    Ok(Identity { name, description: render(&templates.description)?, tags })
}

/// Puts `_` for every character that an AMI name may not have, as Aminator does.
fn legal_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "().-/_".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, BaseId, PackageChanges, Region};

    fn templates() -> IdentityTemplates {
        IdentityTemplates {
            name: DEFAULT_NAME.into(),
            description: DEFAULT_DESCRIPTION.into(),
            tags: DEFAULT_TAGS.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect(),
            vars: [("suffix", "202611301200"), ("creator", "ann")].map(|(k, v)| (k.into(), v.into())).into(),
            environment: "local_apt_linux".into(),
            run: "r1".into(),
            date: "2026-11-30 12:00:00 UTC".into(),
        }
    }

    fn render(templates: &IdentityTemplates, version: &str) -> StepResult<Identity> {
        let package = Package::from_debian("helloworld", version, "amd64");
        let installed =
            Installed { requested: vec![package.clone()], main: package, changes: PackageChanges::default() };
        let base = BaseImage {
            id: BaseId::new("base-1"),
            name: "debian-bookworm".into(),
            region: Region::new("here"),
            architecture: Architecture::new("x86_64"),
            size: 1,
            tags: [("base_ami_version".into(), "7".into())].into(),
        };
        render_identity(templates, &base, &installed)
    }

    #[test]
    fn the_defaults_are_aminators() {
        let identity = render(&templates(), "1:2.0~rc1-3").unwrap();
        assert_eq!(identity.name, "helloworld-2.0_rc1-3-x86_64-202611301200");
        assert_eq!(
            identity.description,
            "name=helloworld, arch=x86_64, ancestor_name=debian-bookworm, ancestor_id=base-1, ancestor_version=7"
        );
        assert_eq!(identity.tags["appversion"], "helloworld-1:2.0~rc1-3");
        assert_eq!(identity.tags["creator"], "ann");
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_with_a_way_out() {
        let error = render(&templates(), &"1".repeat(200)).unwrap_err();
        assert!(error.to_string().contains("128 are allowed"), "{error}");
    }

    #[test]
    fn a_wrong_template_is_an_error() {
        let error = render(&IdentityTemplates { name: "{{ package.nmae }}".into(), ..templates() }, "1").unwrap_err();
        assert!(format!("{error:?}").contains("nmae"), "{error:?}");
    }
}
