//! Graphviz: every text stays in its quotes.

use std::io::Write;
use std::process::{Command, Stdio};

use bake_graph::Drawing;
use proptest::prelude::*;

use crate::plans::{draw, few_cases, runs};
use crate::sample;

/// The tokens of a text in the language of Graphviz; panics where Graphviz would stumble.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            ' ' | '\n' => {}
            '{' | '}' | '[' | ']' | ';' | ',' | '=' => tokens.push(char.to_string()),
            '-' => {
                assert_eq!(rest.next(), Some('>'), "a lone `-`");
                tokens.push("->".into());
            }
            '"' => tokens.push(string(&mut rest)),
            other if is_word(other) => {
                let mut word = String::from(other);
                while let Some(next) = rest.next_if(|next| is_word(*next)) {
                    word.push(next);
                }
                tokens.push(word);
            }
            other => panic!("`{other}` outside of quotes"),
        }
    }
    tokens
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '.'
}

/// One quoted text. Of escapes it may have those for a quote, a backslash and a line break; of entities, that for `&`.
fn string(rest: &mut impl Iterator<Item = char>) -> String {
    let mut text = String::from("\"");
    loop {
        match rest.next().expect("a quote is not closed") {
            '"' => return text,
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                other => panic!("an escape of {other:?}"),
            },
            '&' => {
                let entity: String = rest.by_ref().take(4).collect();
                assert_eq!(entity, "amp;");
                text.push('&');
            }
            char => {
                assert!(!char.is_control(), "{char:?} in a text");
                text.push(char);
            }
        }
    }
}

/// Checks the order of tokens: statements in braces, each a node, an arrow, a subgraph or defaults.
fn check(text: &str) {
    let tokens = tokens(text);
    assert_eq!(tokens[..3], ["digraph", "bake", "{"]);
    let mut depth = 0;
    let mut in_list = false;
    for token in &tokens {
        match &**token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "[" => {
                assert!(!in_list);
                in_list = true;
            }
            "]" => {
                assert!(in_list);
                in_list = false;
            }
            ";" | "->" => assert!(!in_list),
            "=" | "," => assert!(in_list),
            word if !word.starts_with('"') && !in_list => {
                let id = word.trim_end_matches(|char: char| char.is_ascii_digit());
                let known = [
                    "n",
                    "cluster_",
                    "cluster_legend",
                    "legend_",
                    "graph",
                    "node",
                    "edge",
                    "subgraph",
                    "digraph",
                    "bake",
                ];
                assert!(known.contains(&id), "`{word}` is none of ours");
            }
            text => assert!(in_list, "`{text}` outside of a list"),
        }
    }
    assert_eq!(depth, 0);
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn whatever_steps_are_called_graphviz_reads_what_we_mean(run in runs()) {
        check(&draw(&run).to_dot());
    }
}

#[test]
fn graphviz_itself_draws_it() {
    let dot = Command::new("dot").arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut dot = match dot {
        Ok(dot) => dot,
        Err(error) => {
            eprintln!("skipped: Graphviz is not here: {error}");
            return;
        }
    };
    let text = Drawing::of_run(&sample::in_flight()).unwrap().to_dot();
    dot.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = dot.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
