//! What may be written where. Checks shapes and keys of a merged tree; names that refer to something are looked up in `resolve`.

use crate::catalog::{Catalog, FINALIZER_KEYS, PLACE_KEYS, PluginInfo, PluginKind, Setting, Takes};
use crate::config::Trees;
use crate::de::is_integer;
use crate::error::{ConfigError, closest, known};
use crate::node::{Entry, Laid, Node, Table, Value};
use crate::origin::{Origin, Text};
use crate::takes::check_value;
use crate::values::parse_retry;
use crate::yaml;

/// Top-level keys that are no environments.
pub(crate) const RESERVED: [&str; 5] = ["default", "finalizer_sets", "plugins", "vars", "include"];

/// Places of the machine, at the top level too: the journal's folder, the caches, locks and sockets.
pub(crate) const SETTINGS: [&str; 4] = ["state_dir", "cache_dir", "run_dir", "host_root"];

/// The slots that hold one plugin.
pub(crate) const SLOTS: [PluginKind; 4] =
    [PluginKind::Cloud, PluginKind::BlockDevice, PluginKind::Volume, PluginKind::Provisioner];

/// The keys of an environment.
const ENVIRONMENT_KEYS: [&str; 9] =
    ["extends", "cloud", "blockdevice", "volume", "provisioner", "finalizer_set", "plugins", "steps", "vars"];

/// What the keys of every finalizer take; the settings of its plugin come on top.
const FINALIZER_SETTINGS: [Setting; 7] = [
    common_setting("name", Takes::Text),
    common_setting("optional", Takes::Boolean),
    common_setting("when", Takes::Text),
    common_setting("else", Takes::List(&Takes::Text)),
    common_setting("after", Takes::List(&Takes::Text)),
    common_setting("timeout", Takes::Duration),
    common_setting("retry", Takes::Integer),
];

/// What may be laid on a step.
const STEP_SETTINGS: [Setting; 3] = [
    common_setting("timeout", Takes::Duration),
    common_setting("retry", Takes::Integer),
    common_setting("after", Takes::List(&Takes::Text)),
];

const fn common_setting(name: &'static str, takes: Takes) -> Setting {
    Setting { name, takes, default: None, summary: "" }
}

/// Where the settings of a plugin are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// Below `plugins`: for every use.
    Plugins,
    /// In a finalizer set: for this use, which may also have a name and an order.
    FinalizerSet,
}

/// The environments of a tree: those that a file has. Variables and `--set` change environments; a misspelt name in one of them
/// must not make another.
pub(crate) fn environments(root: &Table) -> impl Iterator<Item = (&str, &Table)> {
    let written = root.iter().filter(|(_, entry)| entry.key_origin.line.is_some());
    let tables = written.filter_map(|(key, entry)| Some((key, entry.node.as_table()?)));
    tables.filter(|(key, table)| is_environment(key) && !is_misspelt(key, table))
}

fn is_environment(key: &str) -> bool {
    !RESERVED.contains(&key) && !SETTINGS.contains(&key)
}

/// Whether a table is called much like one of our keys and chooses nothing: `plugin:`, `finalizer_set:`.
fn is_misspelt(name: &str, table: &Table) -> bool {
    let chooses = SLOTS.iter().any(|kind| table.get(kind.key()).is_some_and(|node| node.as_text().is_some()));
    let extends = table.get("extends").is_some() || table.get("finalizer_set").is_some();
    !chooses && !extends && closest(name, &[&RESERVED[..], &SETTINGS[..]].concat()).is_some()
}

/// A text or a list of texts.
pub(crate) fn one_or_several(node: &Node) -> Option<Vec<Text>> {
    match &node.value {
        Value::List(items) => items.iter().map(Node::to_text).collect(),
        Value::Scalar { .. } | Value::Table(_) | Value::Null => node.to_text().map(|text| vec![text]),
    }
}

