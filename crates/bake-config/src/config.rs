//! The configuration as a whole.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::catalog::Catalog;
use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors, known};
use crate::extends::extend;
use crate::node::{Node, Table};
use crate::origin::{Origin, Text};
use crate::resolve::Resolver;
use crate::schema::{self, SETTINGS};

/// Everything the layers say, checked.
#[derive(Clone, Debug)]
pub struct Config {
    environments: IndexMap<String, Candidate>,
    default: Option<Text>,
    settings: BTreeMap<String, Text>,
}

/// What the layers say, merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trees {
    /// Everything but what is in `assigned`.
    pub(crate) written: Table,
    /// The `plugins` and `vars`, of all environments or of one, that variables and flags set. Laid over what is written wherever it
    /// is written: a flag that some file may overrule would be no flag.
    pub(crate) assigned: Table,
}

/// An environment that may be chosen.
#[derive(Clone, Debug)]
struct Candidate {
    /// `None` if it is incomplete: a base for others.
    environment: Option<Environment>,
    /// What is wrong once it is chosen: a plugin that is not built, a missing slot of a base.
    when_chosen: Vec<ConfigError>,
}

impl Config {
    pub(crate) fn new(trees: &Trees, catalog: &Catalog, mut errors: Vec<ConfigError>) -> Result<Self, ConfigErrors> {
        schema::check(trees, catalog, &mut errors);
        let extended = extend(trees, &mut errors);
        let mut resolver = Resolver::new(catalog, trees);
        resolver.check_sets();
        let mut environments = IndexMap::new();
        for (name, tables) in &extended.environments {
            let environment = resolver.environment(name, tables);
            let mut when_chosen = std::mem::take(&mut resolver.when_chosen);
            match resolver.missing(name, &tables.written) {
                Some(missing) if extended.bases.contains(name) => when_chosen.push(missing),
                _ if extended.broken.contains(name) => {}
                missing => resolver.errors.extend(missing),
            }
            environments.insert(name.clone(), Candidate { environment, when_chosen });
        }
        errors.append(&mut resolver.errors);
        let text = |key: &str| trees.written.get(key).and_then(Node::to_text);
        let default = text("default");
        errors.extend(default.as_ref().and_then(|name| unknown_default(name, &environments)));
        let settings = SETTINGS.into_iter().filter_map(|key| Some((key.to_owned(), text(key)?))).collect();
        ConfigErrors::check(Self { environments, default, settings }, errors)
    }

    /// The names of all environments, in the order of the files.
    pub fn environments(&self) -> impl Iterator<Item = &str> {
        self.environments.keys().map(String::as_str)
    }

    /// The environment that is used when none is named.
    pub fn default_environment(&self) -> Option<&Text> {
        self.default.as_ref()
    }

    /// The environment of that name.
    ///
    /// # Errors
    ///
    /// If there is none, if it is only a base for others, or if a plugin of it is not in this build.
    pub fn environment(&self, name: &str) -> Result<Environment, ConfigErrors> {
        let Some(candidate) = self.environments.get(name) else {
            let error = ConfigError::new(&Origin::named("--env"), format!("there is no environment `{name}`"));
            return Err(error.hint(known(name, self.environments())).into());
        };
        match &candidate.environment {
            Some(environment) => ConfigErrors::check(environment.clone(), candidate.when_chosen.clone()),
            None => Err(ConfigErrors::check((), candidate.when_chosen.clone())
                .expect_err("loading fails for an environment that cannot be built and says nothing about it")),
        }
    }

    /// A place of the machine: `state_dir`, `cache_dir`, `run_dir` or `host_root`, if a layer says it.
    pub fn setting(&self, name: &str) -> Option<&Text> {
        self.settings.get(name)
    }
}

fn unknown_default(name: &Text, environments: &IndexMap<String, Candidate>) -> Option<ConfigError> {
    if environments.contains_key(&name.text) {
        return None;
    }
    let error = ConfigError::new(&name.origin, format!("`default`: there is no environment `{}`", name.text));
    Some(error.hint(known(&name.text, environments.keys().map(String::as_str))))
}
