//! What holds for any input.

use bake_config::{Environment, Layers, Origin};
use proptest::prelude::*;

use crate::catalog::{catalog, environment};

/// Texts that YAML readers are known to change.
const HARD: &[&str] =
    &["012345678901", "1.10", "5319e7", "0o17", "no", "~", "null", "", "true", "2024-01-02", "- a", "a: b", "#", "*a"];

/// Any text that a file can hold, hard ones often.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(HARD).prop_map(str::to_owned),
        "[0-9._eExo+-]{1,12}",
        any::<String>().prop_map(|text| text.chars().filter(|c| !c.is_control()).collect()),
    ]
}

/// A YAML single-quoted scalar.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A YAML double-quoted scalar, every character that may mean something written as an escape.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == ' ' => c.to_string(),
        c => format!("\\U{:08x}", u32::from(c)),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// A YAML block scalar (`|` as it stands, `>` with lines joined) that keeps what is at its end. Its indentation is said, so that the text
/// may start with spaces.
fn block(style: char, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("      {line}\n")).collect();
    format!("{style}2-\n{lines}")
}

/// A line that stays one: no breaks (a NEL and its like are breaks to some readers), nothing but spaces is left out, no tabs in front.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![prop::sample::select(HARD).prop_map(str::to_owned), "[ -~é€]{0,12}[!-~é€]"]
        .prop_filter("a line with text", |line| !line.is_empty())
}

fn load(layers: Layers) -> Environment {
    layers.load(&catalog()).and_then(|config| config.environment("e")).unwrap_or_else(|errors| panic!("{errors}"))
}

