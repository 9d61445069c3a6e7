//! `extends`: laying an environment over the ones it takes over from.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::error::{ConfigError, known};
use crate::merge::merge_tables;
use crate::node::Table;
use crate::schema::{environments, one_or_several};

/// Environments with what they take over.
pub(crate) struct Extended {
    /// By name, in the order of the files.
    pub(crate) environments: IndexMap<String, Table>,
    /// Those that another one extends: they may be incomplete.
    pub(crate) bases: BTreeSet<String>,
}

/// Spells out every `extends`.
pub(crate) fn extend(root: &Table, errors: &mut Vec<ConfigError>) -> Extended {
    let mut extending = Extending { root, done: IndexMap::new(), bases: BTreeSet::new(), errors };
    let names: Vec<&str> = environments(root).map(|(name, _)| name).collect();
    for name in &names {
        extending.table(name, &mut Vec::new());
    }
    let Extending { mut done, bases, .. } = extending;
    let environments = names.into_iter().filter_map(|name| Some((name.to_owned(), done.swap_remove(name)?))).collect();
    Extended { environments, bases }
}

struct Extending<'a> {
    root: &'a Table,
    done: IndexMap<String, Table>,
    bases: BTreeSet<String>,
    errors: &'a mut Vec<ConfigError>,
}

impl Extending<'_> {
    /// The environment over its bases, the right-most base strongest. `path` holds the environments that led here.
    fn table(&mut self, name: &str, path: &mut Vec<String>) -> Table {
        if let Some(table) = self.done.get(name) {
            return table.clone();
        }
        let Some(own) = self.root.table(name) else { return Table::new() };
        let mut own = own.clone();
        let extends = own.remove("extends").and_then(|entry| one_or_several(&entry.node)).unwrap_or_default();
        path.push(name.to_owned());
        let mut merged = Table::new();
        for base in extends {
            if path.contains(&base.text) {
                let circle: Vec<&str> = path.iter().map(String::as_str).chain([base.text.as_str()]).collect();
                let from = circle.iter().position(|name| *name == base.text).unwrap_or_default();
                let message = format!("`extends` goes in a circle: {}", circle[from..].join(" → "));
                self.errors.push(ConfigError::new(&base.origin, message));
            } else if environments(self.root).any(|(name, _)| name == base.text) {
                let table = self.table(&base.text, path);
                merged = merge_tables(merged, table, self.errors);
                self.bases.insert(base.text);
            } else {
                let error = ConfigError::new(&base.origin, format!("there is no environment `{}`", base.text));
                self.errors.push(error.hint(known(&base.text, environments(self.root).map(|(name, _)| name))));
            }
        }
        path.pop();
        let table = merge_tables(merged, own, self.errors);
        self.done.insert(name.to_owned(), table.clone());
        table
    }
}
