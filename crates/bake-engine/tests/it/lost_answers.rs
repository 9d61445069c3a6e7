//! What happens when nobody knows whether a call got through.

use std::time::Duration;

use bake_engine::*;

use crate::world::*;

fn image(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    plan.steps().step("image").mutate(&bench.image, |()| make("image"));
    plan
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_one_thing() {
    for (fault, sends) in [(Fault::LostAnswer, 1), (Fault::LostRequest, 2)] {
        let bench = Bench::new();
        bench.world.fault("image", [fault]);
        let outcome = bench.run(image(&bench)).await;
        assert_eq!(outcome.verdict, Verdict::Done, "{fault:?}");
        assert_eq!((bench.world.names().len(), bench.world.sends().len()), (1, sends), "{fault:?}");
        assert_eq!(bench.state_of("image"), Some(ResourceState::Done));
    }
}

#[tokio::test(start_paused = true)]
async fn absence_needs_patience() {
    let bench = Bench::with(Patience::new(3, Duration::from_secs(60)), EngineOptions::default());
    bench.world.fault("image", [Fault::LostAnswer]);
    bench.world.0.lock().unwrap().blind_looks = 3;
    let outcome = bench.run(image(&bench)).await;
    assert_eq!((outcome.verdict, bench.world.names().len()), (Verdict::Done, 1));

    // One look more than that, and there are two: the patience is what the cloud says it needs.
    let bench = Bench::with(Patience::none(), EngineOptions::default());
    bench.world.fault("image", [Fault::LostAnswer]);
    bench.world.0.lock().unwrap().blind_looks = 3;
    bench.run(image(&bench)).await;
    assert_eq!(bench.world.names().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_again_and_gives_the_first_answer() {
    let bench = Bench::new();
    bench.world.fault("copy", [Fault::LostAnswer]);
    let mut plan = Plan::new();
    plan.steps().step("copy").mutate(&bench.token, |()| make("copy"));
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!((bench.world.names().len(), bench.world.sends().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_last_look_settles_it_when_tries_run_out() {
    let bench = Bench::new();
    bench.world.fault("copy", [Fault::LostAnswer, Fault::Permanent]);
    let mut plan = Plan::new();
    plan.steps().step("copy").mutate(&bench.token, |()| make("copy"));
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.unknown.len()), (Verdict::Failed, 0));
    assert_eq!(bench.state_of("copy"), Some(ResourceState::Accepted));
    assert_eq!(bench.undo(Undo::Everything).await, []);
    assert!(bench.world.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn ambiguity_stops_and_names_what_it_found() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::LostAnswer]);
    bench.world.0.lock().unwrap().foreign = vec!["ami-1".into(), "ami-2".into()];
    let outcome = bench.run(image(&bench)).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert_eq!(outcome.failures[0].details, ["ami-1", "ami-2"]);
    assert_eq!((outcome.unknown.len(), &*outcome.unknown[0].step), (1, "image"));
    assert_eq!(bench.state_of("image"), Some(ResourceState::Unknown));
    assert_eq!(bench.step_state("image"), Some(StepState::Unknown));
    let left = bench.undo(Undo::Everything).await;
    assert_eq!((left.len(), &left[0].made), (1, &None));
    assert_eq!(left[0].reason, "cannot tell which of 2 `test.image` is the one of `image` (ami-1, ami-2)");
}

#[tokio::test(start_paused = true)]
async fn a_time_out_ends_the_wait_and_not_the_call() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Slow(Duration::from_secs(60))]);
    let mut plan = Plan::new();
    plan.steps().step("image").timeout(Duration::from_secs(15)).mutate(&bench.image, |()| make("image"));
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!((bench.world.names().len(), bench.world.sends().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_waited_for_when_the_step_gives_up() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Slow(Duration::from_secs(600))]);
    let mut plan = Plan::new();
    let step = plan.steps();
    let mut step = step.with(StepDefaults::new().retry(Retry::never()).timeout(Duration::from_secs(1)));
    step.step("image").mutate(&bench.image, |()| make("image"));
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.unknown.len()), (Verdict::Failed, 0));
    assert_eq!(bench.state_of("image"), Some(ResourceState::Accepted));
    assert_eq!(bench.undo(Undo::Scaffolds).await, []);
    assert!(bench.world.names().is_empty(), "half-made artifacts are scaffolding");
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_sending_is_looked_up() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Panic]);
    let outcome = bench.run(image(&bench)).await;
    assert_eq!((outcome.failures[0].class, outcome.unknown.len()), (Class::Bug, 0));
    assert_eq!(bench.state_of("image"), Some(ResourceState::NotMade));
}