/// Takes the keys of a variable's name from capitals to what is written in a file, as far as they are words of `bake`.
/// What people named themselves stays as it is.
pub(crate) fn fold_case(mut segments: Vec<String>, catalog: &Catalog) -> Vec<String> {
    let top: Vec<&str> = RESERVED.into_iter().chain(SETTINGS).collect();
    fold(segments.get_mut(0), &top);
    let below = match segments.first().map(String::as_str) {
        Some("plugins") => 1,
        Some(key) if is_environment(key) => {
            fold(segments.get_mut(1), &ENVIRONMENT_KEYS);
            if segments.get(1).is_none_or(|key| key != "plugins") {
                return segments;
            }
            2
        }
        _ => return segments,
    };
    fold(segments.get_mut(below), &PluginKind::ALL.map(PluginKind::key));
    let kind = PluginKind::ALL.into_iter().find(|kind| segments.get(below).is_some_and(|key| key == kind.key()));
    let Some(kind) = kind else { return segments };
    fold(segments.get_mut(below + 1), &catalog.plugins(kind).map(|info| info.name).collect::<Vec<_>>());
    if let Some(info) = segments.get(below + 1).and_then(|name| catalog.get(kind, name)) {
        fold(segments.get_mut(below + 2), &settings(info).map(|setting| setting.name).collect::<Vec<_>>());
    }
    segments
}

fn fold(segment: Option<&mut String>, words: &[&str]) {
    if let Some(segment) = segment
        && let Some(word) = words.iter().find(|word| word.to_uppercase() == *segment)
    {
        *segment = (*word).to_owned();
    }
}

/// What holds for a plugin when nobody writes anything: the defaults of its settings, and what is usual for it.
pub(crate) fn defaults(info: &PluginInfo) -> Table {
    let settings = info.settings.iter().filter_map(|setting| Some((setting.name, default_of(setting)?)));
    let usual = info.usual.iter().map(|(key, text)| (*key, Node::text(*text, Origin::built_in())));
    let entry = |node: Node| Entry { key_origin: Origin::built_in(), laid: Laid::Over, node };
    settings.chain(usual).map(|(name, node)| (name.to_owned(), entry(node))).collect()
}

/// The default of a setting as a node.
fn default_of(setting: &Setting) -> Option<Node> {
    let text = setting.default?;
    match setting.takes {
        Takes::List(_) | Takes::TextMap | Takes::Map(_) => yaml::parse_value(&Origin::built_in(), text).node,
        _ => Some(Node::text(text, Origin::built_in())),
    }
}

/// All settings of a plugin, those of every finalizer included.
fn settings(info: &PluginInfo) -> impl Iterator<Item = &Setting> {
    let common: &[Setting] = if info.kind == PluginKind::Finalizer { &FINALIZER_SETTINGS } else { &[] };
    info.settings.iter().chain(common)
}

/// Whether a path leads to what tunes plugins and templates, for all environments or for one.
pub(crate) fn is_tuning(path: &[String]) -> bool {
    let tunes = |key: Option<&String>| key.is_some_and(|key| ["plugins", "vars"].contains(&key.as_str()));
    tunes(path.first()) || path.first().is_some_and(|key| is_environment(key)) && tunes(path.get(1))
}

/// Checks the shapes and keys of everything.
pub(crate) fn check(trees: &Trees, catalog: &Catalog, errors: &mut Vec<ConfigError>) {
    let mut checker = Checker { root: &trees.written, catalog, errors };
    for (key, entry) in trees.written.iter().chain(trees.assigned.iter()) {
        match key {
            "default" => checker.value(Takes::Text, &entry.node, key),
            "vars" => checker.value(Takes::TextMap, &entry.node, key),
            "plugins" => checker.plugins(&entry.node),
            "finalizer_sets" => checker.finalizer_sets(&entry.node),
            "include" => {
                let hint = "write it in a file, or name another file by `--config`";
                checker.error(&entry.key_origin, "`include` may only be in a file", hint);
            }
            _ if SETTINGS.contains(&key) => checker.value(Takes::Text, &entry.node, key),
            _ => checker.environment(key, &entry.key_origin, &entry.node),
        }
    }
}

/// Checks the settings of one plugin.
pub(crate) fn check_settings(info: &PluginInfo, table: &Table, site: Site, errors: &mut Vec<ConfigError>) {
    let owner = format!("{} `{}`", info.kind, info.name);
    let is_finalizer = info.kind == PluginKind::Finalizer;
    for (key, entry) in table.iter() {
        match settings(info).find(|setting| setting.name == key) {
            Some(_) if is_finalizer && site == Site::Plugins && PLACE_KEYS.contains(&key) => {
                let error =
                    ConfigError::new(&entry.key_origin, format!("`{key}` belongs to one place in a finalizer set"));
                errors.push(error.hint(format!("write it there: `- {}: {{ {key}: … }}`", info.name)));
            }
            Some(setting) if is_finalizer => check_common(setting, &entry.node, errors),
            Some(setting) => check_value(setting.takes, &entry.node, key, errors),
            None => {
                let error = ConfigError::new(&entry.key_origin, format!("{owner} takes no `{key}`"));
                let allowed = |name: &&str| site == Site::FinalizerSet || !PLACE_KEYS.contains(name);
                errors.push(error.hint(known(key, settings(info).map(|setting| setting.name).filter(allowed))));
            }
        }
    }
}

