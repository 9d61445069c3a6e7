//! Cancelling in the middle.

use std::time::Duration;

use bake_engine::*;

use crate::world::*;

fn three_steps(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let volume = steps.step("volume").mutate(&bench.volume, |()| make("disk"));
    let install = steps
        .step("install")
        .needs(volume)
        .run((), async |(), cx: StepContext, _| cx.until(Duration::from_secs(1), || async { Ok(None::<u32>) }).await);
    steps.step("image").needs(install).mutate(&bench.image, |_| make("image"));
    plan
}

async fn raise_after(cancel: &Cancel, times: &[u64]) {
    for seconds in times {
        tokio::time::sleep(Duration::from_secs(*seconds)).await;
        cancel.raise();
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_level_ends_waits_and_starts_nothing_new() {
    let mut bench = Bench::new();
    let cancel = Cancel::new();
    let (outcome, ()) = tokio::join!(bench.run_with(three_steps(&bench), cancel.clone()), raise_after(&cancel, &[10]));
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.failures[0].class, Class::Cancelled);
    assert_eq!(outcome.skipped[0].reason, SkipReason::Cancelled);
    assert_eq!(bench.step_state("install"), Some(StepState::Cancelled));
    assert_eq!(bench.world.names(), ["disk"]);

    let left = bench.engine.undo(&bench.spec.id, Undo::Everything, cancel).await.unwrap();
    assert_eq!((left, bench.world.names()), (vec![], vec![]));
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
    assert_eq!(bench.told().last().unwrap(), "run_finished ");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_finished_and_recorded() {
    let bench = Bench::new();
    bench.world.fault("volume", [Fault::Slow(Duration::from_secs(60))]);
    let cancel = Cancel::new();
    let (outcome, ()) = tokio::join!(bench.run_with(three_steps(&bench), cancel.clone()), raise_after(&cancel, &[10]));
    assert_eq!((outcome.verdict, outcome.unknown.len()), (Verdict::Cancelled, 0));
    assert_eq!(bench.state_of("volume"), Some(ResourceState::Done));
}

#[tokio::test(start_paused = true)]
async fn the_second_level_leaves_a_call_behind_and_says_so() {
    let mut bench = Bench::new();
    bench.world.fault("volume", [Fault::Slow(Duration::from_secs(60))]);
    let cancel = Cancel::new();
    let (outcome, ()) =
        tokio::join!(bench.run_with(three_steps(&bench), cancel.clone()), raise_after(&cancel, &[10, 10]));
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!((outcome.unknown.len(), &*outcome.unknown[0].step), (1, "volume"));
    assert_eq!(bench.state_of("volume"), Some(ResourceState::Open));
    let left = bench.engine.undo(&bench.spec.id, Undo::Everything, cancel).await.unwrap();
    assert_eq!(left[0].reason, "undoing was stopped");
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();

    // The stream ends, although the call that was left behind is still out there.
    drop(bench.engine);
    let mut told = Vec::new();
    while let Some(event) = bench.events.next().await {
        told.push(event.kind);
    }
    assert_eq!(told.last(), Some(&EventKind::RunFinished { verdict: Verdict::Cancelled }));
    assert_eq!(bench.world.names(), Vec::<String>::new());

    // Its answer comes later and is recorded; another process finds it.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(bench.world.names(), ["disk"]);
    let resources = bench.journal.resources(&bench.spec.id).unwrap();
    assert_eq!(resources[0].state, ResourceState::Accepted);
    let events = bench.journal.events(&bench.spec.id).unwrap();
    assert_eq!(events.last().unwrap().kind, EventKind::RunFinished { verdict: Verdict::Cancelled });
    let mut mutations = Mutations::new();
    mutations.register(Maker {
        world: bench.world.clone(),
        name: "test.volume",
        keep: Keep::Scaffold,
        resend: Resend::OnlyIfAbsent,
        patience: Patience::none(),
    });
    let other = Engine::new(bench.journal.clone(), mutations.into(), EngineOptions::default(), EventSink::none());
    let left = other.undo(&bench.spec.id, Undo::Everything, Cancel::new()).await.unwrap();
    assert_eq!((left, bench.world.names()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_delay_ends_at_once() {
    let bench = Bench::new();
    let cancel = Cancel::new();
    let mut plan = Plan::new();
    let retry = Retry { attempts: 3, base: Duration::from_secs(86_400), cap: Duration::from_secs(86_400) };
    plan.steps().step("flaky").retry(retry).run((), async |(), _, ()| Err::<u32, _>(StepError::transient("hiccup")));
    let begun = tokio::time::Instant::now();
    let (outcome, ()) = tokio::join!(bench.run_with(plan, cancel.clone()), raise_after(&cancel, &[2]));
    assert_eq!((outcome.verdict, begun.elapsed().as_secs()), (Verdict::Cancelled, 2));
    assert_eq!(outcome.failures[0].error, ["hiccup"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_the_last_step_changes_nothing() {
    let bench = Bench::new();
    let cancel = Cancel::new();
    let mut plan = Plan::new();
    plan.steps().step("last").run(cancel.clone(), async |cancel, _, ()| Ok(cancel.raise()));
    assert_eq!(bench.run_with(plan, cancel).await.verdict, Verdict::Done);
}

#[tokio::test(start_paused = true)]
async fn cancelled_before_it_began_nothing_is_sent() {
    let bench = Bench::new();
    let cancel = Cancel::new();
    cancel.raise();
    let outcome = bench.run_with(three_steps(&bench), cancel).await;
    assert_eq!((outcome.verdict, outcome.skipped.len()), (Verdict::Cancelled, 3));
    assert!(bench.world.sends().is_empty());
}
