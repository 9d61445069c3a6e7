//! From a merged tree to environments: every name looked up, every plugin with its settings.

use std::collections::BTreeMap;

use crate::catalog::{Built, Catalog, PluginInfo, PluginKind};
use crate::config::Trees;
use crate::environment::{Chosen, Environment, FinalizerSet, StepUse};
use crate::error::{ConfigError, known};
use crate::finalizers::finalizer_set;
use crate::merge::{merge_tables, settle};
use crate::node::{Entry, Node, Table, Value};
use crate::origin::{Origin, Text};
use crate::schema::{SLOTS, defaults, one_or_several, unknown_plugin};
use crate::settings::Settings;
use crate::values::{parse_duration, parse_retry};

/// Builds environments, noting what is wrong.
pub(crate) struct Resolver<'a> {
    pub(crate) catalog: &'a Catalog,
    trees: &'a Trees,
    /// What is wrong whatever is chosen.
    pub(crate) errors: Vec<ConfigError>,
    /// What is wrong with the environment being built once somebody chooses it.
    pub(crate) when_chosen: Vec<ConfigError>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(catalog: &'a Catalog, trees: &'a Trees) -> Self {
        Self { catalog, trees, errors: Vec::new(), when_chosen: Vec::new() }
    }

    /// Builds one environment. `None` if a part of it is missing or unknown.
    pub(crate) fn environment(&mut self, name: &str, tables: &Trees) -> Option<Environment> {
        let mut slots = SLOTS.map(|kind| self.slot(kind, tables)).into_iter();
        let finalizer_set = self.environment_set(tables);
        // In the order of `SLOTS`.
        Some(Environment {
            name: name.to_owned(),
            origin: self.trees.written.entry(name)?.key_origin.clone(),
            cloud: slots.next()??,
            blockdevice: slots.next()??,
            volume: slots.next()??,
            provisioner: slots.next()??,
            finalizer_set: finalizer_set?,
            steps: Self::steps(tables),
            vars: self.vars(tables),
        })
    }

    /// Names the keys that a complete environment has and this one lacks.
    pub(crate) fn missing(&self, name: &str, table: &Table) -> Option<ConfigError> {
        let keys = SLOTS.map(PluginKind::key).into_iter().chain(["finalizer_set"]);
        let missing: Vec<String> =
            keys.filter(|key| table.present(key).is_none()).map(|key| format!("`{key}`")).collect();
        if missing.is_empty() {
            return None;
        }
        let message = format!("environment `{name}` does not say its {}", missing.join(", "));
        let error = ConfigError::new(&self.trees.written.entry(name)?.key_origin, message);
        let known = SLOTS.into_iter().filter(|kind| table.present(kind.key()).is_none()).map(|kind| {
            let names: Vec<&str> = self.catalog.plugins(kind).map(|info| info.name).collect();
            format!("{kind}: {}", names.join(", "))
        });
        let known: Vec<String> = known.chain(self.missing_set(table)).collect();
        Some(error.hint(format!("known: {}", known.join("; "))))
    }

    fn missing_set(&self, table: &Table) -> Option<String> {
        let names: Vec<&str> = self.set_names().collect();
        let known = if names.is_empty() { "a list of finalizers".to_owned() } else { names.join(", ") };
        table.present("finalizer_set").is_none().then(|| format!("finalizer_set: {known}"))
    }

    fn set_names(&self) -> impl Iterator<Item = &'a str> {
        self.trees.written.table("finalizer_sets").into_iter().flat_map(Table::keys)
    }

    fn slot(&mut self, kind: PluginKind, tables: &Trees) -> Option<Chosen> {
        let node = tables.written.present(kind.key())?;
        let name = node.as_text()?;
        let Some(info) = self.catalog.get(kind, name) else {
            self.errors.push(unknown_plugin(kind, name, &node.origin, self.catalog));
            return None;
        };
        self.refuse_unbuilt(info, &node.origin);
        let settings = self.settings(info, tables, Table::new());
        let settings = Settings::new(settings, node.origin.clone(), info.settings);
        Some(Chosen { plugin: name.to_owned(), settings, origin: node.origin.clone() })
    }

    fn environment_set(&mut self, tables: &Trees) -> Option<FinalizerSet> {
        let node = tables.written.present("finalizer_set")?;
        if let Some(items) = node.as_list() {
            return finalizer_set(self, None, &node.origin, items, tables);
        }
        let name = node.as_text()?;
        let sets = self.trees.written.table("finalizer_sets");
        let Some(set) = sets.and_then(|sets| sets.present(name)) else {
            let error = ConfigError::new(&node.origin, format!("there is no finalizer set `{name}`"));
            let mut hint = known(name, self.set_names());
            if self.catalog.get(PluginKind::Finalizer, name).is_some() {
                hint = format!("`{name}` is a finalizer: write a list, `[{name}]`");
            }
            self.errors.push(error.hint(hint));
            return None;
        };
        finalizer_set(self, Some(name.to_owned()), &node.origin, set.as_list()?, tables)
    }

    /// Checks the named sets that no environment may use.
    pub(crate) fn check_sets(&mut self) {
        for (name, entry) in self.trees.written.table("finalizer_sets").into_iter().flat_map(Table::iter) {
            let items = entry.node.as_list().unwrap_or_default();
            finalizer_set(self, Some(name.to_owned()), &entry.key_origin, items, &Trees::default());
        }
        self.when_chosen.clear();
    }

    /// The settings of a plugin, weakest to strongest: its defaults; what is written for all environments, for this one, and for
    /// this use; what is assigned for all environments, and for this one.
    pub(crate) fn settings(&self, info: &PluginInfo, tables: &Trees, own: Table) -> Table {
        let below = |tree: &Table| {
            let plugins = tree.table("plugins");
            plugins.and_then(|plugins| plugins.table(info.kind.key())?.table(info.name)).cloned().unwrap_or_default()
        };
        let written = [below(&self.trees.written), below(&tables.written), own];
        let assigned = [below(&self.trees.assigned), below(&tables.assigned)];
        lay(std::iter::once(defaults(info)).chain(written).chain(assigned))
    }

    fn steps(tables: &Trees) -> Vec<StepUse> {
        let steps = settle(tables.written.table("steps").cloned().unwrap_or_default());
        let step = |(path, entry): (String, Entry)| {
            let Value::Table(written) = entry.node.value else { return None };
            Some(StepUse {
                path: Text { text: path, origin: entry.key_origin },
                timeout: written.get("timeout").and_then(Node::as_text).and_then(parse_duration),
                retry: written.get("retry").and_then(Node::as_text).and_then(parse_retry),
                after: written.get("after").and_then(one_or_several).unwrap_or_default(),
                written,
            })
        };
        steps.into_iter().filter_map(step).collect()
    }

    fn vars(&self, tables: &Trees) -> BTreeMap<String, Text> {
        let below = |tree: &Table| tree.table("vars").cloned().unwrap_or_default();
        let vars = lay([&self.trees.written, &tables.written, &self.trees.assigned, &tables.assigned].map(below));
        let text = |(name, entry): (&str, &Entry)| Some((name.to_owned(), entry.node.to_text()?));
        vars.iter().filter_map(text).collect()
    }

    pub(crate) fn refuse_unbuilt(&mut self, info: &PluginInfo, origin: &Origin) {
        if let Built::No { how } = info.built {
            let message = format!("{} `{}` is not in this build of bake", info.kind, info.name);
            self.when_chosen.push(ConfigError::new(origin, message).hint(how));
        }
    }
}

/// Lays tables over each other, weakest first. Each was checked against what it takes, so a clash of two of them was already noted.
fn lay(tables: impl IntoIterator<Item = Table>) -> Table {
    let mut clashes = Vec::new();
    settle(tables.into_iter().fold(Table::new(), |weaker, table| merge_tables(weaker, table, &mut clashes)))
}
