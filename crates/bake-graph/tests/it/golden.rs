//! Small pictures in full, and what cannot be drawn.

use bake_graph::{Drawing, DrawingError};
use serde_json::{Value, json};

use crate::sample;

/// A scope, a barrier that is dissolved, one that is a bar, and an optional step.
fn small() -> Value {
    let step = |kind: &str, needs: &[&str], after: &[&str]| json!({ "kind": kind, "needs": needs, "after": after });
    let mut plan = json!({ "steps": {
        "base": step("work", &[], &[]),
        "volume/open": step("open", &["base"], &[]),
        "volume": step("scope", &[], &["volume/open"]),
        "end/image": step("mutation", &["volume/open", "volume", "base"], &[]),
        "end/group 1": step("wait", &[], &["end/image"]),
        "end/notify": step("work", &["base"], &["end/group 1"]),
    }});
    plan["steps"]["volume/open"]["scope"] = "volume".into();
    plan["steps"]["end/notify"]["optional"] = true.into();
    plan["steps"]["end/image"]["mutation"] = "local.image".into();
    plan["steps"]["end/image"]["calls"] = json!({ "send": ["Register"], "settle": [], "undo": ["Deregister"] });
    plan
}

fn small_run() -> Drawing {
    let mut view = sample::run_of(&small());
    view.run.title = "hello \"world\"".into();
    let error = json!({ "error": { "class": "permanent", "chain": ["cannot register it", "the \u{1b}[1mname\u{1b}[0m is taken"] } });
    view.steps = vec![
        sample::record("base", Some("done"), &json!({})),
        sample::record("end/image", Some("failed"), &error),
        sample::record("volume", Some("done"), &json!({})),
        sample::record("volume/open", Some("done"), &json!({})),
    ];
    Drawing::of_run(&view).unwrap()
}

#[test]
fn a_plan_as_dot() {
    insta::assert_snapshot!(Drawing::of_plan(&small()).unwrap().titled("small").to_dot(), @"");
}

#[test]
fn a_run_as_dot() {
    insta::assert_snapshot!(small_run().to_dot(), @"");
}

#[test]
fn a_run_as_mermaid() {
    insta::assert_snapshot!(small_run().to_mermaid(), @"");
}

#[test]
fn many_to_many_is_a_bar_and_few_are_arrows() {
    let plan = |before: usize, behind: usize| {
        let work = |after: &[String]| json!({ "kind": "work", "needs": [], "after": after });
        let first: Vec<String> = (0..before).map(|number| format!("first {number}")).collect();
        let mut steps: serde_json::Map<String, Value> = first.iter().map(|path| (path.clone(), work(&[]))).collect();
        steps.insert("all".into(), json!({ "kind": "wait", "needs": [], "after": first }));
        steps.extend((0..behind).map(|number| (format!("second {number}"), work(&["all".into()]))));
        json!({ "steps": steps })
    };
    let arrows = |plan: &Value| Drawing::of_plan(plan).unwrap().to_dot().matches(" -> ").count();
    assert_eq!(arrows(&plan(2, 2)), 4, "each to each");
    assert_eq!(arrows(&plan(1, 9)), 9, "each to each");
    assert_eq!(arrows(&plan(3, 3)), 6, "over the bar");
}

#[test]
fn what_is_no_plan_is_refused_with_the_reason() {
    let refused = |plan: Value| Drawing::of_plan(&plan).unwrap_err();
    assert!(matches!(refused(json!([1])), DrawingError::NotAPlan(_)));
    assert!(matches!(refused(json!({ "warnings": [] })), DrawingError::NotAPlan(_)));
    let lost = refused(json!({ "steps": { "a": { "kind": "work", "needs": ["b"], "after": [] } } }));
    assert_eq!(lost.to_string(), "cannot draw the plan: `a` waits for `b`, and there is no such step");
    let cycle = json!({ "steps": {
        "a": { "kind": "work", "needs": ["b"] }, "b": { "kind": "work", "after": ["a"] } } });
    assert!(matches!(refused(cycle), DrawingError::Cycle { .. }));
    let mistakes = refused(json!({ "errors": ["two steps are named `a`"] }));
    assert_eq!(mistakes.to_string(), "cannot draw the plan: it has mistakes: two steps are named `a`");
}

#[test]
fn a_plan_without_steps_is_an_empty_picture() {
    let drawing = Drawing::of_plan(&json!({ "steps": {} })).unwrap();
    assert!(roxmltree::Document::parse(&drawing.to_svg()).is_ok());
}
