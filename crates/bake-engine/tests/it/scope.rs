//! Live values: held alone, always closed, seen nowhere else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bake_engine::*;

use crate::world::*;

type Notes = Arc<Mutex<Vec<String>>>;

/// A mounted root that notes what happens to it.
struct Root {
    notes: Notes,
    files: u32,
}

async fn open(notes: Notes, _: StepContext, (): ()) -> StepResult<Root> {
    notes.lock().unwrap().push("open".into());
    Ok(Root { notes, files: 0 })
}

async fn close(_: Notes, root: Root) -> StepResult<()> {
    root.notes.lock().unwrap().push(format!("close with {}", root.files));
    Ok(())
}

async fn close_badly(notes: Notes, _: Root) -> StepResult<()> {
    notes.lock().unwrap().push("close".into());
    Err(StepError::permanent("device is busy"))
}

fn notes_of(notes: &Notes) -> Vec<String> {
    notes.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn users_follow_each_other_and_the_value_is_closed() {
    let bench = Bench::new();
    let notes = Notes::default();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let (files, outside) = steps.scope("volume", |scope| {
        let root = scope.step("open").open(notes.clone(), open, close);
        scope.step("first").needs(root).run((), async |(), cx: StepContext, mut root| {
            cx.pause(Duration::from_secs(5)).await?;
            root.files += 1;
            Ok(())
        });
        let files = scope.step("second").needs(root).run((), async |(), _, mut root| {
            root.files += 10;
            Ok(root.files)
        });
        (files, notes.clone())
    });
    let seen = steps.step("snapshot").needs(files).run(outside, async |notes, _, files| {
        notes.lock().unwrap().push("snapshot".into());
        Ok(files)
    });
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.output(seen).unwrap(), Some(11));
    assert_eq!(notes_of(&notes), ["open", "close with 11", "snapshot"]);
    assert_eq!(bench.step_state("volume"), Some(StepState::Done));
}

