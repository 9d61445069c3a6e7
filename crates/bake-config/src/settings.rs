//! The settings of one plugin, and how a plugin reads them.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::catalog::{Setting, Takes};
use crate::de::NodeDeserializer;
use crate::environment::Shown;
use crate::error::ConfigErrors;
use crate::node::{Node, Table, Value};
use crate::origin::{Origin, Text};

/// What a secret looks like wherever it is shown.
const MASK: &str = "****";

/// The settings of one plugin: merged from all layers, defaults included, each value with its origin.
#[derive(Clone)]
pub struct Settings {
    node: Node,
    takes: &'static [Setting],
}

impl Settings {
    pub(crate) fn new(table: Table, origin: Origin, takes: &'static [Setting]) -> Self {
        Self { node: Node { value: Value::Table(table), origin }, takes }
    }

    /// Reads them as the plugin's own struct.
    ///
    /// Scalars are parsed from their text: numbers from decimal digits, booleans from `true` and `false`,
    /// [`std::time::Duration`] from `90s`, [`ByteSize`](crate::ByteSize) from `8GiB`, enums from the variant's name.
    ///
    /// # Errors
    ///
    /// With the place of the value that the struct does not take.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        T::deserialize(NodeDeserializer::new(&self.node)).map_err(|error| {
            let mut error = error.at(&self.node.origin);
            self.mask(&mut error.message);
            error.into()
        })
    }

    /// Takes the secrets out of a message: a struct that wants a number where the setting takes a secret would quote it.
    fn mask(&self, message: &mut String) {
        for (name, entry) in self.node.as_table().into_iter().flat_map(Table::iter) {
            mask(&entry.node, self.takes(name), message);
        }
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.node.as_table().and_then(|table| table.get(name))
    }

    /// Returns the text of a setting, with who wrote it.
    pub fn text(&self, name: &str) -> Option<Text> {
        self.get(name)?.to_text()
    }

    /// Returns the entries of a table of texts, in the order they were written.
    pub fn texts(&self, name: &str) -> Vec<(String, Text)> {
        let table = self.get(name).and_then(Node::as_table);
        let entries = table.into_iter().flat_map(Table::iter);
        entries.filter_map(|(key, entry)| Some((key.to_owned(), entry.node.to_text()?))).collect()
    }

    /// Returns all of them as JSON, secrets masked. What a setting takes as a boolean or a whole number is one in JSON, everything else
    /// stays the text that was written.
    pub fn to_json(&self) -> Json {
        self.node.as_table().map_or(Json::Null, |table| {
            table.iter().map(|(name, entry)| (name.to_owned(), to_json(&entry.node, self.takes(name)))).collect()
        })
    }

    pub(crate) fn show(&self, path: &str, shown: &mut Vec<Shown>) {
        for (name, entry) in self.node.as_table().into_iter().flat_map(Table::iter) {
            show(&entry.node, format!("{path}.{name}"), self.takes(name), shown);
        }
    }

    fn takes(&self, name: &str) -> Takes {
        self.takes.iter().find(|setting| setting.name == name).map_or(Takes::Text, |setting| setting.takes)
    }
}

/// Without the secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.to_json())
    }
}

fn mask(node: &Node, takes: Takes, message: &mut String) {
    match &node.value {
        Value::Scalar { text, .. } if takes == Takes::Secret && !text.is_empty() => {
            *message = message.replace(text, MASK)
        }
        Value::Scalar { .. } | Value::Null => {}
        Value::List(items) => items.iter().for_each(|item| mask(item, inner(takes), message)),
        Value::Table(table) => table.iter().for_each(|(_, entry)| mask(&entry.node, inner(takes), message)),
    }
}

/// What the parts of a list or a table take.
fn inner(takes: Takes) -> Takes {
    match takes {
        Takes::List(item) | Takes::Map(item) => *item,
        Takes::Secret => Takes::Secret,
        _ => Takes::Text,
    }
}

fn scalar_to_json(text: &str, takes: Takes) -> Json {
    let typed = match takes {
        Takes::Secret => return MASK.into(),
        Takes::Boolean => text.parse().ok().map(Json::Bool),
        Takes::Integer => text.parse::<i64>().map(Json::from).or_else(|_| text.parse::<u64>().map(Json::from)).ok(),
        _ => None,
    };
    typed.unwrap_or_else(|| text.into())
}

fn to_json(node: &Node, takes: Takes) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Scalar { text, .. } => scalar_to_json(text, takes),
        Value::List(items) => items.iter().map(|item| to_json(item, inner(takes))).collect(),
        Value::Table(table) => {
            table.iter().map(|(key, entry)| (key.to_owned(), to_json(&entry.node, inner(takes)))).collect()
        }
    }
}

fn show(node: &Node, path: String, takes: Takes, shown: &mut Vec<Shown>) {
    let value = match &node.value {
        Value::Null => return,
        Value::Table(table) => {
            for (key, entry) in table.iter() {
                show(&entry.node, format!("{path}.{key}"), inner(takes), shown);
            }
            return;
        }
        Value::Scalar { .. } if takes == Takes::Secret => MASK.to_owned(),
        Value::Scalar { text, .. } => text.clone(),
        Value::List(_) => to_json(node, takes).to_string(),
    };
    shown.push(Shown { path, value, origin: node.origin.clone() });
}
