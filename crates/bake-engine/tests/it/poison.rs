//! A journal that cannot be written.

use std::time::Duration;

use bake_engine::*;

use crate::world::*;

fn two_images(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let first = steps.step("first").mutate(&bench.image, |()| make("first"));
    steps.step("second").needs(first).mutate(&bench.image, |_| make("second"));
    plan
}

#[tokio::test]
async fn what_was_made_and_not_saved_is_named() {
    let mut bench = Bench::new();
    let full = "CREATE TRIGGER full BEFORE UPDATE ON resources BEGIN SELECT raise(ABORT, 'disk is full'); END";
    execute(&bench.database(), full);
    let outcome = bench.run(two_images(&bench)).await;
    assert_eq!(outcome.verdict, Verdict::Poisoned);
    assert_eq!(outcome.failures[0].error, ["the journal cannot be written: disk is full"]);
    assert_eq!(outcome.unsaved.len(), 1);
    assert_eq!((&*outcome.unsaved[0].step, &outcome.unsaved[0].made["id"]), ("first", &"first-0".into()));
    assert_eq!(bench.world.sends(), ["first"], "nothing new starts");
    assert_eq!(bench.journal.poison(), Some("disk is full"));
    assert_eq!((bench.undo(Undo::Everything).await, bench.world.names()), (vec![], vec![]), "nothing stays");

    let closed = bench.engine.close(&bench.spec.id, outcome.verdict).await;
    assert!(closed.is_err());
    let told = bench.told();
    assert_eq!(told.last().unwrap(), "run_finished ", "who listens is not left waiting");
    assert!(!told.contains(&"resource_made first".to_owned()), "what is not durable is not told");
}

#[tokio::test]
async fn an_intent_that_cannot_be_saved_is_not_sent() {
    let bench = Bench::new();
    let full = "CREATE TRIGGER full BEFORE INSERT ON resources BEGIN SELECT raise(ABORT, 'disk is full'); END";
    execute(&bench.database(), full);
    let outcome = bench.run(two_images(&bench)).await;
    assert_eq!((outcome.verdict, outcome.unsaved.len()), (Verdict::Poisoned, 0));
    assert!(bench.world.sends().is_empty());
}

#[tokio::test]
async fn what_runs_is_finished() {
    let bench = Bench::new();
    let path = bench.database();
    let mut plan = two_images(&bench);
    let finished = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let state = std::sync::Arc::clone(&finished);
    plan.steps().step("long").run(state, async |finished, cx: StepContext, ()| {
        cx.pause(Duration::from_millis(200)).await?;
        finished.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    });
    execute(&path, "CREATE TRIGGER full BEFORE INSERT ON resources BEGIN SELECT raise(ABORT, 'disk is full'); END");
    bench.run(plan).await;
    assert!(finished.load(std::sync::atomic::Ordering::SeqCst));
}

#[test]
fn a_path_that_cannot_be_opened_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/journal.db");
    let error = Journal::open(&path).err().unwrap();
    assert_eq!(error.to_string(), format!("cannot open the journal `{}`", path.display()));
    assert!(Journal::read_only(&path).is_err());
}
