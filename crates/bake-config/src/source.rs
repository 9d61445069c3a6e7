//! Our trees as sources of the `config` crate.
//!
//! `config` calls its sources from the weakest to the strongest and lets each write into one value; when all have written, it copies
//! that value by its own rules. Three things about it shape this module:
//!
//! - It merges a clash of types by dropping the weaker one in silence, so a [`LayerSource`] merges by our rules.
//! - It keeps one string as the origin of a value, so that string is a [`Mark`]: all we know of a value besides its text. Of
//!   a table it keeps no origin at all, so the mark of a table is an entry of it, [`TABLE_MARK`].
//! - It reads top-level keys as paths (`a.b` is `b` in `a`), so all of a tree is below one key, [`ROOT`].

use std::sync::{Arc, Mutex, PoisonError};

use config::{Map, Source, Value as ConfigValue, ValueKind};
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::merge::merge_tables;
use crate::node::{Entry, Laid, Node, Table, Value};
use crate::origin::Origin;

/// The key that everything is below.
const ROOT: &str = "root";

/// The key of a table's own mark. No text and no variable can hold this character, and an escape for it is refused.
const TABLE_MARK: &str = "\0";

/// Merges layers, weakest first.
pub(crate) fn merge_layers(layers: Vec<Table>, errors: &mut Vec<ConfigError>) -> Table {
    let clashes = Arc::new(Mutex::new(Vec::new()));
    let mut builder = config::Config::builder();
    for table in layers {
        builder = builder.add_source(LayerSource { table, clashes: Arc::clone(&clashes) });
    }
    let built = builder.build().expect("our sources note what is wrong and never fail");
    errors.append(&mut clashes.lock().unwrap_or_else(PoisonError::into_inner));
    decode_root(built.cache.kind)
}

fn encode_root(table: Table) -> Map<String, ConfigValue> {
    Map::from_iter([(ROOT.to_owned(), ConfigValue::from(encode_table(table)))])
}

fn decode_root(kind: ValueKind) -> Table {
    match kind {
        ValueKind::Table(mut map) => match map.swap_remove(ROOT).map(|root| root.kind) {
            Some(ValueKind::Table(map)) => decode_table(map),
            _ => Table::new(),
        },
        _ => Table::new(),
    }
}

/// One layer.
#[derive(Clone, Debug)]
struct LayerSource {
    table: Table,
    clashes: Arc<Mutex<Vec<ConfigError>>>,
}

impl Source for LayerSource {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, ConfigValue>, config::ConfigError> {
        Ok(encode_root(self.table.clone()))
    }

    fn collect_to(&self, cache: &mut ConfigValue) -> Result<(), config::ConfigError> {
        let weaker = decode_root(std::mem::take(&mut cache.kind));
        let mut clashes = self.clashes.lock().unwrap_or_else(PoisonError::into_inner);
        cache.kind = ValueKind::Table(encode_root(merge_tables(weaker, self.table.clone(), &mut clashes)));
        Ok(())
    }
}

/// What we know of a value besides its text, in the string that `config` keeps as its origin.
#[derive(Serialize, Deserialize)]
struct Mark {
    origin: Origin,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    plain: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Origin>,
    #[serde(default)]
    laid: Laid,
}

impl Mark {
    fn on(self, kind: impl Into<ValueKind>) -> ConfigValue {
        let mark = serde_json::to_string(&self).expect("texts and numbers are JSON");
        ConfigValue::new(Some(&mark), kind)
    }

    /// Reads the mark of a value that [`encode`] made.
    fn of(value: &ConfigValue) -> Self {
        let unknown = || Self { origin: Origin::built_in(), plain: false, key: None, laid: Laid::Over };
        let table_mark = match &value.kind {
            ValueKind::Table(map) => map.get(TABLE_MARK),
            _ => Some(value),
        };
        let mark = table_mark.and_then(ConfigValue::origin).and_then(|mark| serde_json::from_str(mark).ok());
        mark.unwrap_or_else(unknown)
    }
}

