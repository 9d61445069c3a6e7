//! Writing YAML that people like to read and every reader reads alike.

/// Where a line should end.
const WIDTH: usize = 120;

/// A key of at most this many bytes may stand before its `:`; YAML allows 1024 characters.
const LONGEST_KEY: usize = 1000;

/// Words that a YAML reader may take for something other than a text.
const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// What can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// A table, in order.
    Table(Vec<(String, Tree)>),
    /// `~`: takes away what a weaker layer says.
    Nothing,
}

impl Tree {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether this is a table with nothing in it.
    pub(crate) fn is_empty_table(&self) -> bool {
        matches!(self, Self::Table(entries) if entries.is_empty())
    }
}

/// A key of the file with what it holds, and a remark above it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) comment: &'static str,
    pub(crate) key: String,
    pub(crate) tree: Tree,
}

/// Writes a file: a heading, then the parts with a blank line before each.
pub(crate) fn write(heading: &[String], parts: &[Part]) -> String {
    let mut out = String::new();
    comment(heading.iter().map(String::as_str), &mut out);
    for part in parts {
        out.push('\n');
        comment(part.comment.lines(), &mut out);
        entry(&part.key, &part.tree, 0, &mut out);
    }
    out
}

fn comment<'a>(lines: impl Iterator<Item = &'a str>, out: &mut String) {
    for line in lines {
        // A line break in the name of a file would end the comment and begin a key.
        let line: String = line.chars().map(|c| if is_printable(c) { c } else { '\u{fffd}' }).collect();
        *out += format!("# {line}").trim_end();
        out.push('\n');
    }
}

/// Writes `key: value`, as deep as `indent` says.
fn entry(key: &str, tree: &Tree, indent: usize, out: &mut String) {
    let space = " ".repeat(indent);
    let key = scalar(key);
    let head = match key.len() {
        length if length > LONGEST_KEY => format!("{space}? {key}\n{space}:"),
        _ => format!("{space}{key}:"),
    };
    *out += &head;
    value(tree, head.chars().count(), indent + 2, out);
}

/// Writes what follows a `:` or a `-` that ends in a column. What takes lines of its own is indented by `indent`.
fn value(tree: &Tree, column: usize, indent: usize, out: &mut String) {
    let one_line = match tree {
        Tree::Table(entries) if !entries.is_empty() => {
            out.push('\n');
            entries.iter().for_each(|(key, tree)| entry(key, tree, indent, out));
            return;
        }
        Tree::List(items) => {
            match flow(items).filter(|list| items.is_empty() || column + 1 + list.chars().count() <= WIDTH) {
                Some(list) => list,
                None => {
                    out.push('\n');
                    items.iter().for_each(|tree| item(tree, indent, out));
                    return;
                }
            }
        }
        Tree::Text(text) => {
            let short = scalar(text);
            match folded(text, indent).filter(|_| column + 1 + short.chars().count() > WIDTH) {
                Some(folded) => folded,
                None => short,
            }
        }
        Tree::Table(_) => "{}".to_owned(),
        Tree::Nothing => "~".to_owned(),
    };
    *out += &format!(" {one_line}\n");
}

fn item(tree: &Tree, indent: usize, out: &mut String) {
    let space = " ".repeat(indent);
    *out += &format!("{space}-");
    value(tree, indent + 1, indent + 2, out);
}

/// A list on one line, if all its items are texts.
fn flow(items: &[Tree]) -> Option<String> {
    let texts = items.iter().map(|item| match item {
        Tree::Text(text) => Some(scalar(text)),
        Tree::List(_) | Tree::Table(_) | Tree::Nothing => None,
    });
    Some(format!("[{}]", texts.collect::<Option<Vec<_>>>()?.join(", ")))
}

/// A text on one line, quoted where any reader could take it for something else.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let breaks_quotes = text.contains(['"', '\\']);
    match text.chars().all(is_printable) {
        true if breaks_quotes => format!("'{}'", text.replace('\'', "''")),
        _ => format!("\"{}\"", text.chars().map(escape).collect::<String>()),
    }
}

/// Whether a text needs no quotes: it begins with a letter or `/`, and nothing in it means something to YAML.
fn is_plain(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || "_/".contains(c));
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_-./@ ".contains(c);
    begins && text.chars().all(harmless) && !text.ends_with(' ') && !WORDS.contains(&text.to_lowercase().as_str())
}

fn is_printable(c: char) -> bool {
    // YAML 1.1 ends a line at the first two; the last one marks the order of bytes.
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A character between double quotes.
fn escape(c: char) -> String {
    match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        c if is_printable(c) => c.to_string(),
        c if u32::from(c) <= 0xff => format!("\\x{:02x}", u32::from(c)),
        c if u32::from(c) <= 0xffff => format!("\\u{:04x}", u32::from(c)),
        c => format!("\\U{:08x}", u32::from(c)),
    }
}

/// A long text as a folded block. Only words with one space between them come back as they were.
fn folded(text: &str, indent: usize) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    if words.iter().any(|word| word.is_empty()) || !text.chars().all(is_printable) || words.len() < 2 {
        return None;
    }
    let mut lines: Vec<String> = Vec::new();
    for phrase in phrases(&words) {
        match lines.last_mut() {
            Some(line) if indent + line.chars().count() + 1 + phrase.chars().count() <= WIDTH => {
                *line += &format!(" {phrase}");
            }
            _ => lines.push(phrase),
        }
    }
    let space = " ".repeat(indent);
    Some(format!(">-\n{space}{}", lines.join(&format!("\n{space}"))))
}