fn with_vars(text: &str) -> String {
    environment("") + &format!("vars: {{ v: {text} }}\n")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_quoted_text_survives_every_layer(text in text()) {
        let written = with_vars(&quoted(&text));
        let below = environment("") + "vars: { v: below }\n";
        prop_assert_eq!(&load(Layers::new().built_in(written.as_str())).vars["v"].text, &text);
        prop_assert_eq!(&load(Layers::new().built_in(below.as_str()).file("f", written)).vars["v"].text, &text);
        if !text.starts_with('[') {
            let set = Layers::new().file("f", below.as_str()).set("vars.v", text.as_str(), Origin::named("--set"));
            prop_assert_eq!(&load(set).vars["v"].text, &text);
            let variable = [("BAKE__VARS__v".to_owned(), text.clone())];
            prop_assert_eq!(&load(Layers::new().file("f", below).variables(variable)).vars["v"].text, &text);
        }
    }

    #[test]
    fn a_plain_text_survives(text in "[0-9A-Za-z._+-][0-9A-Za-z._:+-]{0,14}[0-9A-Za-z._+]") {
        prop_assume!(!text.eq_ignore_ascii_case("null") && !text.starts_with("---") && !text.starts_with("..."));
        prop_assert_eq!(&load(Layers::new().file("f", with_vars(&text))).vars["v"].text, &text);
    }

    /// Even what no file may hold as it stands can be written, as an escape.
    #[test]
    fn a_double_quoted_text_survives(text in prop_oneof![text(), any::<String>()]) {
        prop_assert_eq!(&load(Layers::new().file("f", with_vars(&escaped(&text)))).vars["v"].text, &text);
    }

    #[test]
    fn a_literal_block_survives(lines in prop::collection::vec(line(), 1..4)) {
        let text = environment("") + "vars:\n    v: " + &block('|', &lines);
        prop_assert_eq!(&load(Layers::new().file("f", text)).vars["v"].text, &lines.join("\n"));
    }

    /// Folding joins lines by a space, but for those that start with one.
    #[test]
    fn a_folded_block_survives(lines in prop::collection::vec(line().prop_map(|line| line.trim_start().to_owned()), 1..4)) {
        let text = environment("") + "vars:\n    v: " + &block('>', &lines);
        prop_assert_eq!(&load(Layers::new().file("f", text)).vars["v"].text, &lines.join(" "));
    }

    /// A text of several words may be plain, and what is in it is not looked at.
    #[test]
    fn plain_words_survive(words in prop::collection::vec("[0-9A-Za-z._+-][0-9A-Za-z._:+-]{0,6}[0-9A-Za-z._+]", 2..5)) {
        let text = words.join(" ");
        prop_assume!(!text.starts_with("--- ") && !text.starts_with("... ") && !text.starts_with("- "));
        prop_assert_eq!(&load(Layers::new().file("f", with_vars(&text))).vars["v"].text, &text);
    }

    #[test]
    fn tag_keys_keep_their_case(keys in prop::collection::btree_map("[A-Za-z][A-Za-z0-9:_.-]{0,8}x", text(), 0..6)) {
        let tags: String = keys.iter().map(|(key, value)| format!("      {}: {}\n", quoted(key), quoted(value))).collect();
        let set = format!("  finalizer_set:\n  - tag_artifacts:\n     tags:\n      Owner: ~\n      creator: ~\n{tags}");
        let environment = load(Layers::new().file("f", environment(&set)));
        let read: std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>> =
            environment.finalizer_set.groups[0].members[0].settings.parse().unwrap();
        prop_assert_eq!(&read["tags"], &keys);
    }

    /// Also where they are plain, and where a stronger layer names them.
    #[test]
    fn plain_keys_keep_their_case(keys in prop::collection::btree_set("[A-Za-z][A-Za-z0-9_.-]{0,8}x", 1..6)) {
        let below: String = keys.iter().map(|key| format!("  {key}: below\n")).collect();
        let layers = Layers::new().file("f", environment("") + "vars:\n" + &below);
        let assign = |layers: Layers, key: &String| layers.set(format!("vars.\"{key}\""), key.as_str(), Origin::named("--set"));
        let vars = load(keys.iter().fold(layers, assign)).vars;
        prop_assert!(vars.iter().all(|(key, var)| *key == var.text), "{:?}", vars);
        prop_assert_eq!(vars.keys().cloned().collect::<std::collections::BTreeSet<_>>(), keys);
    }

    /// It does not matter which files come together first: those below may as well be one file.
    #[test]
    fn layers_of_one_environment_are_associative(texts in prop::collection::vec(prop::collection::btree_map("[a-c]", "[a-z]{1,3}", 0..3), 3)) {
        let written = |vars: &std::collections::BTreeMap<String, String>| {
            let vars: Vec<String> = vars.iter().map(|(key, text)| format!("{key}: {}", quoted(text))).collect();
            format!("vars: {{ {} }}\n", vars.join(", "))
        };
        let apart = texts.iter().fold(Layers::new().built_in(environment("")), |layers, vars| layers.file("f", written(vars)));
        let mut together = texts[0].clone();
        together.extend(texts[1].clone());
        let joined = Layers::new().built_in(environment("")).file("f", written(&together)).file("f", written(&texts[2]));
        let plain = |environment: Environment| environment.to_json()["vars"].clone();
        prop_assert_eq!(plain(load(apart)), plain(load(joined)));
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = Layers::new().file("f", text).load(&catalog()).map_err(|errors| errors.to_string());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Layers::new().file("f", bytes).load(&catalog()).map_err(|errors| errors.to_string());
    }

    /// Closer to YAML than chance would come.
    #[test]
    fn no_yaml_makes_it_panic(words in prop::collection::vec(prop::sample::select(YAML), 0..24)) {
        let text = words.concat();
        let _ = Layers::new().file("f", text).load(&catalog()).map_err(|errors| errors.to_string());
    }

    #[test]
    fn no_change_of_a_good_file_makes_it_panic(at in 0_usize..3000, with in prop::sample::select(YAML), cut in 0_usize..20) {
        let mut text = include_str!("../../../../environments.yaml").to_owned();
        let floor = |text: &str, at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (from, to) = (floor(&text, at), floor(&text, at + cut));
        text.replace_range(from..to, with);
        let _ = Layers::new().file("f", text).load(&catalog()).map_err(|errors| errors.to_string());
    }
}

const YAML: &[&str] = &[
    "e",
    "cloud",
    "ec2",
    "plugins",
    "finalizer_set",
    "extends",
    "default",
    "vars",
    "include",
    ": ",
    ":",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "-",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "~",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "? ",
    "!!str ",
    "!x ",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\t",
    "\r\n",
    "\u{feff}",
    "tag_artifacts",
    "register_image",
    "+: ",
    "<<: ",
    "é",
    "\\",
    "@",
];
