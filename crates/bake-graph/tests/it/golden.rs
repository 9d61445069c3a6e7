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
    insta::assert_snapshot!(Drawing::of_plan(&small()).unwrap().titled("small").to_dot(), @r##"
    digraph bake {
      graph [compound=true, rankdir=TB, newrank=true, fontname="sans-serif", labelloc=t, label="small"];
      node [shape=box, style="filled,rounded", margin="0.2,0.08", fontname="sans-serif", fontcolor="#1f2328"];
      edge [color="#57606a"];
      n0 [label="base\nlocal work", fillcolor="#ffffff", color="#57606a", tooltip="base\nlocal work"];
      subgraph cluster_1 {
        graph [label="volume", labeljust=l, style=rounded, color="#8c959f", tooltip="volume\nend of the scope\nafter: volume/open"];
        n1 [label="open\nlive value", fillcolor="#ffffff", color="#57606a", tooltip="volume/open\nlive value\nneeds: base"];
      }
      subgraph cluster_2 {
        graph [label="end", labeljust=l, style=rounded, color="#8c959f", tooltip="end"];
        n3 [label="image\nlocal.image", fillcolor="#ffffff", color="#57606a", tooltip="end/image\nchanges: local.image\ncalls: Register\ntaken back with: Deregister\nneeds: volume/open, volume, base"];
        n5 [label="notify\nlocal work", fillcolor="#ffffff", color="#57606a", style="filled,rounded,dashed", tooltip="end/notify\nlocal work\noptional: its failure is only reported\nneeds: base\nafter: end/group 1"];
      }
      n0 -> n1;
      n1 -> n3 [ltail=cluster_1];
      n3 -> n5 [style=dashed];
    }
    "##);
}

#[test]
fn a_run_as_dot() {
    insta::assert_snapshot!(small_run().to_dot(), @r##"
    digraph bake {
      graph [compound=true, rankdir=TB, newrank=true, fontname="sans-serif", labelloc=t, label="hello \"world\"\nrun 20260301-100000-a1b2c3 · not finished"];
      node [shape=box, style="filled,rounded", margin="0.2,0.08", fontname="sans-serif", fontcolor="#1f2328"];
      edge [color="#57606a"];
      n0 [label="✓ base\nlocal work", fillcolor="#dafbe1", color="#1a7f37", tooltip="base\nlocal work\n✓ done, 1 try"];
      subgraph cluster_1 {
        graph [label="✓ volume · 1 of 1", labeljust=l, style=rounded, color="#1a7f37", tooltip="volume\nend of the scope\n✓ done, 1 try\nafter: volume/open"];
        n1 [label="✓ open\nlive value", fillcolor="#dafbe1", color="#1a7f37", tooltip="volume/open\nlive value\n✓ done, 1 try\nneeds: base"];
      }
      subgraph cluster_2 {
        graph [label="end · 0 of 2", labeljust=l, style=rounded, color="#8c959f", tooltip="end"];
        n3 [label="✗ image\nthe name is taken", fillcolor="#ffebe9", color="#cf222e", tooltip="end/image\nchanges: local.image\ncalls: Register\ntaken back with: Deregister\n✗ failed, 1 try\nerror: cannot register it\ncaused by: the name is taken\nneeds: volume/open, volume, base"];
        n5 [label="○ notify\nlocal work", fillcolor="#ffffff", color="#6e7781", style="filled,rounded,dashed", tooltip="end/notify\nlocal work\noptional: its failure is only reported\n○ waiting\nneeds: base\nafter: end/group 1"];
      }
      n0 -> n1;
      n1 -> n3 [ltail=cluster_1];
      n3 -> n5 [style=dashed];
      subgraph cluster_legend {
        graph [label="legend", style=rounded, color="#8c959f"];
        legend_0 [label="○ waiting", fillcolor="#ffffff", color="#6e7781"];
        legend_1 [label="✓ done", fillcolor="#dafbe1", color="#1a7f37"];
        legend_2 [label="✗ failed", fillcolor="#ffebe9", color="#cf222e"];
      }
    }
    "##);
}

#[test]
fn a_run_as_mermaid() {
    insta::assert_snapshot!(small_run().to_mermaid(), @r##"
    ---
    title: "hello #34;world#34; · run 20260301-100000-a1b2c3 · not finished"
    ---
    flowchart TB
      n0["✓ base<br/>local work"]:::is-done
      subgraph g1["✓ volume · 1 of 1"]
        n1["✓ open<br/>live value"]:::is-done
      end
      subgraph g2["end · 0 of 2"]
        n3["✗ image<br/>the name is taken"]:::is-failed
        n5["○ notify<br/>local work"]:::is-waiting
      end
      n0 --> n1
      g1 --> n3
      n3 -.-> n5
      subgraph legend["legend"]
        direction LR
        legend0["○ waiting"]:::is-waiting
        legend1["✓ done"]:::is-done
        legend2["✗ failed"]:::is-failed
      end
      classDef is-waiting fill:#ffffff,stroke:#6e7781,color:#1f2328
      classDef is-done fill:#dafbe1,stroke:#1a7f37,color:#1f2328
      classDef is-failed fill:#ffebe9,stroke:#cf222e,color:#1f2328
      click n0 nothing "base<br/>local work<br/>✓ done, 1 try"
      click n1 nothing "volume/open<br/>live value<br/>✓ done, 1 try<br/>needs#58; base"
      click n3 nothing "end/image<br/>changes#58; local.image<br/>calls#58; Register<br/>taken back with#58; Deregister<br/>✗ failed, 1 try<br/>error#58; cannot register it<br/>caused by#58; the name is taken<br/>needs#58; volume/open, volume, base"
      click n5 nothing "end/notify<br/>local work<br/>optional#58; its failure is only reported<br/>○ waiting<br/>needs#58; base<br/>after#58; end/group 1"
    "##);
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
