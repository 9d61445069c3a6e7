//! `extends`: laying an environment over the ones it takes over from.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::config::Trees;
use crate::error::{ConfigError, known};
use crate::merge::merge_tables;
use crate::node::{Table, Value};
use crate::origin::Text;
use crate::schema::{environments, one_or_several};

/// Environments with what they take over.
pub(crate) struct Extended {
    /// By name, in the order of the files.
    pub(crate) environments: IndexMap<String, Trees>,
    /// Those that another one extends: they may be incomplete.
    pub(crate) bases: BTreeSet<String>,
    /// Those whose `extends` is wrong, here or below: what they lack is not known.
    pub(crate) broken: BTreeSet<String>,
}

/// Spells out every `extends`.
pub(crate) fn extend(trees: &Trees, errors: &mut Vec<ConfigError>) -> Extended {
    let mut extending =
        Extending { trees, done: IndexMap::new(), bases: BTreeSet::new(), broken: BTreeSet::new(), errors };
    let names: Vec<&str> = environments(&trees.written).map(|(name, _)| name).collect();
    for name in &names {
        extending.environment(name, &mut Vec::new());
    }
    let Extending { mut done, bases, broken, .. } = extending;
    let environments = names.into_iter().filter_map(|name| Some((name.to_owned(), done.swap_remove(name)?))).collect();
    Extended { environments, bases, broken }
}

struct Extending<'a> {
    trees: &'a Trees,
    done: IndexMap<String, Trees>,
    bases: BTreeSet<String>,
    broken: BTreeSet<String>,
    errors: &'a mut Vec<ConfigError>,
}

impl Extending<'_> {
    /// The environment over its bases, the right-most base strongest. `path` holds the environments that led here.
    fn environment(&mut self, name: &str, path: &mut Vec<String>) -> Trees {
        if let Some(done) = self.done.get(name) {
            return done.clone();
        }
        let own = |tree: &Table| tree.table(name).cloned().unwrap_or_default();
        let mut written = own(&self.trees.written);
        let extends = written.remove("extends").filter(|entry| entry.node.value != Value::Null);
        let bases = extends.map_or(Some(Vec::new()), |entry| one_or_several(&entry.node));
        let mut broken = bases.is_none();
        path.push(name.to_owned());
        let mut merged = Trees::default();
        for base in bases.unwrap_or_default() {
            if self.is_base(&base, path) {
                let below = self.environment(&base.text, path);
                self.lay_over(&mut merged, below);
                broken |= self.broken.contains(&base.text);
                self.bases.insert(base.text);
            } else {
                broken = true;
            }
        }
        path.pop();
        if broken {
            self.broken.insert(name.to_owned());
        }
        self.lay_over(&mut merged, Trees { written, assigned: own(&self.trees.assigned) });
        self.done.insert(name.to_owned(), merged.clone());
        merged
    }

    fn lay_over(&mut self, weaker: &mut Trees, stronger: Trees) {
        weaker.written = merge_tables(std::mem::take(&mut weaker.written), stronger.written, self.errors);
        weaker.assigned = merge_tables(std::mem::take(&mut weaker.assigned), stronger.assigned, self.errors);
    }

    /// Whether there is such an environment, and it is not one of those that led here.
    fn is_base(&mut self, base: &Text, path: &[String]) -> bool {
        let names = || environments(&self.trees.written).map(|(name, _)| name);
        if let Some(from) = path.iter().position(|name| *name == base.text) {
            let circle: Vec<&str> = path[from..].iter().map(String::as_str).chain([base.text.as_str()]).collect();
            let message = format!("`extends` goes in a circle: {}", circle.join(" → "));
            let error = ConfigError::new(&base.origin, message);
            self.errors.push(error.hint("take one of them out of an `extends`"));
            return false;
        }
        let known_name = names().any(|name| name == base.text);
        if !known_name {
            let error = ConfigError::new(&base.origin, format!("there is no environment `{}`", base.text));
            let others = names().filter(|name| Some(*name) != path.last().map(String::as_str));
            self.errors.push(error.hint(known(&base.text, others)));
        }
        known_name
    }
}
