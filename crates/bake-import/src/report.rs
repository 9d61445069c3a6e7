//! What an import tells besides the file it makes.

use std::fmt;

use bake_config::{ConfigError, ConfigErrors, Node, Origin, Table, Value};

/// Something that was written for Aminator and is not in the new file as it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Where it was written.
    pub origin: Origin,
    /// What it is.
    pub what: String,
    /// What became of it, why, and what to do.
    pub outcome: String,
}

/// Shows it on one line: the place, the thing, what became of it.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.what, self.outcome)
    }
}

/// Every mistake that keeps Aminator's files from being understood, in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ImportErrors(Vec<ConfigError>);

impl ImportErrors {
    /// The mistakes, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ImportErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

/// Notes and mistakes as they are found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    notes: Vec<Note>,
    errors: Vec<ConfigError>,
}

impl Report {
    pub(crate) fn note(&mut self, origin: &Origin, what: impl Into<String>, outcome: impl Into<String>) {
        self.notes.push(Note { origin: origin.clone(), what: what.into(), outcome: outcome.into() });
    }

    pub(crate) fn wrong(&mut self, errors: ConfigErrors) {
        self.errors.extend(errors);
    }

    /// Returns the table that `key` takes. Anything else is a mistake, which Aminator would stop at too.
    pub(crate) fn table<'n>(&mut self, key: &str, node: &'n Node) -> Option<&'n Table> {
        if node.as_table().is_none() {
            self.shape(key, node, "a table", "write `KEY: VALUE` below it, or take the key away");
        }
        node.as_table()
    }

    /// Returns the text that `key` takes; nothing is fine, anything else is a mistake.
    pub(crate) fn text<'n>(&mut self, key: &str, node: &'n Node) -> Option<&'n str> {
        if node.as_text().is_none() && node.value != Value::Null {
            self.shape(key, node, "a text", "write it on the line of the key, in quotes if it has `{` or `: ` in it");
        }
        node.as_text()
    }

    fn shape(&mut self, key: &str, node: &Node, takes: &str, hint: &str) {
        let written = match &node.value {
            Value::Scalar { .. } => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Null => "nothing",
        };
        self.errors.push(ConfigError {
            origin: node.origin.clone(),
            message: format!("`{key}` takes {takes}, {written} is written"),
            hint: Some(hint.to_owned()),
            related: Vec::new(),
        });
    }

    /// Gives what was made with the notes, or what is wrong.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<(T, Vec<Note>), ImportErrors> {
        self.notes.sort();
        // A stable sort: mistakes of one place stay in the order they were found.
        self.errors.sort_by(|a, b| a.origin.cmp(&b.origin));
        self.errors.dedup();
        if self.errors.is_empty() { Ok((value, self.notes)) } else { Err(ImportErrors(self.errors)) }
    }
}