/// Puts the words of an expression together, so that no line ends inside of one.
fn phrases(words: &[&str]) -> Vec<String> {
    let mut phrases: Vec<String> = Vec::new();
    let mut open = false;
    for word in words {
        match phrases.last_mut() {
            Some(phrase) if open => *phrase += &format!(" {word}"),
            _ => phrases.push((*word).to_owned()),
        }
        let is_open = |phrase: &String| phrase.matches("{{").count() > phrase.matches("}}").count();
        open = phrases.last().is_some_and(is_open);
    }
    phrases
}

#[cfg(test)]
mod tests {
    use bake_config::{Node, Table, Value, parse_yaml};
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;

    fn read(table: &Table) -> Tree {
        Tree::Table(table.iter().map(|(key, entry)| (key.to_owned(), read_node(&entry.node))).collect())
    }

    fn read_node(node: &Node) -> Tree {
        match &node.value {
            Value::Scalar { text, .. } => Tree::text(text),
            Value::List(items) => Tree::List(items.iter().map(read_node).collect()),
            Value::Table(table) => read(table),
            Value::Null => Tree::Nothing,
        }
    }

    fn written(entries: &[(String, Tree)]) -> String {
        let part = |(key, tree): &(String, Tree)| Part { comment: "A remark.", key: key.clone(), tree: tree.clone() };
        write(
            &["A heading,".into(), String::new(), "with a blank line".into()],
            &entries.iter().map(part).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn quotes_are_where_they_are_needed() {
        let texts = "us-east-1|/dev/sda1|a b||yes|No|~|null|012|1.10|0x1f|1e3|.inf|-|2026-01-02|12:30|a: b|a #b|#a|{a}|[a]|\
                     a,b|*a|&a|!a|%a|@a|`a`|it's|say \"it\"|a\\b|a\nb| a|a |<<|é|\u{85}\u{2028}\u{7}";
        let lines: Vec<String> = texts.split('|').map(scalar).collect();
        assert_snapshot!(lines.join("\n"), @r##"
        us-east-1
        /dev/sda1
        a b
        ""
        "yes"
        "No"
        "~"
        "null"
        "012"
        "1.10"
        "0x1f"
        "1e3"
        ".inf"
        "-"
        "2026-01-02"
        "12:30"
        "a: b"
        "a #b"
        "#a"
        "{a}"
        "[a]"
        "a,b"
        "*a"
        "&a"
        "!a"
        "%a"
        "@a"
        "`a`"
        "it's"
        'say "it"'
        'a\b'
        "a\nb"
        " a"
        "a "
        "<<"
        "é"
        "\x85\u2028\x07"
        "##);
    }

    #[test]
    fn tables_lists_and_long_texts_are_laid_out() {
        let long = "name={{ package.name }}, arch={{ arch }}, base={{ base.name }}, \
                    id={{ base.id }}, version={{ base.tags.v }}, suffix={{ vars.suffix }}";
        let tree = Tree::Table(vec![
            ("finalizer_set".into(), Tree::List(vec![Tree::text("a"), Tree::text("b: c")])),
            (
                "nested".into(),
                Tree::List(vec![Tree::List(vec![Tree::text("a")]), Tree::Table(vec![("b".into(), Tree::Nothing)])]),
            ),
            ("description".into(), Tree::text(long)),
            ("empty".into(), Tree::Table(Vec::new())),
        ]);
        assert_snapshot!(written(&[("e".into(), tree), ("default".into(), Tree::text("e"))]), @r#"
        # A heading,
        #
        # with a blank line

        # A remark.
        e:
          finalizer_set: [a, "b: c"]
          nested:
            - [a]
            -
              b: ~
          description: >-
            name={{ package.name }}, arch={{ arch }}, base={{ base.name }}, id={{ base.id }}, version={{ base.tags.v }},
            suffix={{ vars.suffix }}
          empty: {}

        # A remark.
        default: e
        "#);
    }

    /// Keys and texts that YAML readers are known to trip over, often.
    fn text() -> impl Strategy<Value = String> {
        const HARD: &[&str] = &[
            "yes", "012", "1.10", "a: b", "a #b", "~", "null", "", "- a", "a+", "<<", "? a", ">-", "---", "%YAML",
            "'\"\\", "\u{feff}", "\u{85}",
        ];
        prop_oneof![
            prop::sample::select(HARD).prop_map(str::to_owned),
            "[a-z :#{}\\[\\],&*!|>'\"%@`~+.0-9\\\\\n\t-]{0,12}",
            // Long enough to be folded.
            "([a-z{}#>:-]{0,6} ){20,40}x",
            "[a-z]{1000,1100}",
            // Nothing can stand for NUL in a key.
            any::<String>().prop_map(|text| text.replace('\0', "")),
        ]
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![8 => text().prop_map(Tree::Text), 1 => Just(Tree::Nothing)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
                table(inner).prop_map(Tree::Table)
            ]
        })
    }

    fn table(inner: impl Strategy<Value = Tree>) -> impl Strategy<Value = Vec<(String, Tree)>> {
        prop::collection::btree_map(text(), inner, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 96, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(entries in table(tree())) {
            let text = written(&entries);
            let table = parse_yaml("written", text.as_bytes()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(read(&table), Tree::Table(entries), "{}", text);
        }

        #[test]
        fn no_heading_becomes_a_key(line in any::<String>()) {
            let text = write(&[line.clone(), format!("a\n{line}: b\u{2028}c: d")], &[]);
            prop_assert!(text.lines().all(|line| line.starts_with('#')));
            prop_assert!(parse_yaml("written", text.as_bytes()).is_ok_and(|table| table.is_empty()));
        }
    }
}
