//! Our trees as sources of the `config` crate.
//!
//! `config` calls its sources from the weakest to the strongest and lets each write into one value. It keeps a single string as
//! the origin of a value, and its own merging drops the weaker of two clashing types in silence. So a [`LayerSource`] merges by
//! our rules, and that string holds all we know of a value besides its text.

use std::sync::{Arc, Mutex, PoisonError};

use config::{Map, Source, Value as ConfigValue, ValueKind};
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::merge::merge_tables;
use crate::node::{Entry, Node, Table, Value};
use crate::origin::Origin;

/// Merges layers, weakest first.
pub(crate) fn merge_layers(layers: Vec<Table>, errors: &mut Vec<ConfigError>) -> Table {
    let clashes = Arc::new(Mutex::new(Vec::new()));
    let mut builder = config::Config::builder();
    for table in layers {
        builder = builder.add_source(LayerSource { table, clashes: Arc::clone(&clashes) });
    }
    let built = builder.build().expect("our sources note what is wrong and never fail");
    errors.append(&mut clashes.lock().unwrap_or_else(PoisonError::into_inner));
    match built.cache.kind {
        ValueKind::Table(map) => map.into_iter().map(|(key, value)| (key, decode_entry(value))).collect(),
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
        Ok(encode_table(self.table.clone()))
    }

    fn collect_to(&self, cache: &mut ConfigValue) -> Result<(), config::ConfigError> {
        let weaker = std::mem::take(&mut cache.kind);
        let weaker = match weaker {
            ValueKind::Table(map) => map.into_iter().map(|(key, value)| (key, decode_entry(value))).collect(),
            _ => Table::new(),
        };
        let mut clashes = self.clashes.lock().unwrap_or_else(PoisonError::into_inner);
        cache.kind = ValueKind::Table(encode_table(merge_tables(weaker, self.table.clone(), &mut clashes)));
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    append: bool,
}

impl Mark {
    fn on(self, kind: impl Into<ValueKind>) -> ConfigValue {
        let mark = serde_json::to_string(&self).expect("texts and numbers are JSON");
        ConfigValue::new(Some(&mark), kind)
    }

    fn of(value: &ConfigValue) -> Self {
        let unknown = || Self { origin: Origin::built_in(), plain: false, key: None, append: false };
        value.origin().and_then(|mark| serde_json::from_str(mark).ok()).unwrap_or_else(unknown)
    }
}

fn encode_table(table: Table) -> Map<String, ConfigValue> {
    let encode = |entry: Entry| encode(entry.node, Some(entry.key_origin), entry.append);
    table.into_iter().map(|(key, entry)| (key, encode(entry))).collect()
}

fn encode(node: Node, key: Option<Origin>, append: bool) -> ConfigValue {
    let plain = matches!(node.value, Value::Scalar { plain: true, .. });
    let mark = Mark { origin: node.origin, plain, key, append };
    match node.value {
        Value::Null => mark.on(ValueKind::Nil),
        Value::Scalar { text, .. } => mark.on(text),
        Value::List(items) => mark.on(items.into_iter().map(|item| encode(item, None, false)).collect::<Vec<_>>()),
        Value::Table(table) => mark.on(encode_table(table)),
    }
}

fn decode_entry(value: ConfigValue) -> Entry {
    let mark = Mark::of(&value);
    Entry { key_origin: mark.key.unwrap_or_else(Origin::built_in), append: mark.append, node: decode(value) }
}

fn decode(value: ConfigValue) -> Node {
    let mark = Mark::of(&value);
    let value = match value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Table(map) => Value::Table(map.into_iter().map(|(key, value)| (key, decode_entry(value))).collect()),
        ValueKind::Array(items) => Value::List(items.into_iter().map(decode).collect()),
        // Ours are all strings; the other kinds are there for completeness and print as they are.
        scalar => Value::Scalar { text: scalar.to_string(), plain: mark.plain },
    };
    Node { value, origin: mark.origin }
}
