//! Reading the layers of configuration, from what ships with the program to what stands on the command line.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bake_config::{Config, Environment, Layers, Origin};

use crate::cli::Global;
use crate::failure::Advice;
use crate::places::Places;
use crate::plugins;

/// The environments that ship.
const BUILT_IN: &str = include_str!("../../../environments.yaml");

/// Where a machine's administrator writes environments for everybody.
const SYSTEM_FOLDER: &str = "/etc/bake";

/// Everything that was written down, in all layers.
pub(crate) struct Configuration {
    pub(crate) config: Config,
    pub(crate) places: Places,
}

impl Configuration {
    /// Reads all layers. Every mistake in any of them is in the one error that comes back.
    pub(crate) fn load(global: &Global) -> anyhow::Result<Self> {
        Self::load_from(global, &std::env::current_dir().context("cannot tell the working directory")?)
    }

    /// The same, as it is read from another folder.
    pub(crate) fn load_from(global: &Global, folder: &Path) -> anyhow::Result<Self> {
        let files = bake_config::find_files(&bake_config::Places {
            system: SYSTEM_FOLDER.into(),
            user: own_folder(),
            working_directory: folder.to_owned(),
            explicit: global.config.clone(),
        });
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut layers = Layers::new().built_in(BUILT_IN).files(files).variables(variables);
        for setting in &global.set {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                Advice::usage(format!("`--set {setting}` sets nothing")).hint("write `--set KEY=VALUE`")
            })?;
            layers = layers.set(key, value, Origin::named("--set"));
        }
        if let Some(folder) = &global.state_dir {
            let folder = folder.to_str().ok_or_else(|| Advice::usage("the path after `--state-dir` is no text"))?;
            layers = layers.set("state_dir", folder, Origin::named("--state-dir"));
        }
        let config = layers.load(&plugins::catalog()).map_err(wrong)?;
        let places = Places::new(|name| config.setting(name).map(|place| PathBuf::from(&place.text)));
        Ok(Self { config, places })
    }

    /// Returns the named environment, or the default one.
    pub(crate) fn environment(&self, name: Option<&str>) -> anyhow::Result<Environment> {
        let name = match name {
            Some(name) => name,
            None => {
                &self.config.default_environment().context("no environment was named, and none is the default")?.text
            }
        };
        self.config.environment(name).map_err(wrong)
    }
}

/// A configuration that is wrong starts nothing, and its exit code says so.
fn wrong(errors: bake_config::ConfigErrors) -> anyhow::Error {
    Advice::usage(errors.to_string().trim_end().to_owned()).into()
}

/// The user's own folder of configuration, by the XDG base directory specification.
fn own_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("bake"))
}
