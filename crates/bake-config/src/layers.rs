//! Collecting the layers, weakest to strongest: built-in, files, `BAKE__…` variables, `--set`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::config::{Config, Trees};
use crate::error::{ConfigError, ConfigErrors};
use crate::node::{Entry, Laid, Node, Table, Value};
use crate::origin::Origin;
use crate::source::merge_layers;
use crate::{schema, yaml};

/// What starts the name of a variable that is ours.
const PREFIX: &str = "BAKE__";

/// Files that include files that include files: beyond this it is a circle in disguise (`../a/../a/…`).
const DEEPEST_INCLUDE: usize = 16;

/// How a file is read; an argument so that `include` can be tested without a disk.
type Reader = Box<dyn Fn(&Path) -> io::Result<Vec<u8>>>;

/// The texts a configuration is made of.
///
/// The strength of a layer is its kind's, whatever the order of the calls; files and settings among themselves are
/// given from the weakest to the strongest.
pub struct Layers {
    built_in: Vec<Vec<u8>>,
    files: Vec<(PathBuf, io::Result<Vec<u8>>)>,
    variables: Vec<(String, String)>,
    sets: Vec<(String, String, Origin)>,
    reader: Reader,
}

impl Default for Layers {
    fn default() -> Self {
        Self::new()
    }
}

impl Layers {
    /// No layers yet.
    pub fn new() -> Self {
        let reader = Box::new(|path: &Path| std::fs::read(path));
        Self { built_in: Vec::new(), files: Vec::new(), variables: Vec::new(), sets: Vec::new(), reader }
    }

    /// Adds a text that ships with the program.
    pub fn built_in(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.built_in.push(text.into());
        self
    }

    /// Adds the content of a file, stronger than those before it.
    pub fn file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.into(), Ok(content.into())));
        self
    }

    /// Reads files, as [`find_files`](crate::find_files) lists them. One that cannot be read is reported by
    /// [`load`](Self::load), with everything else.
    pub fn files(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        for path in paths {
            let content = (self.reader)(&path);
            self.files.push((path, content));
        }
        self
    }

    /// Adds the process's variables; those that do not start with `BAKE__` are passed over.
    ///
    /// `BAKE__STATE_DIR`, `BAKE__PLUGINS__CLOUD__EC2__REGION`: double underscores between keys. Names that people invent
    /// (environments, variables, tags) keep their case; the keys of `bake` itself may be in capitals.
    pub fn variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables.extend(variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)));
        self
    }

    /// Sets one value: `plugins.cloud.ec2.region`, `vars.creator`. A key with a dot in it is quoted: `tags."a.b"`; a key that
    /// ends with `+` appends. A value that starts with `[` is a list, any other is the text as it stands.
    pub fn set(mut self, path: impl Into<String>, value: impl Into<String>, origin: Origin) -> Self {
        self.sets.push((path.into(), value.into(), origin));
        self
    }

    /// Reads included files with this instead of from the disk.
    pub fn reader(mut self, reader: impl Fn(&Path) -> io::Result<Vec<u8>> + 'static) -> Self {
        self.reader = Box::new(reader);
        self
    }

    /// Merges the layers and checks all of them.
    ///
    /// # Errors
    ///
    /// With every mistake in every layer.
    pub fn load(self, catalog: &Catalog) -> Result<Config, ConfigErrors> {
        let mut reading = Reading::new(&self.reader);
        for text in &self.built_in {
            reading.text(&Origin::built_in().file, text, &mut Vec::new());
        }
        for (path, content) in &self.files {
            let file: Arc<str> = path.display().to_string().into();
            match content {
                Ok(content) => reading.text(&file, content, &mut vec![path.clone()]),
                Err(error) => reading.fail(ConfigError::new(&Origin::named(file), cannot_read(error))),
            }
        }
        let mut variables = self.variables;
        variables.sort();
        for (name, value) in variables {
            reading.variable(&name, &value, catalog);
        }
        for (path, value, origin) in self.sets {
            reading.set(&path, &value, &origin);
        }
        let Reading { tables, assigned, mut errors, unreadable, .. } = reading;
        if unreadable {
            // What a text that cannot be read would have said is unknown: checking names without it would report nonsense.
            return Err(ConfigErrors::check((), errors).expect_err("an unreadable layer left an error"));
        }
        let trees = Trees { written: merge_layers(tables, &mut errors), assigned: merge_layers(assigned, &mut errors) };
        Config::new(&trees, catalog, errors)
    }
}

fn cannot_read(error: &io::Error) -> String {
    format!("cannot read the file: {error}")
}

/// The layers as they come in.
struct Reading<'a> {
    reader: &'a Reader,
    tables: Vec<Table>,
    /// What variables and flags say of `plugins` and `vars`, see [`Trees::assigned`].
    assigned: Vec<Table>,
    errors: Vec<ConfigError>,
    /// Whether a layer is missing from `tables` because it could not be read.
    unreadable: bool,
}

