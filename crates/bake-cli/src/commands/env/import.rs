use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::failure::Advice;
use crate::terminal::{print_line, tell};

/// Write an `environments.yaml` that says what Aminator's configuration says
///
/// What has no counterpart is listed on standard error, each with the place where it is written. Nothing is
/// dropped in silence. For example: `bake env import /etc/aminator --to environments.yaml`
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The folder of Aminator's configuration
    #[arg(value_name = "FOLDER", default_value = "/etc/aminator")]
    folder: PathBuf,
    /// Write it to this file, which must not be there yet; standard output if it is left out
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

pub(super) fn run(arguments: &ImportArgs) -> anyhow::Result<()> {
    let ImportArgs { folder, to } = arguments;
    let sources = bake_import::find(folder).map_err(|error| {
        Advice::usage(format!("cannot read Aminator's configuration: {error}"))
            .hint("name the folder that holds `environments.yml`: `bake env import FOLDER`")
    })?;
    let imported = bake_import::import(&sources).map_err(|errors| Advice::usage(errors.to_string()))?;
    match to {
        Some(file) => write_new(file, &imported.yaml)?,
        None => print_line(imported.yaml.trim_end())?,
    }
    for note in &imported.notes {
        tell(&format!("{note}\n"));
    }
    if let Some(file) = to {
        tell(&format!("wrote `{}`; `bake --config {0} env check` checks it\n", file.display()));
    }
    Ok(())
}

/// Somebody's own file is never written over.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = std::fs::File::create_new(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bake_config::{Built, Catalog, Environment, Layers, PluginInfo};
    use bake_core::{
        Architecture, BaseId, BaseImage, Facts, Installed, Known, Machine, Package, PackageChanges, Region,
    };

    use crate::plugins;
    use crate::variables::{VariableFlags, known, variables};

    /// The configuration that Aminator ships, as `bake` takes it.
    fn imported(name: &str) -> Environment {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../bake-import/tests/shipped");
        let sources = bake_import::find(shipped.as_ref()).unwrap();
        let yaml = bake_import::import(&sources).unwrap_or_else(|errors| panic!("{errors}")).yaml;
        // What it is called does not depend on whether it can be baked yet.
        let all = plugins::catalog().iter().map(|info| PluginInfo { built: Built::Yes, ..*info }).collect();
        let layers = Layers::new().built_in(include_str!("../../../../../environments.yaml"));
        let config =
            layers.file("environments.yaml", yaml).load(&Catalog::new(all)).unwrap_or_else(|errors| panic!("{errors}"));
        config.environment(name).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn facts(package: Package) -> Facts {
        let base = BaseImage {
            id: BaseId::new("ami-0123"),
            name: "bionicbase-x86_64-201912170000-ebs".into(),
            region: Region::new("us-east-1"),
            architecture: Architecture::new("x86_64"),
            size: 1,
            tags: [("base_ami_version".into(), "baseos-5.1".into())].into(),
            snapshot: None,
            machine: Machine::default(),
            borrowed: false,
        };
        let installed =
            Installed { requested: vec![package.clone()], main: package, changes: PackageChanges::default() };
        Facts { base: Some(base), installed: Some(installed), ..Facts::default() }
    }

    fn bake_of(environment: &Environment) -> Known {
        let variables = variables(environment, &VariableFlags::default());
        known(&variables, environment, "run", "2026-11-30T12:34:56Z".parse().unwrap()).unwrap()
    }

    fn value(environment: &Environment, text: &str, facts: &Facts) -> String {
        bake_of(environment).explain(text, facts).unwrap().value.unwrap()
    }

    fn setting(environment: &Environment, finalizer: &str, name: &str, facts: &Facts) -> String {
        let member = environment.finalizer_set.members().find(|member| member.plugin == finalizer).unwrap();
        value(environment, &member.settings.text(name).unwrap().text, facts)
    }

    fn tags(environment: &Environment, facts: &Facts) -> BTreeMap<String, String> {
        let member = environment.finalizer_set.members().find(|member| member.plugin == "tag_artifacts").unwrap();
        let tags = member.settings.texts("tags").into_iter();
        tags.map(|(key, text)| (key, value(environment, &text.text, facts))).collect()
    }

    /// What Aminator's own formats give for this package, base and time, written out by hand.
    #[test]
    fn aminators_defaults_give_the_names_and_tags_that_aminator_gives() {
        let facts = facts(Package::from_debian("helloworld", "1:1.0.0-2", "amd64"));
        let description = "name=helloworld, arch=x86_64, ancestor_name=bionicbase-x86_64-201912170000-ebs, \
                           ancestor_id=ami-0123, ancestor_version=baseos-5.1";
        let expected: BTreeMap<_, _> = [
            ("appversion", "helloworld-1.0.0-2"),
            ("base_ami_version", "baseos-5.1"),
            ("creation_time", "2026-11-30 12:34:56 UTC"),
            ("creator", "aminator"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (name, finalizer, ending) in [
            ("ec2_yum_linux", "register_ebs_ami", "ebs"),
            ("ec2_apt_linux", "register_ebs_ami", "ebs"),
            ("ec2_aptitude_linux", "register_ebs_ami", "ebs"),
            ("ec2_yum_linux_s3", "register_s3_ami", "s3"),
            ("ec2_apt_linux_s3", "register_s3_ami", "s3"),
            ("ec2_aptitude_linux_s3", "register_s3_ami", "s3"),
        ] {
            let environment = imported(name);
            let image_name = setting(&environment, finalizer, "image_name", &facts);
            assert_eq!(image_name, format!("helloworld-1.0.0-2-x86_64-202611301234-{ending}"), "{name}");
            assert_eq!(setting(&environment, finalizer, "description", &facts), description, "{name}");
            assert_eq!(tags(&environment, &facts), expected, "{name}");
        }
    }
}
