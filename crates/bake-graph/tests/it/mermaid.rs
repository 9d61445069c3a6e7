//! Mermaid: no text can be anything but text.

use bake_graph::Drawing;
use proptest::prelude::*;
use serde_json::json;

use crate::plans::{draw, few_cases, runs};

/// Checks a line: outside of quotes only words of ours, inside only what mermaid leaves alone.
fn check(line: &str) {
    let parts: Vec<&str> = line.split('"').collect();
    assert!(parts.len() == 1 || parts.len() == 3, "quotes: {line}");
    if let [_, text, _] = parts[..] {
        let text = text.replace("<br/>", "");
        for (at, char) in text.char_indices().filter(|(_, char)| char.is_ascii_punctuation()) {
            match char {
                '_' | '/' | '-' | '.' | ',' => {}
                '#' => {
                    let entity = text[at + 1..].split_once(';').unwrap().0;
                    assert!(char::from_u32(entity.parse().unwrap()).is_some(), "{line}");
                }
                ';' => {
                    let entity = text[..at].rsplit_once('#').unwrap().1;
                    assert!(entity.bytes().all(|byte| byte.is_ascii_digit()), "{line}");
                }
                other => panic!("`{other}` in {line}"),
            }
        }
        assert!(!text.contains(char::is_control));
    }
    let code = [parts[0], parts.get(2).copied().unwrap_or("")].join("\"");
    let first = code.trim_start().split(|char: char| !char.is_ascii_alphabetic()).next().unwrap();
    let known = ["", "title", "flowchart", "n", "g", "subgraph", "end", "legend", "direction", "classDef", "click"];
    assert!(known.contains(&first), "{line}");
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn whatever_steps_are_called_mermaid_reads_what_we_mean(run in runs()) {
        let text = draw(&run).to_mermaid();
        text.lines().for_each(check);
        let opened = text.lines().filter(|line| line.trim_start().starts_with("subgraph ")).count();
        prop_assert_eq!(text.lines().filter(|line| line.trim() == "end").count(), opened);
    }
}

#[test]
fn what_would_be_too_long_for_mermaid_comes_without_tooltips() {
    let steps: serde_json::Map<_, _> =
        (0..400).map(|step| (format!("copy/{step}/{}", "x".repeat(40)), json!({ "kind": "work" }))).collect();
    let text = Drawing::of_plan(&json!({ "steps": steps })).unwrap().to_mermaid();
    assert!(!text.contains("click "));
    let few: serde_json::Map<_, _> = steps.into_iter().take(3).collect();
    assert!(Drawing::of_plan(&json!({ "steps": few })).unwrap().to_mermaid().contains("click "));
}
