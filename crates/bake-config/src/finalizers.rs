//! Finalizer sets: from a list as written to groups that follow each other.

use crate::catalog::{FINALIZER_KEYS, PluginKind};
use crate::config::Trees;
use crate::environment::{Condition, FinalizerSet, FinalizerUse, Group};
use crate::error::{ConfigError, known};
use crate::node::{Node, Table, Value};
use crate::origin::{Origin, Text};
use crate::resolve::Resolver;
use crate::schema::{Site, check_settings, one_or_several, unknown_plugin};
use crate::settings::Settings;
use crate::values::{parse_duration, parse_retry};

/// The order of stages, for people.
const STAGES: &str = "register, tag, distribute, notify";

/// Builds a set from its list. Gives nothing if a finalizer of it cannot be told; what is wrong is noted.
pub(crate) fn finalizer_set(
    resolver: &mut Resolver<'_>,
    name: Option<String>,
    origin: &Origin,
    items: &[Node],
    tables: &Trees,
) -> Option<FinalizerSet> {
    let mut members = Vec::new();
    let mut complete = true;
    for item in items {
        let together = item.as_list().unwrap_or(std::slice::from_ref(item));
        let mut uses = Vec::new();
        for item in together {
            complete &= add_item(resolver, item, tables, &[], &mut uses);
        }
        check_together(&uses, &mut resolver.errors);
        members.extend(uses);
    }
    if !complete {
        return None;
    }
    check_order(&members, &mut resolver.errors);
    check_names(&members, &mut resolver.errors);
    let mut groups = group(members);
    for group in &mut groups {
        keep_inner_order(group);
        check_circles(group, &mut resolver.errors);
    }
    Some(FinalizerSet { name, groups, origin: origin.clone() })
}

/// Neighbours of one stage are one group, however they are nested.
fn group(members: Vec<FinalizerUse>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for member in members {
        match groups.last_mut() {
            Some(group) if group.stage == member.stage => group.members.push(member),
            _ => groups.push(Group { stage: member.stage, members: vec![member] }),
        }
    }
    groups
}

/// Drops what `after` says of earlier groups, which is said by the order of groups already: a set is the same however it is written.
fn keep_inner_order(group: &mut Group) {
    let names: Vec<String> = group.members.iter().map(|member| member.name.clone()).collect();
    for member in &mut group.members {
        member.after.retain(|after| names.contains(&after.text));
    }
}

/// Adds the finalizer of an item, and behind it what its `else` says. `conditions` are those of the items it is an `else` of.
/// Says whether all of them could be told.
fn add_item(
    resolver: &mut Resolver<'_>,
    item: &Node,
    tables: &Trees,
    conditions: &[Condition],
    uses: &mut Vec<FinalizerUse>,
) -> bool {
    let Some((mut member, alternative)) = finalizer_use(resolver, item, tables) else { return false };
    let mut otherwise = conditions.to_vec();
    otherwise.extend(member.conditions.iter().map(|own| Condition { holds: false, ..own.clone() }));
    member.conditions.splice(0..0, conditions.iter().cloned());
    let (stage, name) = (member.stage, staged(&member));
    uses.push(member);
    let Some(alternative) = alternative else { return true };
    let mut others = Vec::new();
    let mut complete = true;
    for item in alternative.as_list().unwrap_or(std::slice::from_ref(&alternative)) {
        complete &= add_item(resolver, item, tables, &otherwise, &mut others);
    }
    for other in others {
        if other.stage == stage {
            uses.push(other);
            continue;
        }
        let message = format!("{} cannot be the `else` of {name}: their stages differ", staged(&other));
        let hint = "make it an item of the set, with a `when` of its own";
        resolver.errors.push(ConfigError::new(&other.origin, message).hint(hint));
    }
    complete
}

/// Builds the use of one finalizer; beside it what stands below its `else`.
fn finalizer_use(resolver: &mut Resolver<'_>, item: &Node, tables: &Trees) -> Option<(FinalizerUse, Option<Node>)> {
    let (plugin, origin, own) = match name_and_settings(item) {
        Ok(found) => found,
        Err(error) => {
            resolver.errors.push(*error);
            return None;
        }
    };
    let Some(info) = resolver.catalog.get(PluginKind::Finalizer, plugin) else {
        resolver.errors.push(unknown_plugin(PluginKind::Finalizer, plugin, origin, resolver.catalog));
        return None;
    };
    let stage = info.stage.expect("the catalog checks that every finalizer has a stage");
    check_settings(info, &own, Site::FinalizerSet, &mut resolver.errors);
    resolver.refuse_unbuilt(info, origin);
    let mut table = resolver.settings(info, tables, own);
    let mut common = Table::new();
    for key in FINALIZER_KEYS {
        if let Some(entry) = table.remove(key) {
            common.insert(key, entry);
        }
    }
    let alternative = common.remove("else");
    if let Some(entry) = alternative.as_ref().filter(|_| common.get("when").is_none()) {
        let message = format!("`else` of `{plugin}` has no `when` beside it");
        let hint = "say when the finalizer itself runs: `when: \"PREDICATE\"`";
        resolver.errors.push(ConfigError::new(&entry.key_origin, message).hint(hint));
    }
    // A value of the wrong shape was noted by the check of its table.
    let text = |key: &str| common.get(key).and_then(Node::to_text);
    let member = FinalizerUse {
        plugin: plugin.to_owned(),
        name: text("name").map_or(plugin.to_owned(), |name| name.text),
        stage,
        optional: text("optional").is_some_and(|optional| optional.text == "true"),
        conditions: text("when").map(|predicate| Condition { predicate, holds: true }).into_iter().collect(),
        after: common.get("after").and_then(one_or_several).into_iter().flatten().collect(),
        timeout: text("timeout").and_then(|timeout| parse_duration(&timeout.text)),
        retry: text("retry").and_then(|retry| parse_retry(&retry.text)),
        settings: Settings::new(table, origin.clone(), info.settings),
        origin: origin.clone(),
        common,
    };
    Some((member, alternative.map(|entry| entry.node)))
}

