//! The environments: which plugins of Aminator's are which of bake's.

use bake_config::{Entry, Origin, Table, Value};
use indexmap::IndexMap;

use crate::finalizers::Store;
use crate::report::Report;
use crate::site::Site;

/// Keys that mean something else at the top of an `environments.yaml`.
const RESERVED: [&str; 8] =
    ["plugins", "vars", "finalizer_sets", "include", "state_dir", "cache_dir", "run_dir", "host_root"];

/// An environment as bake will have it.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) name: String,
    /// Whether it is one of Aminator's own, which the site's files do not mention.
    pub(crate) shipped: bool,
    /// The plugins, in the order they are written.
    pub(crate) slots: [(&'static str, String); 4],
    pub(crate) store: Store,
}

/// All environments, and the one that is used when none is named.
#[derive(Debug)]
pub(crate) struct Environments {
    pub(crate) all: Vec<Environment>,
    pub(crate) default: Option<String>,
}

/// Reads the environments, the site's before Aminator's own.
pub(crate) fn environments(site: &Site, report: &mut Report) -> Environments {
    let mut table = site.environments(report);
    let default = table.remove("default");
    let mut reader = Reader { report, gathered: IndexMap::new() };
    let mut names = IndexMap::new();
    let mut all = Vec::new();
    for (name, entry) in table.iter() {
        let new_name = reader.name(name, entry, &table);
        if let Some(environment) = reader.environment(name, &new_name, entry) {
            names.insert(name, new_name);
            all.push(environment);
        }
    }
    reader.tell();
    let default = default.and_then(|entry| default_name(&entry, &names, report));
    Environments { all, default }
}

/// The default under its new name, if it is still there.
fn default_name(entry: &Entry, names: &IndexMap<&str, String>, report: &mut Report) -> Option<String> {
    let name = report.text("default", &entry.node)?;
    if !names.contains_key(name) {
        let outcome = "left out: there is no such environment in the new file; write the name of one, or use `--env`";
        report.note(&entry.node.origin, format!("`default: {name}`"), outcome);
    }
    names.get(name).cloned()
}

/// A key of an environment.
type Written<'t> = (&'t str, &'t Origin);

struct Reader<'r> {
    report: &'r mut Report,
    /// What many environments share is told once, with their names: by the thing and what becomes of it.
    gathered: IndexMap<(String, String), (Origin, Vec<String>)>,
}

impl Reader<'_> {
    /// The name under which an environment is written.
    fn name(&mut self, name: &str, entry: &Entry, all: &Table) -> String {
        if !RESERVED.contains(&name) {
            return name.to_owned();
        }
        let mut new = format!("{name}_environment");
        while all.get(&new).is_some() {
            new.push('_');
        }
        let outcome = format!("called `{new}` now: `{name}` is a key of bake's own");
        self.report.note(&entry.key_origin, format!("environment `{name}`"), outcome);
        new
    }

    fn environment(&mut self, name: &str, new_name: &str, entry: &Entry) -> Option<Environment> {
        let table = self.report.table(name, &entry.node)?;
        let mut keys: IndexMap<&str, Written<'_>> = IndexMap::new();
        for (key, entry) in table.iter().filter(|(_, entry)| entry.node.value != Value::Null) {
            keys.insert(key, (self.report.text(&format!("{name}.{key}"), &entry.node)?, &entry.node.origin));
        }
        let needed = ["cloud", "blockdevice", "volume", "provisioner", "finalizer"];
        let missing: Vec<String> =
            needed.iter().filter(|key| !keys.contains_key(*key)).map(|key| format!("`{key}`")).collect();
        if !missing.is_empty() {
            let outcome =
                format!("left out: it does not say its {}, so Aminator could not use it either", missing.join(", "));
            self.report.note(&entry.key_origin, format!("environment `{name}`"), outcome);
            return None;
        }
        if !self.can_work(name, keys["cloud"], keys["provisioner"]) {
            return None;
        }
        let slots = ["cloud", "blockdevice", "volume", "provisioner"];
        let slots = slots.map(|slot| (slot, self.plugin(name, slot, keys[slot])));
        let store = self.store(name, keys["finalizer"]);
        for (key, (_, origin)) in keys {
            self.leave(name, key, origin);
        }
        Some(Environment { name: new_name.to_owned(), shipped: Site::is_shipped(&entry.key_origin), slots, store })
    }

    /// Whether bake has what the environment cannot do without.
    fn can_work(&mut self, name: &str, cloud: Written<'_>, provisioner: Written<'_>) -> bool {
        let mut can_work = true;
        if cloud.0 != "ec2" {
            let outcome = "the environment is left out: the cloud of Aminator's that bake has is `ec2`; write an \
                           environment with a `cloud` of bake's by hand";
            self.report.note(cloud.1, format!("`cloud: {}` of `{name}`", cloud.0), outcome);
            can_work = false;
        }
        if !["apt", "aptitude", "yum"].contains(&provisioner.0) {
            let outcome = "the environment is left out: bake installs by `apt` or `yum`; write it by hand with one of \
                           them, and put what this provisioner did into a package";
            self.report.note(provisioner.1, format!("`provisioner: {}` of `{name}`", provisioner.0), outcome);
            can_work = false;
        }
        can_work
    }

    /// What bake calls the plugin.
    fn plugin(&mut self, environment: &str, slot: &str, (name, origin): Written<'_>) -> String {
        match (slot, name) {
            ("provisioner", "aptitude") => {
                let outcome = "written as `apt`: bake installs by apt-get, which may choose other packages where \
                               dependencies leave a choice";
                self.gather(environment, "`provisioner: aptitude`", origin, outcome);
                "apt".to_owned()
            }
            ("blockdevice" | "volume", name) if name != "linux" => {
                let outcome = format!("written as `linux`: bake has no {slot} `{name}`");
                self.gather(environment, format!("`{slot}: {name}`"), origin, outcome);
                "linux".to_owned()
            }
            (_, name) => name.to_owned(),
        }
    }

    fn store(&mut self, environment: &str, (name, origin): Written<'_>) -> Store {
        Store::ALL.into_iter().find(|store| store.plugin() == name).unwrap_or_else(|| {
            let outcome = "written as `[register_ebs_ami, tag_artifacts]`: bake has no such finalizer; add to the \
                           `finalizer_set` what it did beyond that";
            self.gather(environment, format!("`finalizer: {name}`"), origin, outcome);
            Store::Ebs
        })
    }

    /// Tells of a key that has no counterpart.
    fn leave(&mut self, environment: &str, key: &str, origin: &Origin) {
        let outcome = match key {
            "cloud" | "blockdevice" | "volume" | "provisioner" | "finalizer" => return,
            "distro" => "left out: bake sees from the image which distribution it is",
            "metrics" => {
                "left out: bake sends no metrics; `bake run --result FILE` writes a report that can be counted"
            }
            _ => "left out: an environment of bake's has no such key",
        };
        self.gather(environment, format!("`{key}`"), origin, outcome);
    }

    fn gather(&mut self, environment: &str, what: impl Into<String>, origin: &Origin, outcome: impl Into<String>) {
        if !Site::is_shipped(origin) {
            let (_, names) =
                self.gathered.entry((what.into(), outcome.into())).or_insert_with(|| (origin.clone(), Vec::new()));
            names.push(format!("`{environment}`"));
        }
    }

    fn tell(self) {
        for ((what, outcome), (origin, names)) in self.gathered {
            self.report.note(&origin, format!("{what} of {}", names.join(", ")), outcome);
        }
    }
}
