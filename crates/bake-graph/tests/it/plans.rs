//! Plans for tests.

use bake_engine::RunView;
use bake_graph::Drawing;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::sample;

/// Text that has tried to break out of things before.
pub(crate) fn hostile() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "</title><script>alert(1)</script>",
        "]]><!-- <![CDATA[ -->",
        "\" onload=\"x",
        "'\\\"\\\\N\\G\\",
        "\\",
        "end",
        "end; subgraph x[",
        "\"]:::x; click n0 href \"javascript:alert(1)\"",
        "#quot;#35;&quot;&#60;b&#62;",
        "`**bold**`",
        "%%{init: {}}%%",
        "1. first",
        "- dash",
        "---",
        "line\nbreak\r\n\tand tab",
        "\u{1b}[31mred\u{1b}[0m \u{1b}]8;;http://x\u{7}link",
        "\0\u{1}\u{7f}\u{85}\u{fffe}\u{feff}\u{202e}turned",
        "画像を登録する",
        "ﬂ°°35¶ß",
        "-->",
        "{{x}} | y | (z)",
        "",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 2 => any::<String>(), 1 => "[a-z_]{1,60}"]
}

/// Plans of any shape: paths within paths, a scope, barriers, steps that need earlier ones, hostile names.
pub(crate) fn plans() -> impl Strategy<Value = Value> {
    let name = prop_oneof![4 => "[a-c]", 1 => hostile().prop_map(|text| text.replace('/', "|"))];
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"));
    let waits = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4);
    let step = (path, prop::bool::weighted(0.15), waits, any::<bool>(), hostile());
    prop::collection::vec(step, 1..25).prop_map(|steps| {
        let mut plan: Map<String, Value> = Map::new();
        let scope = ["scope/one", "scope/two"];
        for path in scope {
            plan.insert(path.into(), json!({ "kind": "work", "needs": [], "after": [], "scope": "scope" }));
        }
        plan.insert("scope".into(), json!({ "kind": "scope", "needs": [], "after": scope }));
        for (path, is_barrier, waits, optional, mutation) in steps {
            let earlier: Vec<String> = plan.keys().filter(|earlier| **earlier != path).cloned().collect();
            if plan.contains_key(&path) {
                continue;
            }
            let (mut needs, mut after) = (Vec::new(), Vec::new());
            for (from, is_need) in waits {
                if is_need && !is_barrier { &mut needs } else { &mut after }.push(from.get(&earlier).clone());
            }
            let kind = if is_barrier { "wait" } else { "mutation" };
            let calls = json!({ "send": [mutation], "settle": [], "undo": [] });
            let step = json!({
                "kind": kind, "needs": needs, "after": after, "optional": optional, "when": [mutation],
                "mutation": mutation, "calls": calls, "keep": "artifact", "request": {}
            });
            plan.insert(path, step);
        }
        json!({ "steps": plan, "warnings": [] })
    })
}

/// A plan with a run: each step in some state, with an error of somebody else's words.
pub(crate) fn runs() -> impl Strategy<Value = (Value, RunView)> {
    let states = prop::sample::select(vec![
        None,
        Some("done"),
        Some("failed"),
        Some("warned"),
        Some("skipped"),
        Some("cancelled"),
        Some("unknown"),
    ]);
    let steps = prop::collection::vec((states, hostile(), any::<bool>(), 0u32..4), 30);
    (plans(), steps, hostile()).prop_map(|(plan, states, title)| {
        let mut view = sample::run_of(&plan);
        view.run.title = title;
        let paths: Vec<String> = plan["steps"].as_object().unwrap().keys().cloned().collect();
        for (path, (state, words, answer, attempts)) in paths.iter().zip(states) {
            let error = json!({ "class": "permanent", "chain": [words, words], "hint": words, "details": [words] });
            let when = plan["steps"][path]["when"][0].as_str().unwrap_or("always");
            let more = json!({ "attempts": attempts, "error": error, "conditions": { when: answer } });
            view.steps.push(sample::record(path, state, &more));
        }
        (plan, view)
    })
}

pub(crate) fn draw((plan, view): &(Value, RunView)) -> Drawing {
    Drawing::of_plan(plan).unwrap().with_run(view)
}

pub(crate) fn few_cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() }
}
