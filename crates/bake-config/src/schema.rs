//! What may be written where. Checks shapes and keys of a merged tree; names that refer to something are looked up in `resolve`.

use crate::catalog::{Catalog, FINALIZER_KEYS, PluginInfo, PluginKind, Setting, Takes};
use crate::de::is_integer;
use crate::error::{ConfigError, closest, known};
use crate::node::{Node, Table, Value};
use crate::origin::{Origin, Text};
use crate::values::{ByteSize, parse_duration};
use crate::yaml;

/// Top-level keys that are no environments.
pub(crate) const RESERVED: [&str; 5] = ["default", "finalizer_sets", "plugins", "vars", "include"];

/// Places of the machine, at the top level too: the journal's folder, the caches, locks and sockets.
pub(crate) const SETTINGS: [&str; 3] = ["state_dir", "cache_dir", "run_dir"];

/// The slots that hold one plugin.
pub(crate) const SLOTS: [PluginKind; 4] =
    [PluginKind::Cloud, PluginKind::BlockDevice, PluginKind::Volume, PluginKind::Provisioner];

/// The keys of an environment.
const ENVIRONMENT_KEYS: [&str; 8] =
    ["extends", "cloud", "blockdevice", "volume", "provisioner", "finalizer_set", "plugins", "vars"];

/// What the keys of every finalizer take; the settings of its plugin come on top.
const FINALIZER_SETTINGS: [Setting; 6] = [
    finalizer_setting("name", Takes::Text),
    finalizer_setting("optional", Takes::Boolean),
    finalizer_setting("when", Takes::Text),
    finalizer_setting("after", Takes::List(&Takes::Text)),
    finalizer_setting("timeout", Takes::Duration),
    finalizer_setting("retry", Takes::Integer),
];