/// Checks a setting of a finalizer or a step, where some names say more than what they take.
fn check_common(setting: &Setting, node: &Node, errors: &mut Vec<ConfigError>) {
    match (setting.name, node.as_text()) {
        // One name is as good as a list of them.
        ("after", Some(_)) => {}
        // What is in it is checked where the set is built.
        ("else", _) => {}
        ("retry", Some(text)) if is_integer(text) && parse_retry(text).is_none() => {
            let message = format!("`retry` is `{text}`; it takes a whole number from 0 to {}", u32::MAX);
            errors.push(ConfigError::new(&node.origin, message).hint("write how often it is tried again, such as `2`"));
        }
        (name, _) => check_value(setting.takes, node, name, errors),
    }
}

/// Says that a plugin does not exist.
pub(crate) fn unknown_plugin(kind: PluginKind, name: &str, origin: &Origin, catalog: &Catalog) -> ConfigError {
    let error = ConfigError::new(origin, format!("there is no {kind} `{name}`"));
    let mut hint = known(name, catalog.plugins(kind).map(|info| info.name));
    let elsewhere: Vec<_> = catalog.iter().filter(|info| info.name == name).map(|info| info.kind.key()).collect();
    if !elsewhere.is_empty() {
        hint = format!("{hint}; `{name}` is a {}", elsewhere.join(" and a "));
    }
    error.hint(hint)
}

struct Checker<'a> {
    /// What is written: variables and flags make no environments.
    root: &'a Table,
    catalog: &'a Catalog,
    errors: &'a mut Vec<ConfigError>,
}

