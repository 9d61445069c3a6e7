//! Says how long it takes to draw plans of many steps: `cargo run --release -p bake-graph --example large`.

use std::time::Instant;

use bake_graph::Drawing;
use serde_json::{Map, Value, json};

fn main() {
    for (shape, plan) in [
        ("1,000 copies side by side", copies(1, 998)),
        ("25 groups of 40, each after the one before", copies(25, 40)),
        ("a chain of 1,000", copies(1000, 1)),
        ("1,000 steps that need three earlier ones each", tangle(1000)),
    ] {
        let start = Instant::now();
        let drawing = Drawing::of_plan(&plan).expect("it is a plan");
        let read = start.elapsed();
        let svg = drawing.to_svg();
        println!("{shape}: read in {read:.0?}, as SVG after {:.0?} ({} KiB)", start.elapsed(), svg.len() / 1024);
    }
}

fn copies(groups: usize, width: usize) -> Value {
    let mut steps = Map::new();
    steps.insert("base".into(), json!({ "kind": "work", "needs": [], "after": [] }));
    let mut before = json!([]);
    for group in 0..groups {
        let paths: Vec<String> = (0..width).map(|number| format!("finalize/set {group}/{number}")).collect();
        for path in &paths {
            steps.insert(path.clone(), json!({ "kind": "work", "needs": ["base"], "after": before }));
        }
        let barrier = format!("finalize/group {group}");
        steps.insert(barrier.clone(), json!({ "kind": "wait", "needs": [], "after": paths }));
        before = json!([barrier]);
    }
    json!({ "steps": steps })
}

fn tangle(count: usize) -> Value {
    let mut steps = Map::new();
    for step in 0..count {
        let earlier = [step / 2, step * 7 / 8, step.saturating_sub(1 + step % 13)];
        let needs: std::collections::BTreeSet<_> = earlier.into_iter().filter(|&other| other < step).collect();
        let needs: Vec<String> = needs.into_iter().map(|other| format!("step {other}")).collect();
        steps.insert(format!("step {step}"), json!({ "kind": "work", "needs": needs, "after": [] }));
    }
    json!({ "steps": steps })
}