impl<'a> Reading<'a> {
    fn new(reader: &'a Reader) -> Self {
        Self { reader, tables: Vec::new(), assigned: Vec::new(), errors: Vec::new(), unreadable: false }
    }

    fn fail(&mut self, error: ConfigError) {
        self.errors.push(error);
        self.unreadable = true;
    }

    /// Adds a text, after what it includes. `stack` holds the files being read, this one last.
    fn text(&mut self, file: &Arc<str>, content: &[u8], stack: &mut Vec<PathBuf>) {
        let parsed = yaml::parse_file(file, content);
        self.errors.extend(parsed.errors);
        match parsed.node.map(|node| node.value) {
            Some(Value::Table(mut table)) => {
                if let Some(entry) = table.remove("include") {
                    self.include(&entry, stack);
                }
                self.tables.push(table);
            }
            Some(_) => {}
            None => self.unreadable = true,
        }
    }

    fn include(&mut self, entry: &Entry, stack: &mut Vec<PathBuf>) {
        let Some(names) = schema::one_or_several(&entry.node) else {
            let error = ConfigError::new(&entry.node.origin, "`include` takes a file or a list of files");
            self.errors.push(error.hint("write `include: FILE` or `include: [FILE, FILE]`"));
            return;
        };
        for name in names {
            let folder = stack.last().and_then(|file| file.parent()).unwrap_or(Path::new(""));
            let path = folder.join(&name.text);
            if stack.contains(&path) || stack.len() > DEEPEST_INCLUDE {
                let error = ConfigError::new(&name.origin, format!("`{}` includes itself", path.display()));
                self.errors.push(error.hint("take it out: a file that is included is read once"));
                continue;
            }
            match (self.reader)(&path) {
                Ok(content) => {
                    stack.push(path.clone());
                    self.text(&path.display().to_string().into(), &content, stack);
                    stack.pop();
                }
                Err(error) => {
                    let message = format!("cannot read the included file `{}`: {error}", path.display());
                    let hint = "a relative path starts at the folder of the file that includes";
                    self.fail(ConfigError::new(&name.origin, message).hint(hint));
                }
            }
        }
    }

    fn variable(&mut self, name: &str, value: &str, catalog: &Catalog) {
        let origin = Origin::named(name);
        let segments = name.strip_prefix(PREFIX).unwrap_or(name).split("__").map(str::to_owned).collect();
        self.assign(schema::fold_case(segments, catalog), value, &origin);
    }

    fn set(&mut self, path: &str, value: &str, origin: &Origin) {
        match split_path(path) {
            Some(segments) => self.assign(segments, value, origin),
            None => {
                let error = ConfigError::new(origin, format!("`{path}`: a quote is not closed"));
                self.errors.push(error.hint("quote a key that has a dot in it: `tags.\"a.b\"`"));
            }
        }
    }

    /// Adds a layer of one value.
    fn assign(&mut self, mut segments: Vec<String>, value: &str, origin: &Origin) {
        let append = segments.last().is_some_and(|last| last.len() > 1 && last.ends_with('+'));
        if let Some(last) = segments.last_mut().filter(|_| append) {
            last.pop();
        }
        if segments.iter().any(String::is_empty) {
            let error = ConfigError::new(origin, "a key is missing");
            self.errors.push(error.hint("write `a.b.c` for `--set`, and `BAKE__a__b__c` for a variable"));
            return;
        }
        let Some(node) = self.value(value, append, origin) else { return };
        let tables = if schema::is_tuning(&segments) { &mut self.assigned } else { &mut self.tables };
        let laid = if append { Laid::Behind } else { Laid::Over };
        let entry = Entry { key_origin: origin.clone(), laid, node };
        let nest = |entry: Entry, key: String| {
            let table = Table::from_iter([(key, entry)]);
            let node = Node { value: Value::Table(table), origin: origin.clone() };
            Entry { key_origin: origin.clone(), laid: Laid::Over, node }
        };
        let whole = segments.into_iter().rev().fold(entry, nest);
        if let Value::Table(table) = whole.node.value {
            tables.push(table);
        }
    }

    /// A list if it starts like one, else the text as it stands: an account id, a template, the word `null`.
    fn value(&mut self, text: &str, append: bool, origin: &Origin) -> Option<Node> {
        if !text.starts_with('[') {
            if append {
                let error = ConfigError::new(origin, "only a list can be appended");
                // Without the text: it may be a secret.
                self.errors.push(error.hint("put it in brackets: `[ITEM]`"));
                return None;
            }
            return Some(Node::text(text, origin.clone()));
        }
        let parsed = yaml::parse_value(origin, text);
        self.errors.extend(parsed.errors);
        parsed.node
    }
}

/// Splits `a.b."c.d"` at its dots; `None` if a quote is left open.
fn split_path(path: &str) -> Option<Vec<String>> {
    let mut segments = vec![String::new()];
    let mut quoted = false;
    for c in path.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => segments.push(String::new()),
            c => segments.last_mut()?.push(c),
        }
    }
    (!quoted).then_some(segments)
}