impl Checker<'_> {
    fn error(&mut self, origin: &Origin, message: impl Into<String>, hint: impl Into<String>) {
        self.errors.push(ConfigError::new(origin, message).hint(hint));
    }

    fn value(&mut self, takes: Takes, node: &Node, key: &str) {
        check_value(takes, node, key, self.errors);
    }

    /// The table that `key` takes. Nothing at all is fine; anything else is an error.
    fn table<'n>(&mut self, node: &'n Node, key: &str) -> Option<&'n Table> {
        if node.as_table().is_none() && node.value != Value::Null {
            let message = format!("`{key}` takes a table, {} is written", node.what());
            self.error(&node.origin, message, format!("write a table: `{key}: {{ KEY: … }}`"));
        }
        node.as_table()
    }

    fn plugins(&mut self, node: &Node) {
        let catalog = self.catalog;
        for (key, entry) in self.table(node, "plugins").into_iter().flat_map(Table::iter) {
            let Some(kind) = PluginKind::ALL.into_iter().find(|kind| kind.key() == key) else {
                let error = ConfigError::new(&entry.key_origin, format!("`{key}` is not a kind of plugin"));
                self.errors.push(error.hint(known(key, PluginKind::ALL.map(PluginKind::key))));
                continue;
            };
            for (name, plugin) in self.table(&entry.node, key).into_iter().flat_map(Table::iter) {
                match catalog.get(kind, name) {
                    Some(info) => {
                        if let Some(table) = self.table(&plugin.node, name) {
                            check_settings(info, table, Site::Plugins, self.errors);
                        }
                    }
                    None => self.errors.push(unknown_plugin(kind, name, &plugin.key_origin, catalog)),
                }
            }
        }
    }

    /// What is in the lists is checked where sets are built.
    fn finalizer_sets(&mut self, node: &Node) {
        for (name, entry) in self.table(node, "finalizer_sets").into_iter().flat_map(Table::iter) {
            if entry.node.as_list().is_none() && entry.node.value != Value::Null {
                let message = format!("the finalizer set `{name}` is a list, {} is written", entry.node.what());
                self.error(&entry.node.origin, message, format!("write a list: `{name}: [FINALIZER, …]`"));
            }
        }
    }

    fn environment(&mut self, name: &str, key_origin: &Origin, node: &Node) {
        let exists = environments(self.root).any(|(other, _)| other == name);
        let Some(table) = node.as_table().filter(|table| exists || !is_misspelt(name, table)) else {
            if node.value == Value::Null {
                let error = ConfigError::new(key_origin, format!("environment `{name}` is empty"));
                self.errors
                    .push(error.hint("write its `cloud`, `blockdevice`, `volume`, `provisioner` and `finalizer_set`"));
                return;
            }
            let error = ConfigError::new(key_origin, format!("`{name}` is neither a known key nor an environment"));
            let words = known(name, RESERVED.into_iter().chain(SETTINGS));
            self.errors.push(error.hint(format!("{words}; an environment is a table")));
            return;
        };
        if !exists {
            let error = ConfigError::new(key_origin, format!("there is no environment `{name}` in any file"));
            let names = environments(self.root).map(|(name, _)| name);
            self.errors.push(error.hint(known(name, names)));
            return;
        }
        for (key, entry) in table.iter() {
            match key {
                "extends" => {
                    if one_or_several(&entry.node).is_none() && entry.node.value != Value::Null {
                        let hint = "write `extends: NAME` or `extends: [NAME, NAME]`";
                        self.error(
                            &entry.node.origin,
                            "`extends` takes an environment or a list of environments",
                            hint,
                        );
                    }
                }
                "plugins" => self.plugins(&entry.node),
                "vars" => self.value(Takes::TextMap, &entry.node, key),
                "finalizer_set" => self.finalizer_set(&entry.node),
                "steps" => self.steps(&entry.node),
                _ if ENVIRONMENT_KEYS.contains(&key) => self.slot(key, &entry.node),
                _ => self.unknown_environment_key(name, key, &entry.key_origin),
            }
        }
    }

    /// Which steps there are is known to the plan only.
    fn steps(&mut self, node: &Node) {
        for (path, entry) in self.table(node, "steps").into_iter().flat_map(Table::iter) {
            if path.is_empty() {
                let error = ConfigError::new(&entry.key_origin, "the path of a step is empty");
                self.errors.push(
                    error.hint(
                        "write a step as the plan shows it, `volume/provision`, or the start of several, `volume`",
                    ),
                );
            }
            for (key, entry) in self.table(&entry.node, path).into_iter().flat_map(Table::iter) {
                match STEP_SETTINGS.iter().find(|setting| setting.name == key) {
                    Some(setting) => check_common(setting, &entry.node, self.errors),
                    None => {
                        let error = ConfigError::new(&entry.key_origin, format!("a step takes no `{key}`"));
                        self.errors.push(error.hint(known(key, STEP_SETTINGS.iter().map(|setting| setting.name))));
                    }
                }
            }
        }
    }

    fn unknown_environment_key(&mut self, environment: &str, key: &str, origin: &Origin) {
        let error = ConfigError::new(origin, format!("unknown key `{key}` in environment `{environment}`"));
        self.errors.push(error.hint(known(key, ENVIRONMENT_KEYS)));
    }

    fn slot(&mut self, key: &str, node: &Node) {
        if node.as_text().is_none() && node.value != Value::Null {
            let error = ConfigError::new(
                &node.origin,
                format!("`{key}` takes the name of a plugin, {} is written", node.what()),
            );
            self.errors
                .push(error.hint(format!("its settings go below `plugins`: `plugins: {{ {key}: {{ NAME: … }} }}`")));
        }
    }

    fn finalizer_set(&mut self, node: &Node) {
        if node.as_table().is_some() {
            let error = ConfigError::new(&node.origin, "`finalizer_set` takes a name or a list, a table is written");
            self.errors.push(error.hint("write `[FINALIZER, …]`, or the name of one of the `finalizer_sets`"));
        }
    }
}

/// Whether what a plugin says itself makes sense, for the catalog: its settings must take every default and usual value.
pub(crate) fn check_defaults(info: &PluginInfo) -> Result<(), String> {
    let unreadable = |setting: &&Setting| setting.default.is_some() && default_of(setting).is_none();
    if let Some(setting) = info.settings.iter().find(unreadable) {
        return Err(format!("the default of `{}` is not YAML", setting.name));
    }
    let mut errors = Vec::new();
    check_settings(info, &defaults(info), Site::Plugins, &mut errors);
    match errors.first() {
        Some(error) => Err(error.to_string()),
        None => Ok(()),
    }
}

/// The keys that [`FINALIZER_SETTINGS`] describes and the names the catalog keeps free are the same.
const _: () = assert!(FINALIZER_SETTINGS.len() == FINALIZER_KEYS.len());
