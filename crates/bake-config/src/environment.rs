//! A resolved environment: five choices, each with its settings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::catalog::{PluginKind, Stage};
use crate::node::{Entry, Table};
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
    /// What is laid on steps of the plan, in the order they were written.
    pub steps: Vec<StepUse>,
    /// What templates see as `vars`.
    pub vars: BTreeMap<String, Text>,
}

/// What is laid on a step of the plan, or on all steps below a path.
#[derive(Clone, Debug)]
pub struct StepUse {
    /// The path of the step, or of the steps: `volume/provision`, `volume`. Which there are is known to the plan.
    pub path: Text,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How often it is tried again after a failure.
    pub retry: Option<u32>,
    /// Steps that end before it starts; order only.
    pub after: Vec<Text>,
    /// All of it as it was written.
    pub(crate) written: Table,
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
    /// What decides whether it runs: all of them must be as said, in this order.
    pub conditions: Vec<Condition>,
    /// Members of its group that end before it starts; order only. Earlier groups have ended anyway.
    pub after: Vec<Text>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How often it is tried again after a failure.
    pub retry: Option<u32>,
    /// Its settings, merged, defaults included.
    pub settings: Settings,
    /// Where it is written.
    pub origin: Origin,
    /// The keys of every finalizer as they were written.
    pub(crate) common: Table,
}

/// A predicate and what it has to say for a finalizer to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The predicate, as written after `when`.
    pub predicate: Text,
    /// Whether it must hold; for an `else` it must not.
    pub holds: bool,
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
        json["steps"] = self.steps.iter().map(|step| (step.path.text.clone(), step.to_json())).collect();
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
            member.show_common(&path, &mut shown);
            member.settings.show(&path, &mut shown);
        }
        for step in &self.steps {
            let path = format!("steps.{}", step.path.text);
            for (key, Entry { node, .. }) in step.written.iter() {
                let value = match node.as_text() {
                    Some(text) if key != "after" => text.to_owned(),
                    _ => names(&step.after).to_string(),
                };
                shown.push(Shown { path: format!("{path}.{key}"), value, origin: node.origin.clone() });
            }
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
    /// Returns its conditions as one predicate; `None` if it always runs.
    pub fn when(&self) -> Option<String> {
        Condition::joined(&self.conditions)
    }

    /// What somebody wrote about when and how it runs; what is usual for its plugin is left out.
    fn show_common(&self, path: &str, shown: &mut Vec<Shown>) {
        let mut show = |key: &str, value: String, origin: &Origin| {
            shown.push(Shown { path: format!("{path}.{key}"), value, origin: origin.clone() });
        };
        for (key, Entry { node, .. }) in self.common.iter().filter(|(_, entry)| entry.node.origin != Origin::built_in())
        {
            if let (Some(text), "optional" | "timeout" | "retry") = (node.as_text(), key) {
                show(key, text.to_owned(), &node.origin);
            }
        }
        let written = self.conditions.last().filter(|condition| condition.predicate.origin != Origin::built_in());
        if let (Some(condition), Some(when)) = (written, self.when()) {
            show("when", when, &condition.predicate.origin);
        }
        if let Some(after) = self.after.first() {
            show("after", names(&self.after).to_string(), &after.origin);
        }
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "plugin": self.plugin,
            "name": self.name,
            "stage": self.stage.to_string(),
            "optional": self.optional,
            "when": self.when(),
            "after": names(&self.after),
            "timeout": time(self.timeout),
            "retry": self.retry,
            "settings": self.settings.to_json(),
        })
    }
}

impl StepUse {
    /// Lays nothing on a step yet.
    pub fn new(path: Text) -> Self {
        Self { path, timeout: None, retry: None, after: Vec::new(), written: Table::new() }
    }

    fn to_json(&self) -> serde_json::Value {
        json!({ "timeout": time(self.timeout), "retry": self.retry, "after": names(&self.after) })
    }
}

fn names(texts: &[Text]) -> serde_json::Value {
    texts.iter().map(|text| text.text.as_str()).collect()
}

fn time(time: Option<Duration>) -> Option<String> {
    time.map(|time| humantime::format_duration(time).to_string())
}

impl Condition {
    /// All of them as one predicate; `None` if there are none.
    pub fn joined(conditions: &[Self]) -> Option<String> {
        let several = conditions.len() > 1;
        let texts: Vec<String> = conditions.iter().map(|condition| condition.to_predicate(several)).collect();
        (!texts.is_empty()).then(|| texts.join(" and "))
    }

    /// The condition as a predicate of its own; if it is `joined` by `and`, what binds looser than that goes in brackets.
    fn to_predicate(&self, joined: bool) -> String {
        let text = &self.predicate.text;
        let looser = || text.split(|c: char| !c.is_alphanumeric()).any(|word| matches!(word, "or" | "if"));
        match self.holds {
            false => format!("not ({text})"),
            true if joined && looser() => format!("({text})"),
            true => text.clone(),
        }
    }
}
