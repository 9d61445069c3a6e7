//! The new file, from what was read.

use crate::environments::{Environment, Environments};
use crate::finalizers::{Finalizer, Store};
use crate::find::Source;
use crate::yaml::{Part, Tree, write};

const DEFAULT: &str = "Used without `--env`.";
const VARS: &str = "What templates know as `vars`. `--set vars.NAME=VALUE` changes one for a single bake.";
const PLUGINS: &str = "Settings of plugins, for all environments.";
const ENVIRONMENTS: &str = "The environments.";
const SHIPPED: &str = "Environments that come with Aminator; the files above do not mention them.";

/// Everything that was read.
pub(crate) struct Read {
    pub(crate) environments: Environments,
    pub(crate) cloud: Vec<(String, Tree)>,
    pub(crate) ebs: Finalizer,
    pub(crate) s3: Finalizer,
}

/// Writes the file.
pub(crate) fn document(sources: &[Source], read: &Read) -> String {
    let mut parts = Vec::new();
    if let Some(default) = &read.environments.default {
        parts.push(Part { comment: DEFAULT, key: "default".to_owned(), tree: Tree::text(default) });
    }
    let shared = [("vars", VARS, read.vars()), ("plugins", PLUGINS, read.plugins())];
    parts.extend(shared.into_iter().filter(|(_, _, tree)| !tree.is_empty_table()).map(|(key, comment, tree)| Part {
        comment,
        key: key.to_owned(),
        tree,
    }));
    let (shipped, own): (Vec<_>, Vec<_>) = read.environments.all.iter().partition(|environment| environment.shipped);
    for (comment, environments) in [(ENVIRONMENTS, own), (SHIPPED, shipped)] {
        for (index, environment) in environments.into_iter().enumerate() {
            let comment = if index == 0 { comment } else { "" };
            parts.push(Part { comment, key: environment.name.clone(), tree: read.environment(environment) });
        }
    }
    write(&heading(sources), &parts)
}

fn heading(sources: &[Source]) -> Vec<String> {
    let head = ["Imported by `bake env import` from the configuration of Netflix Aminator:", ""].map(str::to_owned);
    let files = sources.iter().map(|source| format!("  {}", source.path.display()));
    let foot = ["", "Where these files say nothing, Aminator's own defaults are written out."].map(str::to_owned);
    head.into_iter().chain(files).chain(foot).collect()
}

impl Read {
    fn finalizer(&self, store: Store) -> &Finalizer {
        match store {
            Store::Ebs => &self.ebs,
            Store::S3 => &self.s3,
        }
    }

    /// The vars on which both finalizers agree.
    fn vars(&self) -> Tree {
        Tree::Table(agreed(&self.ebs.vars(), &self.s3.vars()))
    }

    /// The rest of them, for the environments of one finalizer.
    fn own_vars(&self, store: Store) -> Tree {
        Tree::Table(differing(&self.finalizer(store).vars(), &self.finalizer(store.other()).vars()))
    }

    fn own_tags(&self, store: Store) -> Tree {
        Tree::Table(differing(&self.finalizer(store).tags, &self.finalizer(store.other()).tags))
    }

    fn plugins(&self) -> Tree {
        let mut finalizers: Vec<(String, Tree)> = Store::ALL
            .into_iter()
            .map(|store| (store.register().to_owned(), Tree::Table(self.finalizer(store).settings.clone())))
            .collect();
        finalizers.push(tags(Tree::Table(agreed(&self.ebs.tags, &self.s3.tags))));
        let mut kinds = Vec::new();
        if !self.cloud.is_empty() {
            kinds.push(("cloud".to_owned(), table("ec2", Tree::Table(self.cloud.clone()))));
        }
        kinds.push(("finalizer".to_owned(), Tree::Table(finalizers)));
        Tree::Table(kinds)
    }

    fn environment(&self, environment: &Environment) -> Tree {
        let mut entries: Vec<(String, Tree)> =
            environment.slots.iter().map(|(slot, plugin)| ((*slot).to_owned(), Tree::text(plugin))).collect();
        let set = [environment.store.register(), "tag_artifacts"].map(Tree::text);
        entries.push(("finalizer_set".to_owned(), Tree::List(set.into())));
        let vars = self.own_vars(environment.store);
        if !vars.is_empty_table() {
            entries.push(("vars".to_owned(), vars));
        }
        let own_tags = self.own_tags(environment.store);
        if !own_tags.is_empty_table() {
            entries.push(("plugins".to_owned(), table("finalizer", Tree::Table(vec![tags(own_tags)]))));
        }
        Tree::Table(entries)
    }
}

/// What both say.
fn agreed(one: &[(String, Tree)], other: &[(String, Tree)]) -> Vec<(String, Tree)> {
    one.iter().filter(|entry| other.contains(entry)).cloned().collect()
}

/// What the one says and the other does not. What only the other has is taken away: some of bake's own environments, which
/// lie below those of the same name here, extend one another.
fn differing(one: &[(String, Tree)], other: &[(String, Tree)]) -> Vec<(String, Tree)> {
    let own = one.iter().filter(|entry| !other.contains(entry)).cloned();
    let foreign = other.iter().filter(|(key, _)| one.iter().all(|(own, _)| own != key));
    own.chain(foreign.map(|(key, _)| (key.clone(), Tree::Nothing))).collect()
}

impl Finalizer {
    fn vars(&self) -> [(String, Tree); 2] {
        [("creator".to_owned(), self.creator.clone()), ("suffix".to_owned(), self.suffix.clone())]
    }
}

fn tags(tags: Tree) -> (String, Tree) {
    ("tag_artifacts".to_owned(), table("tags", tags))
}

fn table(key: &str, tree: Tree) -> Tree {
    Tree::Table(vec![(key.to_owned(), tree)])
}
