//! What has no counterpart: told, so that nothing gets lost in silence.

use std::sync::Arc;

use bake_config::{Entry, Node, Origin, Table, Value};
use indexmap::{IndexMap, IndexSet};

use crate::finalizers::Store;
use crate::report::Report;
use crate::site::{PluginName, Site};

/// Tells of everything that the other parts of the import do not read.
pub(crate) fn leave(site: &Site, report: &mut Report) {
    for (plugin, table) in &site.written.plugins {
        match site.shipped_plugin(plugin) {
            Some(shipped) => {
                let read = read_elsewhere(plugin);
                let left = table.iter().filter(|(key, _)| !read.contains(key));
                Leftovers::of(&|path| plugin_outcome(plugin, path)).tell(left, shipped, report);
            }
            None => leave_plugin(plugin, table, report),
        }
    }
    Leftovers::of(&main_outcome).tell(site.written.main.iter(), site.shipped_main(), report);
}

/// The keys of a plugin that become settings of bake's.
fn read_elsewhere((kind, name): &PluginName) -> Vec<&'static str> {
    match (kind.as_str(), name.as_str()) {
        ("cloud", "ec2") => crate::cloud::KEYS.to_vec(),
        ("finalizer", name) => {
            Store::ALL.into_iter().filter(|store| store.plugin() == name).flat_map(Store::keys).collect()
        }
        _ => Vec::new(),
    }
}

/// Tells of the file of a plugin that bake does not have, or that only Aminator needs.
fn leave_plugin((kind, name): &PluginName, table: &Table, report: &mut Report) {
    let files: IndexSet<&Arc<str>> = table.iter().map(|(_, entry)| &entry.key_origin.file).collect();
    let outcome = match kind.as_str() {
        "metrics" => "left out: bake sends no metrics".to_owned(),
        "distro" => "left out: bake sees from the image which distribution it is".to_owned(),
        _ => format!("left out: bake has no {kind} `{name}`"),
    };
    for file in files {
        report.note(&Origin::named(Arc::clone(file)), "the whole file", &outcome);
    }
}

/// What becomes of a setting of one of Aminator's own plugins.
fn plugin_outcome((kind, _): &PluginName, path: &str) -> &'static str {
    let key = path.split('.').next().unwrap_or_default();
    match (kind.as_str(), key) {
        (_, "enabled") => "left out: a plugin of bake's is in use where an environment names it, and nowhere else",
        ("cloud", "boto_debug") => "left out: `--verbose` makes bake say more",
        ("cloud", "is_secure") => "left out: bake talks to the cloud by HTTPS alone",
        ("blockdevice", _) => "left out: bake finds the device of a volume by itself",
        ("volume", "resize_volume") => {
            "left out: there is no switch for it; look at the size of the first image's root"
        }
        ("cloud", "ephemeral_devices" | "root_device")
        | ("finalizer", "default_root_device" | "default_block_device_map") => {
            "left out: there is no such setting; look at the block devices of the first image"
        }
        ("distro" | "provisioner", "short_circuit" | "short_circuit_files") => SERVICES,
        ("distro" | "provisioner", key) if key.starts_with("policy_file") => SERVICES,
        ("distro" | "provisioner", "chroot_mounts" | "recursive_unmount") => {
            "left out: bake mounts what packages need in a sandbox of its own, which goes with all its mounts"
        }
        ("distro" | "provisioner", "provision_configs" | "provision_config_files") => {
            "left out: bake lends the image the machine's `resolv.conf` alone; install other files by a package"
        }
        ("provisioner", key) if key.starts_with("pkg_") => {
            "left out: bake asks the package database itself; templates know `package.name` and the like"
        }
        _ => "left out: bake has no such setting",
    }
}

const SERVICES: &str = "left out: bake keeps services from starting in its own way, whatever the distribution";

/// What becomes of a setting of `aminator.yml`.
fn main_outcome(path: &str) -> &'static str {
    match path.split('.').next().unwrap_or_default() {
        "aminator_root" | "volume_dir" | "lock_dir" | "log_root" => {
            "left out: bake keeps all it writes in one folder; choose another one by `state_dir`"
        }
        "config_root" | "config_files" => "left out: import the other files as well, if there are any",
        "context" if path.starts_with("context.ami.tags") || path.starts_with("context.snapshot.tags") => {
            "left out: write the tag below `plugins.finalizer.tag_artifacts.tags`"
        }
        "context" if !path.starts_with("context.web_log") => {
            "left out: give the option to `bake run`, or set it in the new file"
        }
        "web_log_url_template" | "context" => {
            "left out: bake has no links to logs; `bake run --result FILE` writes a report"
        }
        "plugins" => "left out: the plugins of bake's are part of it",
        _ => "left out: bake has no such setting",
    }
}

/// The settings of a table that nothing reads.
struct Leftovers<'o> {
    outcome: &'o dyn Fn(&str) -> &'static str,
    /// Those that say what Aminator says anyway, by file: one note is enough.
    defaults: IndexMap<Arc<str>, IndexSet<String>>,
}

impl<'o> Leftovers<'o> {
    fn of(outcome: &'o dyn Fn(&str) -> &'static str) -> Self {
        Self { outcome, defaults: IndexMap::new() }
    }

    fn tell<'t>(mut self, left: impl Iterator<Item = (&'t str, &'t Entry)>, shipped: &Table, report: &mut Report) {
        for (key, entry) in left {
            self.setting(key, entry, shipped.get(key), report);
        }
        for (file, keys) in self.defaults {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let outcome = "left out: Aminator's own defaults, which have no counterpart in bake";
            report.note(&Origin::named(file), keys.join(", "), outcome);
        }
    }

    /// Tells of a setting, of those below it one by one.
    fn setting(&mut self, path: &str, entry: &Entry, shipped: Option<&Node>, report: &mut Report) {
        match &entry.node.value {
            Value::Null => {}
            Value::Table(table) => {
                for (key, entry) in table.iter() {
                    let shipped = shipped.and_then(Node::as_table).and_then(|table| table.get(key));
                    self.setting(&format!("{path}.{key}"), entry, shipped, report);
                }
            }
            Value::Scalar { .. } | Value::List(_) if shipped.is_some_and(|node| is_same(node, &entry.node)) => {
                let key = path.split('.').next().unwrap_or_default();
                let file = Arc::clone(&entry.node.origin.file);
                self.defaults.entry(file).or_default().insert(key.to_owned());
            }
            // The value itself is not shown: nobody knows what is a secret.
            Value::Scalar { .. } | Value::List(_) => {
                report.note(&entry.node.origin, format!("`{path}`"), (self.outcome)(path));
            }
        }
    }
}

/// Whether two values are the same to Aminator, wherever and however they are written.
fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Scalar { text: one, .. }, Value::Scalar { text: other, .. }) => {
            one == other || boolean(one).is_some_and(|one| boolean(other) == Some(one))
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Null, Value::Null) => true,
        _ => false,
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
