//! What Aminator reads: the files of a site over its own defaults.

use std::collections::BTreeMap;
use std::path::Path;

use bake_config::{Node, Origin, Table, Value, parse_yaml};

use crate::find::Source;
use crate::report::Report;

/// The file that Aminator's own defaults seem to come from.
const SHIPPED: &str = "Aminator's defaults";

/// A plugin of Aminator's: its kind and its name.
pub(crate) type PluginName = (String, String);

/// What a file of Aminator's is about, as its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Environments,
    Main,
    Logging,
    Plugin(PluginName),
}

impl FileKind {
    /// Tells it from a file's name: `aminator.plugins.cloud.ec2.yml`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        match name.strip_suffix(".yml").or_else(|| name.strip_suffix(".yaml"))? {
            "environments" => Some(Self::Environments),
            "aminator" => Some(Self::Main),
            "logging" => Some(Self::Logging),
            other => {
                let (kind, name) = other.strip_prefix("aminator.plugins.")?.split_once('.')?;
                Some(Self::Plugin((kind.to_owned(), name.to_owned())))
            }
        }
    }
}

/// The tables that several files come to.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) environments: Table,
    pub(crate) main: Table,
    pub(crate) plugins: BTreeMap<PluginName, Table>,
}

/// A site: what its files say, and what holds where they say nothing.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) written: Tables,
    shipped: Tables,
}

impl Site {
    /// Reads the files, weakest first.
    pub(crate) fn read(sources: &[Source], report: &mut Report) -> Self {
        let mut written = Tables::default();
        for source in sources {
            let file = source.path.display().to_string();
            let Some(kind) = FileKind::of(&source.path) else {
                report.note(&Origin::named(file), "the whole file", "left out: its name is none of Aminator's");
                continue;
            };
            if kind == FileKind::Logging {
                let outcome = "left out: bake keeps a log of every run by itself, and `--verbose` shows more of it";
                report.note(&Origin::named(file), "the whole file", outcome);
                continue;
            }
            match parse_yaml(&file, &source.content) {
                Ok(table) => written.lay(kind, table, report),
                Err(errors) => report.wrong(errors),
            }
        }
        Self { written, shipped: shipped() }
    }

    /// Whether nobody but Aminator itself wrote this.
    pub(crate) fn is_shipped(origin: &Origin) -> bool {
        &*origin.file == SHIPPED
    }

    /// What holds for all environments together: the site's first, in its order.
    pub(crate) fn environments(&self, report: &mut Report) -> Table {
        lay("", self.shipped.environments.clone(), self.written.environments.clone(), report)
    }

    /// What holds for a plugin.
    pub(crate) fn plugin(&self, kind: &str, name: &str, report: &mut Report) -> Table {
        let key = (kind.to_owned(), name.to_owned());
        let table = |tables: &Tables| tables.plugins.get(&key).cloned().unwrap_or_default();
        lay("", table(&self.shipped), table(&self.written), report)
    }

    /// Aminator's defaults for a plugin, if it is one of its own.
    pub(crate) fn shipped_plugin(&self, plugin: &PluginName) -> Option<&Table> {
        self.shipped.plugins.get(plugin)
    }

    /// The defaults of `aminator.yml`.
    pub(crate) fn shipped_main(&self) -> &Table {
        &self.shipped.main
    }
}

impl Tables {
    fn lay(&mut self, kind: FileKind, table: Table, report: &mut Report) {
        let weaker = match kind {
            FileKind::Environments => &mut self.environments,
            FileKind::Main => &mut self.main,
            FileKind::Plugin(plugin) => self.plugins.entry(plugin).or_default(),
            FileKind::Logging => return,
        };
        *weaker = lay("", std::mem::take(weaker), table, report);
    }
}

/// Lays a table over another one as Aminator does: tables merge, all else replaces. Its own keys come first.
fn lay(path: &str, mut weaker: Table, stronger: Table, report: &mut Report) -> Table {
    let mut laid = Table::new();
    for (key, mut entry) in stronger {
        if let Some(Value::Table(below)) = weaker.remove(&key).map(|entry| entry.node.value) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let above = report.table(&path, &entry.node).cloned().unwrap_or_default();
            entry.node.value = Value::Table(lay(&path, below, above, report));
        }
        laid.insert(key, entry);
    }
    for (key, entry) in weaker {
        laid.insert(key, entry);
    }
    laid
}

fn shipped() -> Tables {
    let all = parse_yaml(SHIPPED, include_bytes!("shipped.yaml")).expect("a test reads Aminator's defaults");
    let table = |parent: &Table, key: &str| parent.get(key).and_then(Node::as_table).cloned().unwrap_or_default();
    let mut plugins = BTreeMap::new();
    for (kind, entry) in table(&all, "plugins").iter() {
        for (name, entry) in entry.node.as_table().into_iter().flat_map(Table::iter) {
            plugins.insert((kind.to_owned(), name.to_owned()), entry.node.as_table().cloned().unwrap_or_default());
        }
    }
    Tables { environments: table(&all, "environments"), main: table(&all, "aminator"), plugins }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_what_is_in_it() {
        let kind = |name| FileKind::of(Path::new(name));
        let plugin = |kind: &str, name: &str| Some(FileKind::Plugin((kind.into(), name.into())));
        assert_eq!(kind("/etc/aminator/environments.yml"), Some(FileKind::Environments));
        assert_eq!(kind("aminator.yaml"), Some(FileKind::Main));
        assert_eq!(kind("aminator.plugins.cloud.ec2.yml"), plugin("cloud", "ec2"));
        assert_eq!(kind("aminator.plugins.cloud.my.own.yml"), plugin("cloud", "my.own"));
        assert_eq!(
            [kind("aminator.plugins.cloud.yml"), kind("environments.json"), kind("/"), kind("x.yml")],
            [const { None }; 4]
        );
    }

    #[test]
    fn aminators_defaults_can_be_read() {
        let shipped = shipped();
        assert_eq!(shipped.environments.keys().count(), 7);
        assert_eq!(shipped.plugins.len(), 10);
        assert!(shipped.main.get("aminator_root").is_some());
    }
}
