//! What the engine costs: steps that do nothing, wide and in a chain, with the journal on a disk and in memory.
//!
//! `scripts/bench engine` builds and runs it. The first argument is a folder on the disk to measure, the second one in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bake_engine::{
    Cancel, Engine, EngineOptions, EventSink, Journal, Mutations, Plan, RunId, RunSpec, SlotLimits, SlotRange,
    StepContext, Verdict,
};

/// Steps at once.
const AT_ONCE: usize = 64;

/// A graph in which no step waits for another.
fn wide(steps: usize) -> Plan {
    let mut plan = Plan::new();
    let mut view = plan.steps();
    for number in 0..steps {
        view.step(&format!("step-{number}")).run((), async |(), _: StepContext, ()| Ok(()));
    }
    plan
}

/// A graph in which each step waits for the one before.
fn chain(steps: usize) -> Plan {
    let mut plan = Plan::new();
    let mut view = plan.steps();
    let mut last = view.step("step-0").run((), async |(), _: StepContext, ()| Ok(0_u64));
    for number in 1..steps {
        last = view.step(&format!("step-{number}")).needs(last).run((), async |(), _: StepContext, last| Ok(last + 1));
    }
    plan
}

async fn measure(title: &str, folder: &Path, plan: Plan, steps: usize) {
    let path = folder.join(format!("throughput-{}-{title}-{steps}.db", std::process::id()).replace(' ', "-"));
    let journal = Journal::open(&path).expect("a journal in the folder that was given");
    let options = EngineOptions {
        slots: SlotLimits { api: SlotRange::fixed(AT_ONCE), ..SlotLimits::default() },
        ..EngineOptions::default()
    };
    let engine = Engine::new(journal.clone(), Arc::new(Mutations::new()), options, EventSink::none());
    let started = jiff::Timestamp::now();
    let spec = RunSpec {
        id: RunId::new(started),
        title: title.into(),
        request_key: "bench".into(),
        config: serde_json::Value::Null,
        plugins: serde_json::Value::Null,
        started,
    };
    let begun = Instant::now();
    let outcome = engine.run(plan, spec, Cancel::new()).await.expect("a plan of steps that do nothing runs");
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(outcome.verdict, Verdict::Done);
    let per_second = steps as f64 / seconds;
    let syncs = journal.commits() as f64 / steps as f64;
    println!("{title:<16} {steps:>7} steps  {seconds:>7.2} s  {per_second:>8.0} steps/s  {syncs:>6.3} syncs/step");
    drop((engine, journal));
    for ending in ["", "-wal", "-shm"] {
        let _absent = std::fs::remove_file(format!("{}{ending}", path.display()));
    }
}

#[tokio::main]
async fn main() {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let [disk, memory] = folders.as_slice() else { panic!("give a folder on a disk, and one in memory") };
    for (place, folder) in [("disk", disk), ("memory", memory)] {
        for steps in [1_000, 10_000, 100_000] {
            measure(&format!("wide, {place}"), folder.as_ref(), wide(steps), steps).await;
        }
        measure(&format!("chain, {place}"), folder.as_ref(), chain(1_000), 1_000).await;
    }
}