fn encode_table(table: Table) -> Map<String, ConfigValue> {
    let encode = |entry: Entry| encode(entry.node, Some(entry.key_origin), entry.laid);
    table.into_iter().map(|(key, entry)| (key, encode(entry))).collect()
}

fn encode(node: Node, key: Option<Origin>, laid: Laid) -> ConfigValue {
    let plain = matches!(node.value, Value::Scalar { plain: true, .. });
    let mark = Mark { origin: node.origin, plain, key, laid };
    match node.value {
        Value::Null => mark.on(ValueKind::Nil),
        Value::Scalar { text, .. } => mark.on(text),
        Value::List(items) => mark.on(items.into_iter().map(|item| encode(item, None, Laid::Over)).collect::<Vec<_>>()),
        Value::Table(table) => {
            let mut map = encode_table(table);
            map.insert(TABLE_MARK.to_owned(), mark.on(ValueKind::Nil));
            ConfigValue::from(map)
        }
    }
}

fn decode_table(mut map: Map<String, ConfigValue>) -> Table {
    map.shift_remove(TABLE_MARK);
    map.into_iter().map(|(key, value)| (key, decode_entry(value))).collect()
}

fn decode_entry(value: ConfigValue) -> Entry {
    let mark = Mark::of(&value);
    Entry { key_origin: mark.key.unwrap_or_else(Origin::built_in), laid: mark.laid, node: decode(value) }
}

fn decode(value: ConfigValue) -> Node {
    let mark = Mark::of(&value);
    let value = match value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Table(map) => Value::Table(decode_table(map)),
        ValueKind::Array(items) => Value::List(items.into_iter().map(decode).collect()),
        // Ours are all strings; the other kinds are there for completeness and print as they are.
        scalar => Value::Scalar { text: scalar.to_string(), plain: mark.plain },
    };
    Node { value, origin: mark.origin }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin() -> impl Strategy<Value = Origin> {
        ("[a-z:\"/ ]{1,6}", prop::option::of((any::<u32>(), any::<u32>()))).prop_map(|(file, place)| Origin {
            file: file.into(),
            line: place.map(|place| place.0),
            column: place.map(|place| place.1),
        })
    }

    fn node() -> impl Strategy<Value = Node> {
        let scalar = (any::<String>(), any::<bool>()).prop_map(|(text, plain)| Value::Scalar { text, plain });
        let leaf =
            (prop_oneof![Just(Value::Null), scalar], origin()).prop_map(|(value, origin)| Node { value, origin });
        leaf.prop_recursive(3, 24, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List);
            let value = prop_oneof![list, table(inner).prop_map(Value::Table)];
            (value, origin()).prop_map(|(value, origin)| Node { value, origin })
        })
    }

    fn table(inner: impl Strategy<Value = Node>) -> impl Strategy<Value = Table> {
        let laid = prop::sample::select(vec![Laid::Over, Laid::Behind, Laid::Instead]);
        let entry = (origin(), laid, inner).prop_map(|(key_origin, laid, node)| Entry { key_origin, laid, node });
        // Keys that `config` would take for paths, and that differ only by case.
        prop::collection::vec(("[aA.\\[0\\]é+-]{1,4}", entry), 0..4).prop_map(Table::from_iter)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What goes through `config` comes out as it was, with every place and in its order.
        #[test]
        fn a_layer_survives(table in table(node())) {
            prop_assert_eq!(merge_layers(vec![table.clone()], &mut Vec::new()), table);
        }

        /// Merging through `config` is merging by our rules.
        #[test]
        fn layers_merge_by_our_rules(weaker in table(node()), stronger in table(node())) {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let merged = merge_layers(vec![weaker.clone(), stronger.clone()], &mut one);
            prop_assert_eq!(merged, merge_tables(weaker, stronger, &mut other));
            prop_assert_eq!(one, other);
        }
    }
}
