//! From YAML text to a tree, without deciding what a scalar means.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use crate::error::{ConfigError, ConfigErrors};
use crate::node::{Entry, Laid, Node, Table, Value};
use crate::origin::Origin;

/// Nobody writes an environment deeper; without a limit a hostile file would use up the stack.
const DEEPEST: usize = 64;

/// The most a file may come to once its aliases are spelled out, in bytes: a few lines of aliases of aliases can ask for
/// gigabytes ("billion laughs").
const LARGEST: usize = 4 << 20;

/// What a node weighs besides its text.
const NODE_WEIGHT: usize = 64;

/// What a text gave: mistakes that leave the rest readable are beside the tree.
pub(crate) struct Parsed {
    /// The tree; `None` where the text cannot be read as YAML.
    pub(crate) node: Option<Node>,
    /// What is wrong with the text.
    pub(crate) errors: Vec<ConfigError>,
}

/// Reads a file: one document, a table or nothing at all.
pub(crate) fn parse_file(file: &Arc<str>, bytes: &[u8]) -> Parsed {
    let place = Place::File(file);
    let parsed = match std::str::from_utf8(bytes) {
        Ok(text) => parse(place, text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let message = format!("the byte 0x{:02x} is not UTF-8", bytes[error.valid_up_to()]);
            let error = ConfigError::new(&place.after(&before), message).hint("save the file as UTF-8");
            Parsed { node: None, errors: vec![error] }
        }
    };
    refuse_other_roots(parsed)
}

/// Reads a YAML text as a table in which every key and value has its place: a file that is not an `environments.yaml`, read by
/// the rules of one. Nothing at all is an empty table.
///
/// # Errors
///
/// With every mistake of the text: not YAML, not a table, a key written twice.
pub fn parse_yaml(file: &str, text: &[u8]) -> Result<Table, ConfigErrors> {
    let Parsed { node, errors } = parse_file(&file.into(), text);
    let table = match node.map(|node| node.value) {
        Some(Value::Table(table)) => table,
        _ => Table::new(),
    };
    ConfigErrors::check(table, errors)
}

/// Reads a value given outside of a file, where every part of it comes from one origin.
pub(crate) fn parse_value(origin: &Origin, text: &str) -> Parsed {
    parse(Place::Fixed(origin), text)
}

fn refuse_other_roots(mut parsed: Parsed) -> Parsed {
    if let Some(node) = &parsed.node
        && !matches!(node.value, Value::Table(_) | Value::Null)
    {
        let message = format!("a file of environments is a table, this is {}", node.what());
        parsed.errors.push(ConfigError::new(&node.origin, message).hint("start with `NAME:` and indent what is below"));
        parsed.node = None;
    }
    parsed
}

fn parse(place: Place<'_>, text: &str) -> Parsed {
    // The scanner takes NUL for the end of the text and would drop what follows in silence.
    let control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    if let Some(index) = text.find(control) {
        let message =
            format!("the control character {:?} may not be in a file", text[index..].chars().next().unwrap_or(' '));
        let hint = "take it out; in a text, write it as an escape within double quotes";
        return Parsed { node: None, errors: vec![ConfigError::new(&place.after(&text[..index]), message).hint(hint)] };
    }
    let mut builder = Builder {
        place,
        text,
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        weight: 0,
        errors: Vec::new(),
    };
    match builder.document() {
        Ok(node) => Parsed { node: Some(node), errors: builder.errors },
        Err(error) => {
            builder.errors.push(*error);
            Parsed { node: None, errors: builder.errors }
        }
    }
}

/// How a position becomes an origin.
#[derive(Clone, Copy)]
enum Place<'a> {
    File(&'a Arc<str>),
    Fixed(&'a Origin),
}

impl Place<'_> {
    fn origin(self, marker: Marker) -> Origin {
        self.at(marker.line(), marker.col() + 1)
    }

    /// The place right behind a text.
    fn after(self, text: &str) -> Origin {
        let line = text.matches('\n').count() + 1;
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.at(line, column)
    }

    fn at(self, line: usize, column: usize) -> Origin {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        match self {
            Self::File(file) => Origin::at(file, number(line), number(column)),
            Self::Fixed(origin) => origin.clone(),
        }
    }
}

