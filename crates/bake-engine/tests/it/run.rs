//! Steps, their order, and their failures.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bake_engine::*;
use tokio::time::Instant;

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn values_flow_and_everything_is_told() {
    let mut bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let base = steps.step("base").run(20, give);
    let sum = steps.step("sum").needs((base, base.map(|n| n + 1))).run((), async |_, _, (a, b)| Ok(a + b));
    let image = steps.step("image").needs(sum).mutate(&bench.image, |sum| make(&format!("image-{sum}")));
    let outcome = bench.run(plan).await;

    assert_eq!(outcome.verdict, Verdict::Done);
    assert_eq!(outcome.output(sum).unwrap(), Some(41));
    assert_eq!(outcome.output(image).unwrap().unwrap().name, "image-41");
    assert_eq!(outcome.outputs["sum"], 41);
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
    insta::assert_snapshot!(bench.told().join("\n"), @r"
    run_started 
    step_started base
    step_finished base
    step_started sum
    step_finished sum
    step_started image
    resource_made image
    step_finished image
    run_finished 
    ");
    let view = bench.journal.view(&bench.spec.id).unwrap().unwrap();
    assert_eq!(view.run.verdict, Some(Verdict::Done));
    assert!(view.run.finished.is_some());
    assert_eq!(view.steps.len(), 3);
    assert_eq!(view.resources[0].state, ResourceState::Done);
    assert_eq!(view.resources[0].request["name"], "image-41");
    assert_eq!(bench.journal.events(&bench.spec.id).unwrap().len(), 9);
    assert_eq!(view.seq, 9);
}

#[tokio::test(start_paused = true)]
async fn independent_steps_overlap_and_dependants_wait() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let sleep = async |seconds: u64, cx: StepContext, ()| cx.pause(Duration::from_secs(seconds)).await;
    let one = steps.step("one").run(10, sleep);
    let two = steps.step("two").run(10, sleep);
    steps.step("both").after(one).after(two).run(5, sleep);
    let begun = Instant::now();
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!(begun.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn slots_limit_work_and_waiting_holds_none() {
    let slots = SlotLimits { chroot: SlotRange::fixed(2), ..SlotLimits::default() };
    let bench = Bench::with(Patience::none(), EngineOptions { slots, ..EngineOptions::default() });
    let working = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let mut plan = Plan::new();
    for number in 0..6 {
        let state = Arc::clone(&working);
        plan.steps().step(&format!("busy-{number}")).slot(Slot::Chroot).run(state, async |state, _, ()| {
            let now = state.0.fetch_add(1, Ordering::SeqCst) + 1;
            state.1.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            state.0.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
    }
    let begun = Instant::now();
    bench.run(plan).await;
    assert_eq!((working.1.load(Ordering::SeqCst), begun.elapsed().as_secs()), (2, 3));

    let mut plan = Plan::new();
    for number in 0..6 {
        plan.steps()
            .step(&format!("patient-{number}"))
            .slot(Slot::Chroot)
            .run((), async |(), cx, ()| cx.pause(Duration::from_secs(1)).await);
    }
    let begun = Instant::now();
    bench.engine.run(plan, spec(), Cancel::new()).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_to_try_again_holds_no_slot() {
    let hour = Duration::from_secs(3600);
    let slots = SlotLimits { api: SlotRange::fixed(1), ..SlotLimits::default() };
    let patience = Patience::new(2, hour);
    let bench = Bench::with(patience, EngineOptions { slots, ..EngineOptions::default() });
    bench.world.fault("flaky", [Fault::Transient]);
    bench.world.fault("lost", [Fault::LostAnswer]);
    bench.world.0.lock().unwrap().blind_looks = 1;
    let mut plan = Plan::new();
    let steps = plan.steps();
    let mut steps = steps.with(StepDefaults::new().retry(Retry { attempts: 2, base: hour, cap: hour }));
    steps.step("flaky").mutate(&bench.image, |()| make("flaky"));
    steps.step("lost").mutate(&bench.image, |()| make("lost"));
    let begun = Instant::now();
    let quick = steps.step("quick").run(begun, async |begun, _, ()| Ok(begun.elapsed().as_secs()));
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.output(quick).unwrap()), (Verdict::Done, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn when_a_run_is_over_nothing_of_it_runs_and_nothing_is_told_any_more() {
    let mut bench = Bench::new();
    bench.world.fault("image", [Fault::Slow(Duration::from_secs(60))]);
    let running = Arc::new(AtomicU32::new(0));
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("image").mutate(&bench.image, |()| make("image"));
    for seconds in [20, 40, 80] {
        let state = (Arc::clone(&running), seconds);
        steps.step(&format!("work-{seconds}")).run(state, async |(running, seconds), cx: StepContext, ()| {
            running.fetch_add(1, Ordering::SeqCst);
            for second in 0..seconds {
                tokio::time::sleep(Duration::from_secs(1)).await;
                cx.log(&format!("{second} s"));
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
    }
    let bad = steps.step("bad").run("no disk", fail);
    steps.step("late").after(bad).run(1, give);
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, running.load(Ordering::SeqCst)), (Verdict::Failed, 0));
    assert_eq!(bench.step_state("image"), Some(StepState::Done));
    assert_eq!(bench.step_state("work-80"), Some(StepState::Done));
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
    assert_eq!(bench.told().last().unwrap(), "run_finished ");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.told(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failure_stops_admission_and_lets_what_runs_finish() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let long = steps.step("long").run((), async |(), cx, ()| cx.pause(Duration::from_secs(60)).await);
    let bad = steps.step("bad").run("no disk", fail);
    steps.step("needs_bad").needs(bad).run((), async |(), _, _| Ok(()));
    steps.step("after_long").after(long).run(1, give);
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert_eq!(outcome.failures[0].path, "bad");
    assert_eq!(outcome.failures[0].error, ["no disk"]);
    assert_eq!(bench.step_state("long"), Some(StepState::Done));
    let skipped: Vec<_> = outcome.skipped.iter().map(|skipped| (&*skipped.path, &skipped.reason)).collect();
    assert_eq!(skipped, [("needs_bad", &SkipReason::RunFailed), ("after_long", &SkipReason::RunFailed)]);
}

#[tokio::test(start_paused = true)]
async fn keep_going_lets_independent_branches_finish() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut steps = steps.under("finalize").with(StepDefaults::new().keep_going());
    let bad = steps.step("bad").run("no bucket", fail);
    steps.step("tag_bad").needs(bad).run((), async |(), _, _| Ok(()));
    let good = steps.step("good").run(1, give);
    let tagged = steps.step("tag_good").needs(good).run((), async |(), _, n| Ok(n));
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert_eq!(outcome.output(tagged).unwrap(), Some(1));
    assert_eq!(outcome.skipped[0].reason, SkipReason::Upstream("finalize/bad".into()));
}

#[tokio::test(start_paused = true)]
async fn an_optional_failure_is_a_warning() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let poke = steps.step("poke").optional().run("nobody there", fail);
    steps.step("by_handle").needs(poke).run((), async |(), _, _| Ok(()));
    let maybe = steps.step("by_maybe").needs(poke.maybe()).run((), async |(), _, poke| Ok(poke.is_none()));
    let after = steps.step("by_after").after(poke).run(7, give);
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.warnings.len(), outcome.failures.len()), (Verdict::Done, 1, 0));
    assert_eq!(outcome.skipped[0].reason, SkipReason::Upstream("poke".into()));
    assert_eq!(outcome.output(maybe).unwrap(), Some(true));
    assert_eq!(outcome.output(after).unwrap(), Some(7));
    assert_eq!(bench.step_state("poke"), Some(StepState::Warned));
}

#[tokio::test(start_paused = true)]
async fn conditions_choose_and_are_journaled() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let size = steps.step("size").run(12, give);
    let small = steps.step("small").when("size < 10", size, |size| Ok(size < 10)).run(1, give);
    let large = steps.step("large").when("size >= 10", size, |size| Ok(size >= 10)).run(2, give);
    let broken = StepDefaults::new().when("size.x", size, |_| Err(StepError::permanent("no field `x`"))).optional();
    let mut steps = steps.under("broken").with(broken);
    steps.step("one").run(3, give);
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.output(small).unwrap(), None);
    assert_eq!(outcome.output(large).unwrap(), Some(2));
    assert_eq!(outcome.skipped[0].reason, SkipReason::Condition("size < 10".into()));
    assert_eq!(outcome.warnings[0].error, ["cannot tell whether `size.x` holds", "no field `x`"]);
    let steps = bench.journal.steps(&bench.spec.id).unwrap();
    let conditions = |path: &str| steps.iter().find(|step| step.path == path).unwrap().conditions.clone().unwrap();
    assert_eq!(conditions("small")["size < 10"], false);
    assert_eq!(conditions("large")["size >= 10"], true);
}

#[tokio::test(start_paused = true)]
async fn a_stage_waits_for_all_before_it() {
    let bench = Bench::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = async |(order, name, seconds): (Arc<Mutex<Vec<&str>>>, &'static str, u64), cx: StepContext, ()| {
        cx.pause(Duration::from_secs(seconds)).await?;
        order.lock().unwrap().push(name);
        Ok(())
    };
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("before").run((order.clone(), "before", 30), note);
    let mark = steps.len();
    steps.step("slow").run((order.clone(), "slow", 20), note);
    steps.step("poor").optional().run("x", fail);
    steps.wait_for_all_since(mark, "registered");
    steps.under("tag").step("one").run((order.clone(), "tag", 0), note);
    assert_eq!(bench.run(plan).await.verdict, Verdict::Done);
    assert_eq!(*order.lock().unwrap(), ["slow", "tag", "before"]);
}

#[tokio::test(start_paused = true)]
async fn what_may_mend_itself_is_tried_again() {
    let mut bench = Bench::new();
    bench.world.fault("image", [Fault::Throttle, Fault::Transient, Fault::Throttle]);
    let mut plan = Plan::new();
    let tries = Arc::new(AtomicU32::new(0));
    plan.steps().step("image").mutate(&bench.image, |()| make("image"));
    let local = plan.steps().step("local").retry(Retry::attempts(3)).run(tries, async |tries, cx, ()| {
        assert_eq!(tries.fetch_add(1, Ordering::SeqCst) + 1, cx.attempt());
        if cx.attempt() < 3 { Err(StepError::transient("not yet")) } else { Ok(cx.attempt()) }
    });
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.output(local).unwrap()), (Verdict::Done, Some(3)));
    assert_eq!(bench.world.names(), ["image"]);
    assert_eq!(bench.told().iter().filter(|told| *told == "step_retry image").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_waits_to_try_again_ends_with_its_error_when_the_run_fails() {
    let slots = SlotLimits { api: SlotRange::fixed(1), ..SlotLimits::default() };
    let bench = Bench::with(Patience::none(), EngineOptions { slots, ..EngineOptions::default() });
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let quick = Retry { attempts: 5, base: Duration::from_millis(1), cap: Duration::from_millis(1) };
    steps.step("flaky").retry(quick).run((), async |(), _, ()| Err::<u32, _>(StepError::transient("hiccup")));
    // Holds the only slot while `flaky` wants it again, then fails.
    steps.step("long").run((), async |(), _, ()| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err::<u32, _>(StepError::permanent("no disk"))
    });
    let outcome = bench.run(plan).await;
    let failed: Vec<_> = outcome.failures.iter().map(|failure| (&*failure.path, &*failure.error[0])).collect();
    assert_eq!(failed, [("long", "no disk"), ("flaky", "hiccup")]);
    assert!(outcome.skipped.is_empty());
}

#[tokio::test(start_paused = true)]
async fn attempts_run_out() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Transient; 9]);
    let mut plan = Plan::new();
    plan.steps().step("image").retry(Retry::attempts(4)).mutate(&bench.image, |()| make("image"));
    let outcome = bench.run(plan).await;
    assert_eq!((outcome.verdict, outcome.unknown.len()), (Verdict::Failed, 0));
    assert_eq!(bench.world.sends().len(), 4);
    assert_eq!(bench.state_of("image"), Some(ResourceState::NotMade));
    assert_eq!(bench.undo(Undo::Everything).await, []);
}

