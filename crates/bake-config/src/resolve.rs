//! From a merged tree to environments: every name looked up, every plugin with its settings.

use std::collections::BTreeMap;

use crate::catalog::{Built, Catalog, PluginInfo, PluginKind};
use crate::environment::{Chosen, Environment, FinalizerSet};
use crate::error::{ConfigError, known};
use crate::finalizers::finalizer_set;
use crate::merge::{merge_tables, settle};
use crate::node::{Entry, Node, Table};
use crate::origin::{Origin, Text};
use crate::schema::{SLOTS, default_of, unknown_plugin};
use crate::settings::Settings;

/// Builds environments, noting what is wrong.
pub(crate) struct Resolver<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The merged tree.
    pub(crate) root: &'a Table,
    /// What is wrong whatever is chosen.
    pub(crate) errors: Vec<ConfigError>,
    /// What is wrong with the environment being built once somebody chooses it.
    pub(crate) when_chosen: Vec<ConfigError>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(catalog: &'a Catalog, root: &'a Table) -> Self {
        Self { catalog, root, errors: Vec::new(), when_chosen: Vec::new() }
    }

    /// Builds one environment. `None` if a part of it is missing or unknown.
    pub(crate) fn environment(&mut self, name: &str, table: &Table) -> Option<Environment> {
        let plugins = table.table("plugins");
        let mut slots = SLOTS.map(|kind| self.slot(kind, table, plugins)).into_iter();
        let finalizer_set = self.environment_set(table, plugins);
        // In the order of `SLOTS`.
        Some(Environment {
            name: name.to_owned(),
            origin: self.root.entry(name)?.key_origin.clone(),
            cloud: slots.next()??,
            blockdevice: slots.next()??,
            volume: slots.next()??,
            provisioner: slots.next()??,
            finalizer_set: finalizer_set?,
            vars: self.vars(table),
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
        let error = ConfigError::new(&self.root.entry(name)?.key_origin, message);
        let known = SLOTS.into_iter().filter(|kind| table.present(kind.key()).is_none()).map(|kind| {
            let names: Vec<&str> = self.catalog.plugins(kind).map(|info| info.name).collect();
            format!("{kind}: {}", names.join(", "))
        });
        let known: Vec<String> = known.chain(self.missing_set(table)).collect();
        Some(error.hint(format!("known: {}", known.join("; "))))
    }

    fn missing_set(&self, table: &Table) -> Option<String> {
        let names: Vec<&str> = self.set_names().collect();
        let lacks = table.present("finalizer_set").is_none() && !names.is_empty();
        lacks.then(|| format!("finalizer_set: {}", names.join(", ")))
    }

    fn set_names(&self) -> impl Iterator<Item = &'a str> {
        self.root.table("finalizer_sets").into_iter().flat_map(Table::keys)
    }

    fn slot(&mut self, kind: PluginKind, table: &Table, plugins: Option<&Table>) -> Option<Chosen> {
        let node = table.present(kind.key())?;
        let name = node.as_text()?;
        let Some(info) = self.catalog.get(kind, name) else {
            self.errors.push(unknown_plugin(kind, name, &node.origin, self.catalog));
            return None;
        };
        self.refuse_unbuilt(info, &node.origin);
        let settings = self.settings(info, plugins, Table::new());
        let settings = Settings::new(settings, node.origin.clone(), info.settings);
        Some(Chosen { plugin: name.to_owned(), settings, origin: node.origin.clone() })
    }

    fn environment_set(&mut self, table: &Table, plugins: Option<&Table>) -> Option<FinalizerSet> {
        let node = table.present("finalizer_set")?;
        if let Some(items) = node.as_list() {
            return finalizer_set(self, None, &node.origin, items, plugins);
        }
        let name = node.as_text()?;
        let sets = self.root.table("finalizer_sets");
        let Some(set) = sets.and_then(|sets| sets.present(name)) else {
            let error = ConfigError::new(&node.origin, format!("there is no finalizer set `{name}`"));
            let mut hint = known(name, self.set_names());
            if self.catalog.get(PluginKind::Finalizer, name).is_some() {
                hint = format!("`{name}` is a finalizer: write a list, `[{name}]`");
            }
            self.errors.push(error.hint(hint));
            return None;
        };
        finalizer_set(self, Some(name.to_owned()), &node.origin, set.as_list()?, plugins)
    }

    /// Checks the named sets that no environment may use.
    pub(crate) fn check_sets(&mut self) {
        for (name, entry) in self.root.table("finalizer_sets").into_iter().flat_map(Table::iter) {
            let items = entry.node.as_list().unwrap_or_default();
            finalizer_set(self, Some(name.to_owned()), &entry.key_origin, items, None);
        }
        self.when_chosen.clear();
    }

    /// The settings of a plugin, weakest to strongest: its defaults, those of all environments, of this one, of this use.
    pub(crate) fn settings(&self, info: &PluginInfo, plugins: Option<&Table>, own: Table) -> Table {
        let below = |plugins: Option<&Table>| {
            plugins.and_then(|plugins| plugins.table(info.kind.key())?.table(info.name)).cloned().unwrap_or_default()
        };
        // Each of them was checked against what the plugin takes, so a clash between two of them was already noted.
        let mut clashes = Vec::new();
        let layers = [below(self.root.table("plugins")), below(plugins), own];
        settle(layers.into_iter().fold(defaults(info), |weaker, table| merge_tables(weaker, table, &mut clashes)))
    }

    fn vars(&self, table: &Table) -> BTreeMap<String, Text> {
        let below = |table: &Table| table.table("vars").cloned().unwrap_or_default();
        let vars = settle(merge_tables(below(self.root), below(table), &mut Vec::new()));
        let text = |(name, entry): (&str, &Entry)| {
            let text = entry.node.as_text()?.to_owned();
            Some((name.to_owned(), Text { text, origin: entry.node.origin.clone() }))
        };
        vars.iter().filter_map(text).collect()
    }

    pub(crate) fn refuse_unbuilt(&mut self, info: &PluginInfo, origin: &Origin) {
        if let Built::No { how } = info.built {
            let message = format!("{} `{}` is not in this build of bake", info.kind, info.name);
            self.when_chosen.push(ConfigError::new(origin, message).hint(how));
        }
    }

    /// The number of retries; that it is a whole number was checked, that it is a sensible one is checked here.
    pub(crate) fn retry(&mut self, node: Option<&Node>) -> Option<u32> {
        let node = node?;
        let text = node.as_text()?;
        let number = text.parse::<u32>().ok();
        if number.is_none() && crate::de::is_integer(text) {
            let message = format!("`retry` is `{text}`; it takes a whole number from 0 to {}", u32::MAX);
            self.errors.push(ConfigError::new(&node.origin, message));
        }
        number
    }
}

fn defaults(info: &PluginInfo) -> Table {
    let entry = |node: Node| Entry { key_origin: Origin::built_in(), append: false, node };
    let defaults = info.settings.iter().filter_map(|setting| Some((setting.name.to_owned(), default_of(setting)?)));
    defaults.map(|(name, node)| (name, entry(node))).collect()
}