#[tokio::test(start_paused = true)]
async fn a_failure_closes_and_nothing_outside_sees_the_scope() {
    let bench = Bench::new();
    let notes = Notes::default();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut steps = steps.under("bake").with(StepDefaults::new().keep_going());
    let early = steps.scope("volume", |scope| {
        let root = scope.step("open").open(notes.clone(), open, close);
        let early = scope.step("early").needs(root).run((), async |(), _, _| Ok(1));
        let bad = scope
            .step("provision")
            .needs(root)
            .run((), async |(), _, _| Err::<u32, _>(StepError::permanent("exit status 100")));
        scope.step("seal").needs(root).after(bad).run((), async |(), _, _| Ok(2));
        early
    });
    steps.step("snapshot").needs(early).run((), async |(), _, _| Ok(()));
    let last = steps.step("report").needs(early.maybe()).run((), async |(), _, early| Ok(early.is_none()));
    let outcome = bench.run(plan).await;
    assert_eq!(notes_of(&notes), ["open", "close with 0"]);
    assert_eq!(outcome.verdict, Verdict::Failed);
    let skipped: Vec<_> = outcome.skipped.iter().map(|skipped| (&*skipped.path, skipped.reason.clone())).collect();
    let broken = SkipReason::Scope("bake/volume/provision".into());
    assert_eq!(
        skipped,
        [
            ("bake/volume/seal", broken.clone()),
            ("bake/volume", broken),
            ("bake/snapshot", SkipReason::Upstream("bake/volume".into())),
        ]
    );
    assert_eq!(outcome.output(last).unwrap(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_cancel_closes_too() {
    for how in ["panic", "cancel", "abandon"] {
        let bench = Bench::new();
        let notes = Notes::default();
        let cancel = Cancel::new();
        let mut plan = Plan::new();
        plan.steps().scope("volume", |scope| {
            let root = scope.step("open").open(notes.clone(), open, close);
            scope.step("work").needs(root).run((how, cancel.clone()), async |(how, cancel), cx, _root| match how {
                "panic" => panic!("oh"),
                "cancel" => {
                    cancel.raise();
                    cx.cancelled().await;
                    cx.stop_if_cancelled()
                }
                _ => {
                    cancel.raise();
                    cancel.raise();
                    std::future::pending().await
                }
            });
        });
        let outcome = bench.run_with(plan, cancel).await;
        assert_eq!(notes_of(&notes), ["open", "close with 0"], "{how}");
        assert_eq!(outcome.verdict == Verdict::Cancelled, how != "panic", "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_was_taken_is_not_closed() {
    let bench = Bench::new();
    let notes = Notes::default();
    let mut plan = Plan::new();
    plan.steps().scope("volume", |scope| {
        let root = scope.step("open").open(notes.clone(), open, close);
        scope.step("seal").needs(root).run((), async |(), _, root| {
            root.take().notes.lock().unwrap().push("sealed".into());
            Ok(())
        });
    });
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!(notes_of(&notes), ["open", "sealed"]);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_fails_fails_the_scope() {
    let bench = Bench::new();
    let notes = Notes::default();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let done = steps.scope("volume", |scope| {
        let root = scope.step("open").open(notes.clone(), open, close_badly);
        let other = scope.step("other").open(notes.clone(), open, close);
        scope.step("work").needs((root, other)).run((), async |(), _, _| Ok(1))
    });
    steps.step("snapshot").needs(done).run((), async |(), _, _| Ok(()));
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.failures[0].path, "volume");
    assert_eq!(outcome.failures[0].error, ["cannot close `volume/open`", "device is busy"]);
    assert_eq!(notes_of(&notes)[2..], ["close with 0", "close"], "newest first, and the others too");
    assert_eq!(bench.step_state("snapshot"), Some(StepState::Skipped));
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_optional_as_a_whole() {
    let bench = Bench::new();
    let notes = Notes::default();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut steps = steps.under("extra").with(StepDefaults::new().optional());
    let sealed = steps.scope("volume", |scope| {
        let root = scope.step("open").open(notes.clone(), open, close);
        let bad = scope.step("bad").run("exit status 1", fail);
        scope.step("seal").needs(root).after(bad).run((), async |(), _, _| Ok(2))
    });
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.warnings.len()), (Verdict::Done, 1));
    assert_eq!(outcome.output(sealed).unwrap(), None);
    assert_eq!(outcome.skipped[0].reason, SkipReason::Scope("extra/volume/bad".into()));
    assert_eq!(notes_of(&notes), ["open", "close with 0"]);
}

#[tokio::test(start_paused = true)]
async fn mutations_inside_a_scope_are_tried_again_in_place() {
    let bench = Bench::new();
    bench.world.fault("volume/create", [Fault::LostAnswer, Fault::Throttle]);
    let mut plan = Plan::new();
    plan.steps().scope("volume", |scope| {
        let created = scope.step("create").mutate(&bench.volume, |()| make("disk"));
        scope.step("use").needs(created).run((), async |(), _, disk| Ok(disk.id));
    });
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!(bench.world.names(), ["disk"]);
}

#[tokio::test(start_paused = true)]
async fn a_scope_without_what_a_failure_left_out_is_not_finished() {
    for (optional, ended) in [(false, StepState::Skipped), (true, StepState::Done)] {
        let bench = Bench::new();
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let mut steps = steps.under("all").with(StepDefaults::new().keep_going());
        let key = steps.step("key");
        let key = if optional { key.optional() } else { key }.run("no key", fail);
        steps.scope("volume", |scope| {
            scope.step("install").run(1, give);
            scope.step("sign").needs(key).run((), async |(), _, key| Ok(key));
        });
        bench.run(plan).await;
        assert_eq!(bench.step_state("all/volume"), Some(ended), "something optional was left out by choice");
    }
}