const fn finalizer_setting(name: &'static str, takes: Takes) -> Setting {
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
    let text = |node: &Node| Some(Text { text: node.as_text()?.to_owned(), origin: node.origin.clone() });
    match &node.value {
        Value::List(items) => items.iter().map(text).collect(),
        Value::Scalar { .. } | Value::Table(_) | Value::Null => text(node).map(|text| vec![text]),
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

/// The default of a setting as a node.
pub(crate) fn default_of(setting: &Setting) -> Option<Node> {
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

/// Checks the shapes and keys of everything.
pub(crate) fn check(root: &Table, catalog: &Catalog, errors: &mut Vec<ConfigError>) {
    let mut checker = Checker { root, catalog, errors };
    for (key, entry) in root.iter() {
        match key {
            "default" => checker.value(Takes::Text, &entry.node, key),
            "vars" => checker.value(Takes::TextMap, &entry.node, key),
            "plugins" => checker.plugins(&entry.node),
            "finalizer_sets" => checker.finalizer_sets(&entry.node),
            "include" => checker.error(&entry.key_origin, "`include` may only be in a file"),
            _ if SETTINGS.contains(&key) => checker.value(Takes::Text, &entry.node, key),
            _ => checker.environment(key, &entry.key_origin, &entry.node),
        }
    }
}

/// Checks the settings of one plugin.
pub(crate) fn check_settings(info: &PluginInfo, table: &Table, site: Site, errors: &mut Vec<ConfigError>) {
    let owner = format!("{} `{}`", info.kind, info.name);
    for (key, entry) in table.iter() {
        let only_in_a_set = site == Site::Plugins && ["name", "after"].contains(&key);
        match settings(info).find(|setting| setting.name == key) {
            Some(_) if info.kind == PluginKind::Finalizer && only_in_a_set => {
                let error =
                    ConfigError::new(&entry.key_origin, format!("`{key}` belongs to one place in a finalizer set"));
                errors.push(error.hint(format!("write it there: `- {}: {{ {key}: … }}`", info.name)));
            }
            Some(Setting { name: "after", .. }) if one_or_several(&entry.node).is_some() => {}
            Some(setting) => check_value(setting.takes, &entry.node, key, errors),
            None => {
                let error = ConfigError::new(&entry.key_origin, format!("{owner} takes no `{key}`"));
                let allowed = |name: &&str| site == Site::FinalizerSet || !["name", "after"].contains(name);
                errors.push(error.hint(known(key, settings(info).map(|setting| setting.name).filter(allowed))));
            }
        }
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
    root: &'a Table,
    catalog: &'a Catalog,
    errors: &'a mut Vec<ConfigError>,
}

impl Checker<'_> {
    fn error(&mut self, origin: &Origin, message: impl Into<String>) {
        self.errors.push(ConfigError::new(origin, message));
    }

    fn value(&mut self, takes: Takes, node: &Node, key: &str) {
        check_value(takes, node, key, self.errors);
    }

    /// The table that `key` takes. Nothing at all is fine; anything else is an error.
    fn table<'n>(&mut self, node: &'n Node, key: &str) -> Option<&'n Table> {
        if node.as_table().is_none() && node.value != Value::Null {
            self.error(&node.origin, format!("`{key}` takes a table, {} is written", node.what()));
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
                self.error(&entry.node.origin, message);
            }
        }
    }

    fn environment(&mut self, name: &str, key_origin: &Origin, node: &Node) {
        let Some(table) = node.as_table().filter(|table| !is_misspelt(name, table)) else {
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
        let mut names = environments(self.root).map(|(name, _)| name);
        if !names.any(|other| other == name) {
            let error = ConfigError::new(key_origin, format!("there is no environment `{name}` in any file"));
            let names = environments(self.root).map(|(name, _)| name);
            self.errors.push(error.hint(known(name, names)));
            return;
        }
        for (key, entry) in table.iter() {
            match key {
                "extends" => {
                    if one_or_several(&entry.node).is_none() && entry.node.value != Value::Null {
                        self.error(&entry.node.origin, "`extends` takes an environment or a list of environments");
                    }
                }
                "plugins" => self.plugins(&entry.node),
                "vars" => self.value(Takes::TextMap, &entry.node, key),
                "finalizer_set" => self.finalizer_set(&entry.node),
                _ if ENVIRONMENT_KEYS.contains(&key) => self.slot(key, &entry.node),
                _ => self.unknown_environment_key(name, key, &entry.key_origin),
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

/// Checks one value against what its setting takes. `Null` is always fine: it takes the value away.
pub(crate) fn check_value(takes: Takes, node: &Node, key: &str, errors: &mut Vec<ConfigError>) {
    match (takes, &node.value) {
        (_, Value::Null) => {}
        (Takes::List(item), Value::List(items)) => {
            for node in items {
                check_item(*item, node, key, errors);
            }
        }
        (Takes::TextMap, Value::Table(table)) => check_map(Takes::Text, table, key, errors),
        (Takes::Map(value), Value::Table(table)) => check_map(*value, table, key, errors),
        (_, Value::Scalar { text, .. }) => {
            if let Err(hint) = check_text(takes, text) {
                let error =
                    ConfigError::new(&node.origin, format!("`{key}` is {}; it takes {takes}", quote(takes, text)));
                errors.push(ConfigError { hint, ..error });
            }
        }
        (_, Value::List(_) | Value::Table(_)) => {
            errors.push(ConfigError::new(&node.origin, format!("`{key}` is {}; it takes {takes}", node.what())));
        }
    }
}

/// What was written, unless it may be a secret in the wrong place.
fn quote(takes: Takes, text: &str) -> String {
    match takes {
        Takes::List(inner) | Takes::Map(inner) => quote(*inner, text),
        Takes::Secret => "a text".to_owned(),
        _ => format!("`{text}`"),
    }
}

fn check_item(takes: Takes, node: &Node, key: &str, errors: &mut Vec<ConfigError>) {
    match node.value {
        Value::Null => errors.push(ConfigError::new(&node.origin, format!("an item of `{key}` is empty"))),
        Value::Scalar { .. } | Value::List(_) | Value::Table(_) => check_value(takes, node, key, errors),
    }
}

fn check_map(takes: Takes, table: &Table, key: &str, errors: &mut Vec<ConfigError>) {
    for (name, entry) in table.iter() {
        check_value(takes, &entry.node, &format!("{key}.{name}"), errors);
    }
}

/// Whether a text is what the setting takes; if not, with a hint where there is one.
fn check_text(takes: Takes, text: &str) -> Result<(), Option<String>> {
    let (fits, hint) = match takes {
        Takes::Text | Takes::Secret => (true, None),
        Takes::Boolean => (matches!(text, "true" | "false"), boolean_hint(text)),
        Takes::Integer => (is_integer(text), integer_hint(text)),
        Takes::Duration => (parse_duration(text).is_some(), unit_hint(text, ["s", "m", "h"])),
        Takes::Size => (text.parse::<ByteSize>().is_ok(), unit_hint(text, ["MiB", "GiB", "GB"])),
        Takes::AccountId => (is_account_id(text), account_hint(text)),
        Takes::OneOf(words) => {
            (words.contains(&text), closest(text, words).map(|word| format!("did you mean `{word}`?")))
        }
        Takes::List(_) => (false, Some(format!("write a list: `[{}]`", quote(takes, text).trim_matches('`')))),
        Takes::TextMap | Takes::Map(_) => (false, Some("write a table: `{ KEY: TEXT }`".to_owned())),
    };
    if fits { Ok(()) } else { Err(hint) }
}

fn boolean_hint(text: &str) -> Option<String> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "y" | "on" | "1" => Some("did you mean `true`?".to_owned()),
        "false" | "no" | "n" | "off" | "0" => Some("did you mean `false`?".to_owned()),
        _ => None,
    }
}

fn integer_hint(text: &str) -> Option<String> {
    let digits = text.trim_start_matches('0');
    let leading_zeros = digits.len() < text.len() && is_integer(digits);
    leading_zeros.then(|| format!("write it without the leading zeros: `{digits}`"))
}

fn unit_hint(text: &str, units: [&str; 3]) -> Option<String> {
    let number = text.trim();
    let bare = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    bare.then(|| format!("say the unit: {}", units.map(|unit| format!("`{number}{unit}`")).join(", ")))
}

fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn account_hint(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    match digits.len() {
        12 if is_account_id(&digits) => Some(format!("did you mean `{digits}`?")),
        1..=11 if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(format!("was a leading zero lost? `{digits:0>12}`"))
        }
        _ => None,
    }
}

/// Whether a plugin's own settings make sense, for the catalog: every default must be what the setting takes.
pub(crate) fn check_defaults(info: &PluginInfo) -> Result<(), String> {
    for setting in info.settings.iter().filter(|setting| setting.default.is_some()) {
        let mut errors = Vec::new();
        match default_of(setting) {
            Some(node) => check_value(setting.takes, &node, setting.name, &mut errors),
            None => return Err(format!("the default of `{}` is not YAML", setting.name)),
        }
        if let Some(error) = errors.first() {
            return Err(error.to_string());
        }
    }
    Ok(())
}

/// The keys that [`FINALIZER_SETTINGS`] describes and the names the catalog keeps free are the same.
const _: () = assert!(FINALIZER_SETTINGS.len() == FINALIZER_KEYS.len());