/// An error that ends the reading of a text. Boxed: it travels through every level of the recursion.
type Fatal = Box<ConfigError>;

struct Builder<'t> {
    place: Place<'t>,
    text: &'t str,
    events: Parser<'t, StrInput<'t>>,
    /// Every finished anchor with its weight.
    anchors: HashMap<usize, (Node, usize)>,
    weight: usize,
    errors: Vec<ConfigError>,
}

impl<'t> Builder<'t> {
    fn document(&mut self) -> Result<Node, Fatal> {
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                Event::StreamEnd => return Ok(Node { value: Value::Null, origin: self.place.at(1, 1) }),
                _ => {
                    let node = self.node(event, at, 0)?;
                    self.refuse_second_document()?;
                    return Ok(node);
                }
            }
        }
    }

    fn refuse_second_document(&mut self) -> Result<(), Fatal> {
        loop {
            match self.next()? {
                (Event::DocumentStart(_), at) => {
                    let error = ConfigError::new(&self.place.origin(at), "a second document starts here");
                    return Err(error
                        .hint("a file holds one document: put the second one into a file of its own")
                        .into());
                }
                (Event::StreamEnd, _) => return Ok(()),
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Marker), Fatal> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start)),
            Some(Err(error)) => {
                let hint = match error.info() {
                    info if info.contains("unknown anchor") => {
                        "`*NAME` repeats what `&NAME` marks above it; quote a text that starts with `*`"
                    }
                    _ => "look here and above for a quote, a bracket or a `:` that is missing or too much",
                };
                let problem = ConfigError::new(&self.place.origin(*error.marker()), error.info().to_lowercase());
                Err(match self.line_indented_by_tab(error.marker().line()) {
                    Some(line) => problem.hint(format!("line {line} is indented by a tab: use spaces")).into(),
                    None => problem.hint(hint).into(),
                })
            }
            None => Ok((Event::StreamEnd, Marker::default())),
        }
    }

    /// The scanner notices a tab at the line it is on or at the one after it.
    fn line_indented_by_tab(&self, line: usize) -> Option<usize> {
        let by_tab = |line: &usize| {
            let text = self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
            text[..text.len() - text.trim_start().len()].contains('\t')
        };
        [line, line.saturating_sub(1)].into_iter().find(by_tab)
    }

    fn node(&mut self, event: Event<'t>, at: Marker, depth: usize) -> Result<Node, Fatal> {
        let origin = self.place.origin(at);
        if depth > DEEPEST {
            let error = ConfigError::new(&origin, format!("more than {DEEPEST} levels of lists and tables"));
            return Err(error.hint("look for brackets that are not closed").into());
        }
        let before = self.weight;
        self.weigh(NODE_WEIGHT, &origin)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = self.tag(tag.as_deref(), &origin);
                self.weigh(text.len(), &origin)?;
                (scalar(&text, style == ScalarStyle::Plain && !is_text), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag.as_deref(), &origin);
                (Value::List(self.list(depth)?), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag.as_deref(), &origin);
                (Value::Table(self.table(depth)?), anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, &origin),
            _ => {
                return Err(ConfigError::new(&origin, "a value is expected here").hint("write `~` for nothing").into());
            }
        };
        let node = Node { value, origin };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.weight - before));
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, origin: &Origin) -> Result<Node, Fatal> {
        let Some((node, weight)) = self.anchors.get(&anchor) else {
            let error = ConfigError::new(origin, "this alias names an anchor that is not finished yet");
            return Err(error.hint("nothing can hold itself: write out what is meant").into());
        };
        let (node, weight) = (node.clone(), *weight);
        self.weigh(weight, origin)?;
        Ok(node)
    }

    fn weigh(&mut self, weight: usize, origin: &Origin) -> Result<(), Fatal> {
        self.weight += weight;
        if self.weight > LARGEST {
            let message =
                format!("the file is too large: with its aliases spelled out it passes {} MiB here", LARGEST >> 20);
            return Err(ConfigError::new(origin, message).hint("use fewer aliases of aliases").into());
        }
        Ok(())
    }

    /// Says whether the tag is `!!str`, which makes any scalar a text. Others would change what is written.
    fn tag(&mut self, tag: Option<&Tag>, origin: &Origin) -> bool {
        let Some(tag) = tag else { return false };
        let is_text = tag.is_yaml_core_schema() && tag.suffix == "str";
        if !is_text {
            let error = ConfigError::new(origin, format!("the YAML tag `{}` is not understood", written(tag)));
            self.errors.push(error.hint("leave it out: what a text means is decided by the setting it is for"));
        }
        is_text
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fatal> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(items);
            }
            items.push(self.node(event, at, depth + 1)?);
        }
    }

    fn table(&mut self, depth: usize) -> Result<Table, Fatal> {
        let mut table = Table::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(table);
            }
            let (key, laid) = self.key(event, at)?;
            let key_origin = self.place.origin(at);
            let (event, at) = self.next()?;
            let node = self.node(event, at, depth + 1)?;
            self.insert(&mut table, key, Entry { key_origin, laid, node });
        }
    }

    /// The key, and how its value is laid: `key+` is for behind. A quoted key is taken literally: `"C++": …` is a tag.
    fn key(&mut self, event: Event<'t>, at: Marker) -> Result<(String, Laid), Fatal> {
        let origin = self.place.origin(at);
        let Event::Scalar(text, style, ..) = event else {
            let error = ConfigError::new(&origin, "a key must be a text");
            return Err(error
                .hint("quote a key that starts with `[`, `{`, `*` or `&`; a template is quoted as a whole")
                .into());
        };
        self.weigh(text.len(), &origin)?;
        if text.contains('\0') {
            let error = ConfigError::new(&origin, "the character \\0 may not be in a key");
            return Err(error.hint("take it out").into());
        }
        if style != ScalarStyle::Plain {
            return Ok((text.into_owned(), Laid::Over));
        }
        match text.as_ref() {
            "" => Err(ConfigError::new(&origin, "a key is missing").hint("write `KEY: VALUE`").into()),
            "<<" => {
                let error = ConfigError::new(&origin, "the merge key `<<` is not part of YAML 1.2");
                Err(error.hint("an environment takes over from another one by `extends: NAME`").into())
            }
            text => match text.strip_suffix('+').filter(|key| !key.is_empty()) {
                Some(key) => Ok((key.to_owned(), Laid::Behind)),
                None => Ok((text.to_owned(), Laid::Over)),
            },
        }
    }

    fn insert(&mut self, table: &mut Table, key: String, mut entry: Entry) {
        if entry.laid == Laid::Behind && entry.node.value == Value::Null {
            entry.node.value = Value::List(Vec::new());
        }
        if entry.laid == Laid::Behind && entry.node.as_list().is_none() {
            let message = format!("`{key}+` appends to a list, {} is written", entry.node.what());
            self.errors.push(ConfigError::new(&entry.node.origin, message).hint(format!("write `{key}+: [ITEM]`")));
            return;
        }
        match table.entry(&key) {
            None => {
                table.insert(key, entry);
            }
            Some(first) => {
                let message = match first.laid == entry.laid {
                    true => format!("the key `{key}` is in this table twice"),
                    false => format!("`{key}` and `{key}+` are in one table"),
                };
                let error = ConfigError::new(&entry.key_origin, message).related("first here", &first.key_origin);
                self.errors.push(error.hint("keep one of the two"));
            }
        }
    }
}

/// The tag as people write it.
fn written(tag: &Tag) -> String {
    match tag.is_yaml_core_schema() {
        true => format!("!!{}", tag.suffix),
        false => tag.to_string(),
    }
}

/// Everything is a text but the plain spellings of nothing.
fn scalar(text: &str, plain: bool) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" if plain => Value::Null,
        _ => Value::Scalar { text: text.to_owned(), plain },
    }
}