/// An item is `NAME`, or `NAME: { … }`.
fn name_and_settings(item: &Node) -> Result<(&str, &Origin, Table), Box<ConfigError>> {
    let refuse = |message: &str| {
        let error = ConfigError::new(&item.origin, message);
        Err(Box::new(error.hint("write `NAME`, `NAME: { SETTING: … }`, or `[NAME, NAME]` for several together")))
    };
    match &item.value {
        Value::Scalar { text, .. } => Ok((text, &item.origin, Table::new())),
        Value::Null => refuse("an item of a finalizer set is empty"),
        Value::List(_) => refuse("a list in a list in a finalizer set"),
        Value::Table(table) => match table.iter().collect::<Vec<_>>()[..] {
            [(name, entry)] => match &entry.node.value {
                Value::Table(settings) => Ok((name, &entry.key_origin, settings.clone())),
                Value::Null => Ok((name, &entry.key_origin, Table::new())),
                Value::Scalar { .. } | Value::List(_) => refuse("a finalizer's settings are a table"),
            },
            _ => refuse("an item of a finalizer set is one finalizer"),
        },
    }
}

fn check_together(members: &[FinalizerUse], errors: &mut Vec<ConfigError>) {
    let Some((first, rest)) = members.split_first() else { return };
    if let Some(other) = rest.iter().find(|member| member.stage != first.stage) {
        let message = format!(
            "{} and {} cannot run together: the later stage waits for the earlier one",
            staged(first),
            staged(other)
        );
        errors.push(ConfigError::new(&other.origin, message).hint("take them out of the nested list"));
    }
}

fn check_order(members: &[FinalizerUse], errors: &mut Vec<ConfigError>) {
    for pair in members.windows(2) {
        let [earlier, later] = pair else { continue };
        if later.stage < earlier.stage {
            let message = format!("{} may not follow {}", staged(later), staged(earlier));
            let error =
                ConfigError::new(&later.origin, message).related(format!("`{}` here", earlier.name), &earlier.origin);
            errors.push(error.hint(format!("the order is {STAGES}")));
        }
    }
}

fn staged(member: &FinalizerUse) -> String {
    format!("`{}` ({})", member.name, member.stage)
}

fn check_names(members: &[FinalizerUse], errors: &mut Vec<ConfigError>) {
    for (index, member) in members.iter().enumerate() {
        if let Some(first) = members[..index].iter().find(|other| other.name == member.name) {
            let message = format!("two finalizers of this set are called `{}`", member.name);
            let error = ConfigError::new(&member.origin, message).related("first here", &first.origin);
            errors.push(error.hint(format!("give one another name: `{}: {{ name: … }}`", member.plugin)));
        }
        // It is part of the paths of its steps.
        if member.name.is_empty() || !member.name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c)) {
            let error = ConfigError::new(&member.origin, format!("`{}` is no name for a finalizer", member.name));
            errors.push(error.hint("a name has letters, digits and `._-`"));
        }
        for after in &member.after {
            check_after(member, after, members, errors);
        }
    }
}

fn check_after(member: &FinalizerUse, after: &Text, members: &[FinalizerUse], errors: &mut Vec<ConfigError>) {
    let Some(other) = members.iter().find(|other| other.name == after.text) else {
        let message = format!("`after`: there is no `{}` in this set", after.text);
        let names = members.iter().map(|other| other.name.as_str()).filter(|name| *name != member.name);
        errors.push(ConfigError::new(&after.origin, message).hint(known(&after.text, names)));
        return;
    };
    if other.stage > member.stage {
        let message = format!("{} cannot wait for {}: its stage comes later", staged(member), staged(other));
        let hint = format!("take `{}` out of the `after`; the order is {STAGES}", other.name);
        errors.push(ConfigError::new(&after.origin, message).hint(hint));
    }
}

/// Within a group only `after` gives an order, so only there it can go in a circle.
fn check_circles(group: &Group, errors: &mut Vec<ConfigError>) {
    let mut waiting: Vec<&FinalizerUse> = group.members.iter().collect();
    loop {
        let names: Vec<&str> = waiting.iter().map(|member| member.name.as_str()).collect();
        let before = waiting.len();
        waiting.retain(|member| member.after.iter().any(|after| names.contains(&after.text.as_str())));
        if waiting.len() == before {
            break;
        }
    }
    if let Some(after) = waiting.first().and_then(|member| member.after.first()) {
        let names: Vec<String> = waiting.iter().map(|member| format!("`{}`", member.name)).collect();
        let message = format!("`after` goes in a circle: {}", names.join(", "));
        errors.push(ConfigError::new(&after.origin, message).hint("take one of them out of an `after`"));
    }
}
