//! Laying a stronger tree over a weaker one: tables merge, lists replace, `key+` appends, a clash of types is an error.

use crate::error::ConfigError;
use crate::node::{Entry, Node, Table, Value};

/// Keys that take a name or a list, so that one may follow the other.
const NAME_OR_LIST: [&str; 4] = ["after", "extends", "finalizer_set", "include"];

/// Lays `stronger` over `weaker`. Where they clash the stronger one stays, and the clash is noted.
pub(crate) fn merge_tables(mut weaker: Table, stronger: Table, errors: &mut Vec<ConfigError>) -> Table {
    for (key, entry) in stronger {
        match weaker.get_mut(&key) {
            Some(below) => {
                let lower = std::mem::replace(below, entry.clone());
                *below = merge_entries(&key, lower, entry, errors);
            }
            None => {
                weaker.insert(key, entry);
            }
        }
    }
    weaker
}

fn merge_entries(key: &str, weaker: Entry, stronger: Entry, errors: &mut Vec<ConfigError>) -> Entry {
    let key_origin = weaker.key_origin;
    let origin = stronger.node.origin.clone();
    let value = match (weaker.node.value, stronger.node.value) {
        (Value::List(mut items), Value::List(more)) if stronger.append => {
            items.extend(more);
            let node = Node { value: Value::List(items), origin };
            return Entry { key_origin, append: weaker.append, node };
        }
        (Value::Table(below), Value::Table(above)) => {
            let node = Node { value: Value::Table(merge_tables(below, above, errors)), origin: weaker.node.origin };
            return Entry { key_origin, append: false, node };
        }
        (below, above) => {
            let below = Node { value: below, origin: weaker.node.origin };
            let above = Node { value: above, origin: origin.clone() };
            if clashes(key, &below, &above, stronger.append) {
                errors.push(clash(key, &below, &above));
            }
            above.value
        }
    };
    Entry { key_origin, append: false, node: Node { value, origin } }
}

fn clashes(key: &str, below: &Node, above: &Node, append: bool) -> bool {
    match (&below.value, &above.value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Scalar { .. }, Value::List(_)) => append || !NAME_OR_LIST.contains(&key),
        (Value::List(_), Value::Scalar { .. }) => !NAME_OR_LIST.contains(&key),
        (below, above) => std::mem::discriminant(below) != std::mem::discriminant(above),
    }
}

fn clash(key: &str, below: &Node, above: &Node) -> ConfigError {
    let message = format!("`{key}` is {} here and {} below it", above.what(), below.what());
    let error = ConfigError::new(&above.origin, message).related(format!("{} here", below.what()), &below.origin);
    match (&below.value, &above.value) {
        (Value::List(_), Value::Scalar { text, .. }) => error.hint(format!("write a list: `[{text}]`")),
        _ => error.hint("give both the same shape, or take the weaker one out"),
    }
}

/// Ends the merging: what was taken away goes, and a `key+` that met nothing to append to is the whole list.
pub(crate) fn settle(table: Table) -> Table {
    let kept = table.into_iter().filter(|(_, entry)| entry.node.value != Value::Null);
    kept.map(|(key, entry)| (key, Entry { append: false, node: settle_node(entry.node), ..entry })).collect()
}

fn settle_node(node: Node) -> Node {
    let value = match node.value {
        Value::Table(table) => Value::Table(settle(table)),
        Value::List(items) => Value::List(items.into_iter().map(settle_node).collect()),
        value @ (Value::Scalar { .. } | Value::Null) => value,
    };
    Node { value, ..node }
}
