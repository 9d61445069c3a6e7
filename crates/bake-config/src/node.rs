//! The tree a configuration is read into: every scalar is the text as written, every node knows where it was written.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::origin::{Origin, Text};

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What was written.
    pub value: Value,
    /// Where it starts.
    pub origin: Origin,
}

/// What can be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A text, never yet a number or a boolean: what it means is decided by the setting it is for.
    Scalar {
        /// The characters as written; for a quoted scalar, what the quotes hold.
        text: String,
        /// Whether it was written without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// Nothing, or a plain `~` or `null`: takes away what a weaker layer said.
    Null,
}

/// A table, in the order it was written in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table(IndexMap<String, Entry>);

/// What a key of a table holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where the key was first written.
    pub key_origin: Origin,
    /// How it meets what a weaker layer says of the key.
    pub laid: Laid,
    /// The value.
    pub node: Node,
}

/// How a value meets what a weaker layer says of the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Laid {
    /// Over it: tables merge, anything else replaces.
    #[default]
    Over,
    /// Behind it: a list that was written as `key+:`, and has not met a list yet.
    Behind,
    /// Instead of it, tables too: a `~` in between took away what is below, and has not met all of it yet.
    Instead,
}

impl Node {
    /// A text written with quotes, or given where quotes are not needed.
    pub fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self { value: Value::Scalar { text: text.into(), plain: false }, origin }
    }

    /// The text, if this is a scalar.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Table(_) | Value::Null => None,
        }
    }

    /// The text with its place, if this is a scalar.
    pub(crate) fn to_text(&self) -> Option<Text> {
        Some(Text { text: self.as_text()?.to_owned(), origin: self.origin.clone() })
    }

    /// The items, if this is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Scalar { .. } | Value::Table(_) | Value::Null => None,
        }
    }

    /// The table, if this is one.
    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            Value::Scalar { .. } | Value::List(_) | Value::Null => None,
        }
    }

    /// What this is, for a sentence: "a list".
    pub(crate) fn what(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Null => "nothing",
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.0.get(key).map(|entry| &entry.node)
    }

    /// The entry of `key`: the value and how and where the key was written.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.get(key)
    }

    /// Puts a value, at the end if the key is new; gives back what it replaced.
    pub fn insert(&mut self, key: impl Into<String>, entry: Entry) -> Option<Entry> {
        self.0.insert(key.into(), entry)
    }

    /// Takes a key out, leaving the others in order.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        self.0.shift_remove(key)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.0.get_mut(key)
    }

    /// The value of `key`, unless it was taken away.
    pub(crate) fn present(&self, key: &str) -> Option<&Node> {
        self.get(key).filter(|node| node.value != Value::Null)
    }

    /// The table below `key`, if there is one.
    pub(crate) fn table(&self, key: &str) -> Option<&Table> {
        self.get(key).and_then(Node::as_table)
    }
}

impl IntoIterator for Table {
    type Item = (String, Entry);
    type IntoIter = indexmap::map::IntoIter<String, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(String, Entry)> for Table {
    fn from_iter<I: IntoIterator<Item = (String, Entry)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
