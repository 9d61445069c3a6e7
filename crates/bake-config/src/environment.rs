//! A resolved environment: five choices, each with its settings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::catalog::{PluginKind, Stage};
use crate::origin::{Origin, Text};
use crate::settings::Settings;

/// The composition of a bake.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Its name.
    pub name: String,
    /// Where it is written.
    pub origin: Origin,
    /// The cloud.
    pub cloud: Chosen,
    /// The disk.
    pub blockdevice: Chosen,
    /// The volume.
    pub volume: Chosen,
    /// The provisioner.
    pub provisioner: Chosen,
    /// What happens after the snapshot.
    pub finalizer_set: FinalizerSet,
    /// What templates see as `vars`.
    pub vars: BTreeMap<String, Text>,
}

/// A plugin that was chosen, with its settings.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The plugin's name.
    pub plugin: String,
    /// Its settings, merged, defaults included.
    pub settings: Settings,
    /// Where it was chosen.
    pub origin: Origin,
}

/// An ordered sequence of finalizers.
#[derive(Clone, Debug)]
pub struct FinalizerSet {
    /// Its name; `None` for a list written in the environment.
    pub name: Option<String>,
    /// In order. Each group waits for the one before it.
    pub groups: Vec<Group>,
    /// Where it was chosen.
    pub origin: Origin,
}

/// Finalizers of one stage, which run together unless `after` says otherwise.
#[derive(Clone, Debug)]
pub struct Group {
    /// The stage of all members.
    pub stage: Stage,
    /// In the order they were written.
    pub members: Vec<FinalizerUse>,
}

/// One finalizer of a set.
#[derive(Clone, Debug)]
pub struct FinalizerUse {
    /// The plugin's name.
    pub plugin: String,
    /// Its name within the set, unique: the plugin's unless `name:` gives another.
    pub name: String,
    /// The plugin's stage.
    pub stage: Stage,
    /// Whether its failure is only reported.
    pub optional: bool,
    /// A predicate that decides whether it runs.
    pub when: Option<Text>,
    /// Members of the set that end before it starts; order only.
    pub after: Vec<Text>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How often it is tried again after a failure.
    pub retry: Option<u32>,
    /// Its settings, merged, defaults included.
    pub settings: Settings,
    /// Where it is written.
    pub origin: Origin,
}

/// A value of an environment, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Where it is in the environment: `cloud.region`.
    pub path: String,
    /// The value as text; a secret is `****`.
    pub value: String,
    /// Who set it.
    pub origin: Origin,
}

impl FinalizerSet {
    /// All members in order.
    pub fn members(&self) -> impl Iterator<Item = &FinalizerUse> {
        self.groups.iter().flat_map(|group| &group.members)
    }
}

impl Environment {
    /// The choice for a slot; `None` for the finalizers, which are many.
    pub fn chosen(&self, kind: PluginKind) -> Option<&Chosen> {
        match kind {
            PluginKind::Cloud => Some(&self.cloud),
            PluginKind::BlockDevice => Some(&self.blockdevice),
            PluginKind::Volume => Some(&self.volume),
            PluginKind::Provisioner => Some(&self.provisioner),
            PluginKind::Finalizer => None,
        }
    }

    /// The whole of it for the journal, secrets masked.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = json!({ "name": self.name });
        for (kind, chosen) in self.slots() {
            json[kind.key()] = json!({ "plugin": chosen.plugin, "settings": chosen.settings.to_json() });
        }
        let groups: Vec<Vec<_>> = self
            .finalizer_set
            .groups
            .iter()
            .map(|group| group.members.iter().map(FinalizerUse::to_json).collect())
            .collect();
        json["finalizer_set"] = json!({ "name": self.finalizer_set.name, "groups": groups });
        json["vars"] = self.vars.iter().map(|(name, var)| (name.clone(), json!(var.text))).collect();
        json
    }

    /// Every value in reading order, each with who set it.
    pub fn values(&self) -> Vec<Shown> {
        let mut shown = Vec::new();
        for (kind, chosen) in self.slots() {
            shown.push(Shown {
                path: kind.key().to_owned(),
                value: chosen.plugin.clone(),
                origin: chosen.origin.clone(),
            });
            chosen.settings.show(kind.key(), &mut shown);
        }
        for member in self.finalizer_set.members() {
            let path = format!("finalizer_set.{}", member.name);
            shown.push(Shown { path: path.clone(), value: member.plugin.clone(), origin: member.origin.clone() });
            member.settings.show(&path, &mut shown);
        }
        for (name, var) in &self.vars {
            shown.push(Shown { path: format!("vars.{name}"), value: var.text.clone(), origin: var.origin.clone() });
        }
        shown
    }

    fn slots(&self) -> impl Iterator<Item = (PluginKind, &Chosen)> {
        PluginKind::ALL.into_iter().filter_map(|kind| Some((kind, self.chosen(kind)?)))
    }
}

impl FinalizerUse {
    fn to_json(&self) -> serde_json::Value {
        json!({
            "plugin": self.plugin,
            "name": self.name,
            "stage": self.stage.to_string(),
            "optional": self.optional,
            "when": self.when.as_ref().map(|when| &when.text),
            "after": self.after.iter().map(|after| &after.text).collect::<Vec<_>>(),
            "timeout": self.timeout.map(|timeout| humantime::format_duration(timeout).to_string()),
            "retry": self.retry,
            "settings": self.settings.to_json(),
        })
    }
}