#[tokio::test(start_paused = true)]
async fn panics_are_caught_wherever_they_are() {
    let bench = Bench::new();
    bench.world.fault("send", [Fault::Panic]);
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut steps = steps.under("all").with(StepDefaults::new().keep_going());
    let one = steps.step("one").run(1, give);
    steps.step("action").run((), async |(), _, ()| -> StepResult<u32> { panic!("in an action") });
    steps.step("before").needs(one).run((), |(), _, _| -> std::future::Ready<StepResult<u32>> { panic!("at once") });
    steps.step("when").when("p", one, |_| panic!("in a condition")).run(1, give);
    steps.step("request").needs(one).mutate(&bench.image, |n| if n == 1 { panic!("in a request") } else { make("x") });
    bench.world.fault("all/send", [Fault::Panic]);
    steps.step("send").mutate(&bench.image, |()| make("sent"));
    let outcome = bench.run(plan).await;
    let mut failed: Vec<_> = outcome.failures.iter().map(|failure| (&*failure.path, failure.class)).collect();
    failed.sort_by_key(|failure| failure.0);
    let paths = ["all/action", "all/before", "all/request", "all/send", "all/when"];
    assert_eq!(failed, paths.map(|path| (path, Class::Bug)));
    let why: Vec<_> = outcome.failures.iter().map(|failure| failure.error.join(": ")).collect();
    assert!(why.iter().any(|why| why.contains("`in an action`")), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn local_work_that_is_late_fails() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    plan.steps().step("late").timeout(Duration::from_secs(5)).run((), async |(), cx: StepContext, ()| {
        assert_eq!(cx.time_left(), Some(Duration::from_secs(5)));
        std::future::pending::<StepResult<u32>>().await
    });
    let outcome = bench.run(plan).await;
    assert_eq!(outcome.failures[0].error, ["not finished within 5s"]);
}

#[tokio::test(start_paused = true)]
async fn log_lines_and_progress_are_told_and_not_kept() {
    let mut bench = Bench::new();
    let mut plan = Plan::new();
    plan.steps().step("copy").run((), async |(), cx: StepContext, ()| {
        cx.progress(4096, Some(8192), "bytes");
        cx.log("half way");
        Ok(())
    });
    bench.run(plan).await;
    assert_eq!(
        bench.told(),
        ["run_started ", "step_started copy", "step_progress copy", "step_log copy", "step_finished copy"]
    );
    assert_eq!(bench.journal.events(&bench.spec.id).unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_has_one_name_and_its_mutations_are_registered() {
    let bench = Bench::new();
    bench.run(Plan::new()).await;
    let again = bench.engine.run(Plan::new(), bench.spec.clone(), Cancel::new()).await;
    assert!(matches!(again, Err(EngineError::RunExists(_))));

    let stranger = Maker {
        world: World::default(),
        name: "test.stranger",
        keep: Keep::Artifact,
        resend: Resend::SameAnswer,
        patience: Patience::none(),
    };
    let stranger = Mutations::new().register(stranger);
    let mut plan = Plan::new();
    plan.steps().step("image").mutate(&stranger, |()| make("image"));
    let error = bench.engine.run(plan, spec(), Cancel::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "`image` uses the mutation `test.stranger`, which is not registered");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct WithHidden {
    kept: u32,
    #[serde(skip)]
    hidden: u32,
}

#[tokio::test(start_paused = true)]
async fn a_fresh_run_sees_what_a_resumed_one_would_see() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let both = steps.step("both").run((), async |(), _, ()| Ok(WithHidden { kept: 1, hidden: 2 }));
    let seen = steps.step("seen").needs(both).run((), async |(), _, both| Ok((both.kept, both.hidden)));
    assert_eq!(bench.run(plan).await.output(seen).unwrap(), Some((1, 0)));
}
