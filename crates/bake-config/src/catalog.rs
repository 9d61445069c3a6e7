//! What exists: the plugins a file may name and the settings each of them takes.

use std::collections::BTreeMap;
use std::fmt;

use crate::schema::check_defaults;

/// The keys that every finalizer takes, whatever its plugin.
pub(crate) const FINALIZER_KEYS: [&str; 7] = ["name", "optional", "when", "else", "after", "timeout", "retry"];

/// Those of them that belong to one place in a finalizer set, and to no other use of the plugin.
pub(crate) const PLACE_KEYS: [&str; 3] = ["name", "else", "after"];

/// The kinds of plugin an environment composes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginKind {
    /// Where base images come from and finished images go to.
    Cloud,
    /// A disk to bake on.
    BlockDevice,
    /// Makes the disk a mounted root, and back.
    Volume,
    /// Installs packages.
    Provisioner,
    /// One action after the snapshot.
    Finalizer,
}

impl PluginKind {
    /// All kinds, in the order people write them.
    pub const ALL: [Self; 5] = [Self::Cloud, Self::BlockDevice, Self::Volume, Self::Provisioner, Self::Finalizer];

    /// The key in a file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::BlockDevice => "blockdevice",
            Self::Volume => "volume",
            Self::Provisioner => "provisioner",
            Self::Finalizer => "finalizer",
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The order of finalizers: a set lists them by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Makes an image.
    Register,
    /// Tags what was made.
    Tag,
    /// Copies and shares it.
    Distribute,
    /// Tells somebody.
    Notify,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Register => "register",
            Self::Tag => "tag",
            Self::Distribute => "distribute",
            Self::Notify => "notify",
        })
    }
}

/// Whether a known plugin can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// It is in this program.
    Yes,
    /// It is not; choosing it is an error.
    No {
        /// What to do about it: "build with `--features ec2`".
        how: &'static str,
    },
}

/// What a plugin says of itself: all that may be written about it in a file.
#[derive(Clone, Copy, Debug)]
pub struct PluginInfo {
    /// Its kind.
    pub kind: PluginKind,
    /// Its name in files.
    pub name: &'static str,
    /// Its version, for the journal.
    pub version: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// When it runs; given by finalizers, and only by them.
    pub stage: Option<Stage>,
    /// The settings it takes.
    pub settings: &'static [Setting],
    /// What the keys of every finalizer are for this one when nobody writes them: `&[("optional", "true")]`.
    pub usual: &'static [(&'static str, &'static str)],
    /// Whether this program has it.
    pub built: Built,
}

/// One setting of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key, in snake case.
    pub name: &'static str,
    /// What may be written.
    pub takes: Takes,
    /// What holds when nobody writes anything: a text, or for lists and tables YAML on one line.
    pub default: Option<&'static str>,
    /// One line for lists.
    pub summary: &'static str,
}

/// What a setting takes. Nested kinds are references, so that a plugin can write its settings as a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Any text, kept as written. Templates are texts.
    Text,
    /// A text that is never shown.
    Secret,
    /// A whole number in decimal digits.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A time with its unit: `90s`, `1h 30m`.
    Duration,
    /// A number of bytes with its unit: `8GiB`, `512MiB`.
    Size,
    /// Exactly twelve digits.
    AccountId,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of such items.
    List(&'static Takes),
    /// A table from any key to a text, keys keep their case: tags.
    TextMap,
    /// A table from any key to such a value.
    Map(&'static Takes),
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Secret => f.write_str("a secret text"),
            Self::Integer => f.write_str("a whole number"),
            Self::Boolean => f.write_str("`true` or `false`"),
            Self::Duration => f.write_str("a time such as `90s` or `1h 30m`"),
            Self::Size => f.write_str("a size such as `8GiB`"),
            Self::AccountId => f.write_str("an account id of exactly 12 digits"),
            Self::OneOf(words) => write!(f, "one of `{}`", words.join("`, `")),
            Self::List(item) => write!(f, "a list, each item {item}"),
            Self::TextMap => f.write_str("a table of texts"),
            Self::Map(value) => write!(f, "a table, each value {value}"),
        }
    }
}

/// All plugins there are, by kind and name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    plugins: BTreeMap<(PluginKind, &'static str), PluginInfo>,
}

impl Catalog {
    /// Makes a catalog.
    ///
    /// # Panics
    ///
    /// On a name that two plugins of a kind share, on a finalizer without a stage (or a stage without a finalizer), on a
    /// setting named twice or like a key that every finalizer takes, on a default that the setting does not take, and on a
    /// usual value that no key of every finalizer takes: mistakes of the program, seen at its first start.
    pub fn new(plugins: Vec<PluginInfo>) -> Self {
        let mut catalog = Self::default();
        for info in plugins {
            check_info(&info);
            let before = catalog.plugins.insert((info.kind, info.name), info);
            assert!(before.is_none(), "two plugins are called {} `{}`", info.kind, info.name);
        }
        catalog
    }

    /// The plugin of that kind and name.
    pub fn get(&self, kind: PluginKind, name: &str) -> Option<&PluginInfo> {
        // Looked up by scanning: the map's key holds a `&'static str`, and there are a few dozen plugins.
        self.plugins(kind).find(|info| info.name == name)
    }

    /// The plugins of a kind, by name.
    pub fn plugins(&self, kind: PluginKind) -> impl Iterator<Item = &PluginInfo> {
        self.plugins.values().filter(move |info| info.kind == kind)
    }

    /// All plugins, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = &PluginInfo> {
        self.plugins.values()
    }
}

fn check_info(info: &PluginInfo) {
    let (kind, name) = (info.kind, info.name);
    let is_finalizer = kind == PluginKind::Finalizer;
    assert_eq!(info.stage.is_some(), is_finalizer, "{kind} `{name}`: finalizers, and only they, have a stage");
    for (index, setting) in info.settings.iter().enumerate() {
        let earlier = &info.settings[..index];
        let repeated = earlier.iter().any(|other| other.name == setting.name);
        assert!(!repeated, "{kind} `{name}` has two settings called `{}`", setting.name);
        let taken = is_finalizer && FINALIZER_KEYS.contains(&setting.name);
        assert!(!taken, "{kind} `{name}`: `{}` belongs to every finalizer", setting.name);
    }
    for (key, _) in info.usual {
        let known = is_finalizer && FINALIZER_KEYS.contains(key) && !PLACE_KEYS.contains(key);
        assert!(known, "{kind} `{name}`: `{key}` cannot be usual, it is no key that every finalizer takes everywhere");
    }
    if let Err(problem) = check_defaults(info) {
        panic!("{kind} `{name}`: {problem}");
    }
}
