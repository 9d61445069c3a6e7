//! Taking runs back.

use std::sync::Arc;
use std::time::Duration;

use bake_engine::*;
use tokio::time::Instant;

use crate::world::*;

/// volume ← snapshot ← image, and a tag that nobody uses.
fn chain(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let volume = steps.step("volume").mutate(&bench.volume, |()| make("volume"));
    let snapshot = steps.step("snapshot").needs(volume).mutate(&bench.image, |volume| make_on("snapshot", &volume));
    steps.step("image").needs(snapshot).mutate(&bench.image, |snapshot| make_on("image", &snapshot));
    plan
}

#[tokio::test(start_paused = true)]
async fn everything_goes_newest_first_and_once() {
    let mut bench = Bench::new();
    bench.run(chain(&bench)).await;
    assert_eq!(bench.undo(Undo::Everything).await, []);
    assert_eq!(bench.world.undone(), ["image-2", "snapshot-1", "volume-0"]);
    assert_eq!(bench.undo(Undo::Everything).await, [], "a second time does nothing");
    assert_eq!(bench.world.undone().len(), 3);
    assert_eq!(bench.told().iter().filter(|told| told.starts_with("resource_undone")).count(), 3);
    assert_eq!(bench.state_of("image"), Some(ResourceState::Undone));
}

#[tokio::test(start_paused = true)]
async fn the_order_is_that_of_the_journal_and_not_of_luck() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut before = steps.step("0").mutate(&bench.image, |()| make("thing"));
    for number in 1..5 {
        before = steps.step(&number.to_string()).needs(before).mutate(&bench.image, |_| make("thing"));
    }
    bench.run(plan).await;
    bench.undo(Undo::Everything).await;
    assert_eq!(bench.world.undone(), ["thing-4", "thing-3", "thing-2", "thing-1", "thing-0"]);
}

#[tokio::test(start_paused = true)]
async fn scaffolds_go_and_artifacts_stay() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("volume").mutate(&bench.volume, |()| make("volume"));
    steps.step("image").mutate(&bench.image, |()| make("image"));
    bench.world.fault("half", [Fault::NeverReady]);
    steps.step("half").optional().mutate(&bench.image, |()| make("half"));
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!(bench.undo(Undo::Scaffolds).await, []);
    assert_eq!(bench.world.names(), ["image"]);
}

/// Eleven things, of which the newest is used by the oldest, which nobody told the engine. One worker removes all.
#[tokio::test(start_paused = true)]
async fn what_is_in_use_goes_back_to_the_queue() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut before = steps.step("thing-00").mutate(&bench.volume, |()| make("thing-00"));
    for number in 1..11 {
        let name = format!("thing-{number:02}");
        before = steps.step(&name.clone()).needs(before).mutate(&bench.volume, move |_| make(&name));
    }
    bench.run(plan).await;
    bench.world.use_secretly("thing-00", "thing-10-10");
    let begun = Instant::now();
    assert_eq!(bench.undo(Undo::Everything).await, []);
    assert_eq!((bench.world.undone().len(), bench.world.0.lock().unwrap().tries_to_undo), (11, 12));
    assert_eq!(bench.world.undone().last().unwrap(), "thing-10-10");
    assert!(begun.elapsed() < Duration::from_secs(1), "while anything goes forward nothing waits");
}

#[tokio::test(start_paused = true)]
async fn what_stays_in_use_is_left_and_named_after_a_while() {
    let options = EngineOptions { stall_limit: Duration::from_secs(100), ..EngineOptions::default() };
    let bench = Bench::with(Patience::none(), options);
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("stuck").mutate(&bench.volume, |()| make("stuck"));
    steps.step("free").mutate(&bench.volume, |()| make("free"));
    bench.run(plan).await;
    let stuck = bench.journal.resources(&bench.spec.id).unwrap()[0].made.clone().unwrap();
    bench.world.0.lock().unwrap().hidden_use.insert(stuck["id"].as_str().unwrap().into(), u32::MAX);
    let begun = Instant::now();
    let left = bench.undo(Undo::Everything).await;
    assert!((100..200).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!((left.len(), &*left[0].reason), (1, "it is still in use"));
    assert_eq!(left[0].made.as_ref(), Some(&stuck));
    assert_eq!(bench.world.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_knows_is_left_and_the_rest_goes() {
    let bench = Bench::new();
    bench.run(chain(&bench)).await;
    let mut mutations = Mutations::new();
    mutations.register(Maker {
        world: bench.world.clone(),
        name: "test.image",
        keep: Keep::Artifact,
        resend: Resend::OnlyIfAbsent,
        patience: Patience::none(),
    });
    let other_process =
        Engine::new(bench.journal.clone(), Arc::new(mutations), EngineOptions::default(), EventSink::none());
    let left = other_process.undo(&bench.spec.id, Undo::Everything, Cancel::new()).await.unwrap();
    assert_eq!((&*left[0].step, &*left[0].reason), ("volume", "this program has no plugin for `test.volume`"));
    assert_eq!(bench.world.names(), ["volume"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_level_cancel_stops_it() {
    let bench = Bench::new();
    bench.run(chain(&bench)).await;
    bench.world.0.lock().unwrap().hidden_use.insert("image-2".into(), u32::MAX);
    let cancel = Cancel::new();
    cancel.raise();
    let raise = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        cancel.raise();
    };
    let (left, ()) = tokio::join!(bench.engine.undo(&bench.spec.id, Undo::Everything, cancel.clone()), raise);
    let left = left.unwrap();
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|left| left.reason == "undoing was stopped"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_there_is_an_error() {
    let bench = Bench::new();
    let run: RunId = "20260101-000000-none".parse().unwrap();
    let error = bench.engine.undo(&run, Undo::Everything, Cancel::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no run `20260101-000000-none`");
}
