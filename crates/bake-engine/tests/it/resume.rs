//! Going on with runs that were left.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bake_engine::*;
use tokio::time::Instant;

use crate::world::*;

const RECORDED: &str = "UPDATE ON resources WHEN NEW.state = 'accepted' AND NEW.step";
const READY: &str = "UPDATE ON resources WHEN NEW.state = 'done' AND NEW.step";
const INTENDED: &str = "INSERT ON resources WHEN NEW.step";

/// base → disk (a scope) → snapshot → two images, and a report.
fn bake(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let base = steps.step("base").run(7, give);
    let disk = steps.scope("volume", |scope| {
        let created = scope.step("create").needs(base).mutate(&bench.volume, |n| make(&format!("disk-{n}")));
        let root =
            scope.step("open").needs(created).open((), async |(), _, disk: Thing| Ok(disk.id), async |(), _| Ok(()));
        scope.step("provision").needs(root).run((), async |(), _, root| Ok(root.len()));
        scope.step("seal").needs((root, created)).run((), async |(), _, (_, disk)| Ok(disk))
    });
    let snapshot = steps.step("snapshot").needs(disk).mutate(&bench.image, |disk| make_on("snapshot", &disk));
    let one = steps.step("one").needs(snapshot).mutate(&bench.image, |snapshot| make_on("one", &snapshot));
    let two = steps.step("two").needs(snapshot).mutate(&bench.token, |snapshot| make_on("two", &snapshot));
    steps.step("report").needs((one, two)).run((), async |(), _, (one, two)| Ok(format!("{} {}", one.id, two.id)));
    plan
}

const BAKED: [&str; 4] = ["disk-7", "one", "snapshot", "two"];

#[tokio::test(start_paused = true)]
async fn what_is_done_is_read_back_and_not_told_again() {
    let bench = Bench::new();
    bench.die_at(&format!("{INTENDED} = 'one'"));
    assert_eq!(bench.run(bake(&bench)).await.verdict, Verdict::Poisoned);

    let mut heir = bench.heir();
    let last = heir.journal.view(&heir.spec.id).unwrap().unwrap().seq;
    let outcome = heir.resume(bake(&heir)).await;
    assert_eq!((outcome.verdict, heir.world.names()), (Verdict::Done, BAKED.map(String::from).to_vec()));
    assert_eq!(outcome.outputs["base"], 7);
    assert_eq!(outcome.outputs["volume/seal"]["name"], "disk-7");
    heir.engine.close(&heir.spec.id, outcome.verdict).await.unwrap();
    let events = heir.journal.events(&heir.spec.id).unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "numbers go on without a gap");
    assert_eq!(events[last as usize].seq, last + 1);
    let EventKind::RunResumed { title, steps, ended } = &events[last as usize].kind else { panic!("{events:?}") };
    assert_eq!((&**title, steps.len()), ("hello", 10));
    assert_eq!(
        ended[..],
        ["base", "volume/create", "volume/open", "volume/provision", "volume/seal", "volume", "snapshot"]
    );
    let told = heir.told();
    assert_eq!(told[0], "run_resumed ");
    assert!(told.iter().all(|told| !told.contains("volume") && !told.contains("snapshot")), "{told:?}");
    assert_eq!(heir.journal.run(&heir.spec.id).unwrap().unwrap().verdict, Some(Verdict::Done));
}

#[tokio::test(start_paused = true)]
async fn when_all_is_done_nothing_is_called() {
    let bench = Bench::new();
    bench.run(bake(&bench)).await;
    let sends = bench.world.sends();
    let heir = bench.heir();
    for _ in 0..2 {
        let outcome = heir.resume(bake(&heir)).await;
        assert_eq!((outcome.verdict, outcome.outputs.len()), (Verdict::Done, 8));
        heir.engine.close(&heir.spec.id, outcome.verdict).await.unwrap();
    }
    assert_eq!(heir.world.sends(), sends);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_looked_for() {
    // Sent or not: who comes after finds the same in the journal.
    for (death, sends) in [(format!("{RECORDED} = 'one'"), 1), (format!("{INTENDED} = 'two'"), 1)] {
        let bench = Bench::new();
        bench.die_at(&death);
        bench.run(bake(&bench)).await;
        let heir = bench.heir();
        assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
        assert_eq!(heir.world.names(), BAKED, "{death}");
        let sent = heir.world.sends().iter().filter(|step| *step == "one").count();
        assert_eq!(sent, sends, "{death}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_again_with_the_same_request() {
    let bench = Bench::new();
    bench.die_at(&format!("{RECORDED} = 'two'"));
    bench.run(bake(&bench)).await;
    assert_eq!(bench.state_of("two"), Some(ResourceState::Open));
    let heir = bench.heir();
    assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), BAKED);
    assert_eq!(heir.world.sends().iter().filter(|step| *step == "two").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn looking_has_the_patience_of_the_kind() {
    let bench = Bench::with(Patience::new(3, Duration::from_secs(60)), EngineOptions::default());
    bench.die_at(&format!("{RECORDED} = 'one'"));
    bench.run(bake(&bench)).await;
    let heir = bench.heir();
    heir.world.0.lock().unwrap().blind_looks = 3;
    assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), BAKED);
}

#[tokio::test(start_paused = true)]
async fn several_candidates_stop_the_step_and_are_named() {
    let bench = Bench::new();
    bench.die_at(&format!("{RECORDED} = 'one'"));
    bench.run(bake(&bench)).await;
    let heir = bench.heir();
    heir.world.0.lock().unwrap().foreign = vec!["ami-1".into(), "ami-2".into()];
    let outcome = heir.resume(bake(&heir)).await;
    assert_eq!(
        (outcome.verdict, &outcome.failures[0].details[..]),
        (Verdict::Failed, &["ami-1".into(), "ami-2".into()][..])
    );
    assert_eq!((&*outcome.unknown[0].step, heir.state_of("one")), ("one", Some(ResourceState::Unknown)));

    heir.world.0.lock().unwrap().foreign.clear();
    let next = heir.heir();
    assert_eq!(next.resume(bake(&next)).await.verdict, Verdict::Done);
    assert_eq!(next.world.names(), BAKED);
}

#[tokio::test(start_paused = true)]
async fn what_has_ids_is_waited_for_and_not_sent() {
    let bench = Bench::new();
    bench.die_at(&format!("{READY} = 'one'"));
    bench.run(bake(&bench)).await;
    assert_eq!(bench.state_of("one"), Some(ResourceState::Accepted));
    let heir = bench.heir();
    heir.world.0.lock().unwrap().foreign = vec!["nobody should look".into()];
    let outcome = heir.resume(bake(&heir)).await;
    assert_eq!((outcome.verdict, heir.world.names()), (Verdict::Done, BAKED.map(String::from).to_vec()));
    assert_eq!(heir.world.sends().iter().filter(|step| *step == "one").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_has_not_ended_begins_again_and_its_first_volume_goes() {
    for death in ["volume/provision", "volume/seal", "volume"] {
        let bench = Bench::new();
        bench.die_at(&format!("INSERT ON steps WHEN NEW.path = '{death}'"));
        bench.run(bake(&bench)).await;
        assert_eq!(bench.world.names(), ["disk-7"], "{death}");
        let heir = bench.heir();
        let outcome = heir.resume(bake(&heir)).await;
        assert_eq!((outcome.verdict, heir.world.names()), (Verdict::Done, BAKED.map(String::from).to_vec()), "{death}");
        assert_eq!(heir.world.undone(), ["disk-7-0"], "{death}");
        let resources = heir.journal.resources(&heir.spec.id).unwrap();
        let disks: Vec<_> = resources.iter().filter(|resource| resource.step == "volume/create").collect();
        assert_eq!((disks[0].generation, disks[0].state), (1, ResourceState::Undone));
        assert_eq!((disks[1].generation, disks[1].state), (2, ResourceState::Done));
        assert_ne!(disks[0].operation, disks[1].operation);
        assert_eq!(heir.undo(Undo::Everything).await, []);
        assert_eq!(heir.world.names(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_scope_whose_first_volume_stays_does_not_make_a_second() {
    let options = EngineOptions { stall_limit: Duration::from_secs(10), ..EngineOptions::default() };
    let bench = Bench::with(Patience::none(), options);
    bench.die_at("INSERT ON steps WHEN NEW.path = 'volume/seal'");
    bench.run(bake(&bench)).await;
    let mut heir = bench.heir();
    heir.world.0.lock().unwrap().hidden_use.insert("disk-7-0".into(), u32::MAX);
    let outcome = heir.resume(bake(&heir)).await;
    assert_eq!((outcome.verdict, heir.world.names()), (Verdict::Failed, vec!["disk-7".to_owned()]));
    assert_eq!(outcome.failures[0].path, "volume/create");
    assert_eq!(outcome.failures[0].error, ["cannot begin again: what was made before cannot be taken back"]);
    assert_eq!(
        outcome.failures[0].details,
        [r#"test.volume of `volume/create`, {"id":"disk-7-0"}: it is still in use"#]
    );
    assert!(!heir.told().contains(&"step_started volume/open".to_owned()));

    // When it lets go, the next one does it.
    heir.world.0.lock().unwrap().hidden_use.clear();
    let next = heir.heir();
    assert_eq!(next.resume(bake(&next)).await.verdict, Verdict::Done);
    assert_eq!(next.world.names(), BAKED);
}

#[tokio::test(start_paused = true)]
async fn an_optional_scope_that_cannot_begin_again_is_a_warning() {
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let mut steps = steps.under("extra").with(StepDefaults::new().optional());
        steps.scope("volume", |scope| {
            let disk = scope.step("create").mutate(&bench.volume, |()| make("disk"));
            scope.step("use").needs(disk).run((), async |(), _, _| Ok(()));
        });
        plan
    };
    let options = EngineOptions { stall_limit: Duration::from_secs(10), ..EngineOptions::default() };
    let bench = Bench::with(Patience::none(), options);
    bench.die_at("INSERT ON steps WHEN NEW.path = 'extra/volume'");
    bench.run(plan(&bench)).await;
    let heir = bench.heir();
    heir.world.0.lock().unwrap().hidden_use.insert("disk-0".into(), u32::MAX);
    let outcome = heir.resume(plan(&heir)).await;
    assert_eq!((outcome.verdict, outcome.warnings.len()), (Verdict::Done, 1));
    assert_eq!(heir.world.names(), ["disk"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_waited_out_and_a_clock_that_was_put_back_does_not_lengthen_it() {
    let hour = Duration::from_secs(3600);
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        let slow = Retry { attempts: 3, base: hour, cap: hour };
        plan.steps().step("image").retry(slow).mutate(&bench.image, |()| make("image"));
        plan
    };
    for (clock, least, most) in [("2000-01-01T00:00:00Z", 0, 1), ("2999-01-01T00:00:00Z", 3600, 3600)] {
        let bench = Bench::new();
        bench.world.fault("image", [Fault::Transient; 2]);
        bench.die_at("UPDATE ON steps WHEN OLD.retry IS NOT NULL");
        bench.run(plan(&bench)).await;
        let heir = bench.heir();
        let state = format!(r#"json_set(retry, '$.delay_ms', 3600000, '$.not_before', '{clock}')"#);
        execute(&heir.database(), &format!("UPDATE steps SET retry = {state}"));
        let begun = Instant::now();
        heir.world.fault("image", []);
        assert_eq!(heir.resume(plan(&heir)).await.verdict, Verdict::Done);
        assert!((least..=most).contains(&begun.elapsed().as_secs()), "{clock}: {:?}", begun.elapsed());
        assert_eq!(heir.world.names(), ["image"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_cancel_cut_short_goes_on() {
    let day = Duration::from_secs(86_400);
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        plan.steps()
            .step("image")
            .retry(Retry { attempts: 3, base: day, cap: day })
            .mutate(&bench.image, |()| make("image"));
        plan
    };
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Transient]);
    for _ in 0..3 {
        let heir = bench.heir();
        let cancel = Cancel::new();
        let raise = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.raise();
        };
        let run = async {
            match heir.journal.run(&heir.spec.id).unwrap() {
                None => heir.run_with(plan(&heir), cancel.clone()).await,
                Some(_) => heir.engine.resume(plan(&heir), &heir.spec.id, cancel.clone()).await.unwrap(),
            }
        };
        let (outcome, ()) = tokio::join!(run, raise);
        assert_eq!(outcome.verdict, Verdict::Cancelled);
        let step = heir.journal.steps(&heir.spec.id).unwrap().remove(0);
        assert_eq!((step.attempts, step.retry.is_some()), (1, true));
    }
    let heir = bench.heir();
    assert_eq!(heir.resume(plan(&heir)).await.verdict, Verdict::Done);
    let begun =
        heir.journal.events(&heir.spec.id).unwrap().into_iter().filter(|event| event.kind == EventKind::StepStarted);
    assert_eq!(begun.map(|event| event.attempt.unwrap()).collect::<Vec<_>>(), [1, 2], "tries are counted on");
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_with_new_tries_and_so_is_what_was_optional() {
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let mut steps = steps.under("all").with(StepDefaults::new().keep_going().retry(Retry::attempts(2)));
        let image = steps.step("image").mutate(&bench.image, |()| make("image"));
        steps.step("tag").needs(image).mutate(&bench.image, |image| make_on("tag", &image));
        steps.step("poke").optional().mutate(&bench.image, |()| make("poke"));
        steps.step("other").run(1, give);
        plan
    };
    let bench = Bench::new();
    bench.world.fault("all/image", [Fault::Transient; 3]);
    bench.world.fault("all/poke", [Fault::Permanent]);
    let first = bench.run(plan(&bench)).await;
    assert_eq!((first.verdict, first.warnings.len(), first.skipped.len()), (Verdict::Failed, 1, 1));
    assert_eq!(bench.state_of("all/image"), Some(ResourceState::NotMade));
    bench.engine.close(&bench.spec.id, first.verdict).await.unwrap();

    let mut heir = bench.heir();
    let second = heir.resume(plan(&heir)).await;
    assert_eq!((second.verdict, second.warnings.len(), second.skipped.len()), (Verdict::Done, 0, 0));
    assert_eq!(heir.world.names(), ["image", "poke", "tag"]);
    assert_eq!(heir.world.sends().iter().filter(|step| *step == "all/image").count(), 4);
    assert!(!heir.told().iter().any(|told| told.contains("all/other")));
    let one_operation_each = heir.journal.resources(&heir.spec.id).unwrap();
    assert_eq!(one_operation_each.len(), 3, "what made nothing is sent again with its token");
}

#[tokio::test(start_paused = true)]
async fn answers_of_conditions_stay() {
    let asked = Arc::new(AtomicU32::new(0));
    let plan = |bench: &Bench, answer: bool| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let count = Arc::clone(&asked);
        let yes = steps.step("yes").when("answer", (), move |()| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(answer)
        });
        yes.mutate(&bench.image, |()| make("yes"));
        let no = steps.step("no").when("not answer", (), move |()| Ok(!answer)).mutate(&bench.image, |()| make("no"));
        steps.step("after_no").needs(no).run((), async |(), _, _| Ok(()));
        plan
    };
    let bench = Bench::new();
    bench.world.fault("yes", [Fault::Slow(Duration::from_secs(1))]);
    bench.die_at(&format!("{RECORDED} = 'yes'"));
    bench.run(plan(&bench, true)).await;
    let mut heir = bench.heir();
    let outcome = heir.resume(plan(&heir, false)).await;
    assert_eq!((outcome.verdict, heir.world.names()), (Verdict::Done, vec!["yes".to_owned()]));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(outcome.skipped[0].reason, SkipReason::Condition("not answer".into()));
    assert_eq!(heir.told().iter().filter(|told| **told == "step_skipped no").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_request_is_the_one_that_is_sent() {
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let mut steps = steps.under("all").with(StepDefaults::new().keep_going());
        let name = steps.step("name").optional().mutate(&bench.image, |()| make("name"));
        steps.step("image").needs(name.maybe()).mutate(&bench.token, |name| make(name.map_or("plain", |_| "named")));
        plan
    };
    let bench = Bench::new();
    bench.world.fault("all/name", [Fault::Permanent]);
    bench.die_at(&format!("{RECORDED} = 'all/image'"));
    bench.run(plan(&bench)).await;
    let heir = bench.heir();
    assert_eq!(heir.resume(plan(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), ["name", "plain"]);

    // What is known to have made nothing asks for what is true now, under another token.
    let bench = Bench::new();
    bench.world.fault("all/name", [Fault::Permanent]);
    bench.world.fault("all/image", [Fault::Permanent]);
    bench.run(plan(&bench)).await;
    let heir = bench.heir();
    assert_eq!(heir.resume(plan(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), ["name", "named"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_back_is_made_again_if_it_is_wanted() {
    // All of it: a run that failed and was cleaned up.
    let bench = Bench::new();
    bench.world.fault("two", [Fault::Permanent]);
    assert_eq!(bench.run(bake(&bench)).await.verdict, Verdict::Failed);
    assert_eq!(bench.undo(Undo::Everything).await, []);
    bench.engine.close(&bench.spec.id, Verdict::Failed).await.unwrap();
    let heir = bench.heir();
    assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), BAKED);
    let mut operations: Vec<_> =
        heir.journal.resources(&heir.spec.id).unwrap().into_iter().map(|made| made.operation).collect();
    operations.sort();
    operations.dedup();
    assert_eq!(operations.len(), 8, "no token is used for two things");

    // The volume alone, which nothing needs any more.
    let bench = Bench::new();
    bench.world.fault("two", [Fault::Permanent]);
    bench.run(bake(&bench)).await;
    bench.world.0.lock().unwrap().things.values_mut().for_each(|(_, uses)| uses.clear());
    assert_eq!(bench.undo(Undo::Scaffolds).await, []);
    let heir = bench.heir();
    assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), ["one", "snapshot", "two"]);

    // The volume alone, which the snapshot needs: the scope begins again, for it gave its id away.
    let bench = Bench::new();
    bench.world.fault("snapshot", [Fault::Permanent]);
    bench.run(bake(&bench)).await;
    assert_eq!(bench.undo(Undo::Scaffolds).await, []);
    let heir = bench.heir();
    assert_eq!(heir.resume(bake(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), BAKED);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_comes_back_to_life_writes_nothing() {
    let bench = Bench::new();
    bench.world.fault("one", [Fault::Slow(Duration::from_secs(60))]);
    let heir = bench.heir();
    let resume = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        heir.world.fault("one", []);
        let outcome = heir.resume(bake(&heir)).await;
        heir.engine.close(&heir.spec.id, outcome.verdict).await.unwrap();
        (outcome.verdict, heir.journal.events(&heir.spec.id).unwrap())
    };
    let (old, (new, events)) = tokio::join!(bench.run(bake(&bench)), resume);
    assert_eq!((old.verdict, new), (Verdict::Poisoned, Verdict::Done));
    let message = format!("another process has gone on with the run `{}`", bench.spec.id);
    assert_eq!(old.failures[0].error, std::slice::from_ref(&message));
    assert_eq!((old.unsaved.len(), &*old.unsaved[0].step), (1, "one"), "what it made late is named");
    let closed = bench.engine.close(&bench.spec.id, old.verdict).await.unwrap_err();
    assert_eq!(closed.to_string(), message);
    assert_eq!(bench.journal.events(&bench.spec.id).unwrap(), events);
    assert_eq!(bench.journal.poison(), None, "other runs of the process go on");
    bench.engine.run(Plan::new(), spec(), Cancel::new()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_teardown_takes_the_run_away_too() {
    let bench = Bench::new();
    let paused = Arc::new(Mutex::new(()));
    let mut plan = bake(&bench);
    plan.steps().step("slow").run(paused, async |_, cx: StepContext, ()| cx.pause(Duration::from_secs(60)).await);
    let heir = bench.heir();
    let teardown = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        heir.undo(Undo::Everything).await
    };
    let (old, left) = tokio::join!(bench.run(plan), teardown);
    assert_eq!((old.verdict, left, heir.world.names()), (Verdict::Poisoned, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_there_or_is_too_old_is_refused() {
    let bench = Bench::new();
    let error = bench.engine.resume(bake(&bench), &bench.spec.id, Cancel::new()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("there is no run `{}`", bench.spec.id));

    bench.world.fault("two", [Fault::Permanent]);
    bench.run(bake(&bench)).await;
    execute(&bench.database(), "UPDATE runs SET format = 1");
    let heir = bench.heir();
    let error = heir.engine.resume(bake(&heir), &heir.spec.id, Cancel::new()).await.unwrap_err();
    assert!(error.to_string().ends_with("was begun by an older version of this program, and can only be taken back"));
    assert_eq!(heir.undo(Undo::Everything).await, []);
    assert_eq!(heir.world.names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_begins_nothing_new_names_what_is_open() {
    let bench = Bench::new();
    bench.die_at(&format!("{RECORDED} = 'one'"));
    bench.run(bake(&bench)).await;
    let heir = bench.heir();
    let cancel = Cancel::new();
    cancel.raise();
    let outcome = heir.engine.resume(bake(&heir), &heir.spec.id, cancel).await.unwrap();
    assert_eq!((outcome.verdict, &*outcome.unknown[0].step), (Verdict::Cancelled, "one"));
    assert_eq!(heir.state_of("one"), Some(ResourceState::Open));
    let next = heir.heir();
    assert_eq!(next.resume(bake(&next)).await.verdict, Verdict::Done);
    assert_eq!(next.world.names(), BAKED);
}

#[tokio::test(start_paused = true)]
async fn what_made_nothing_is_open_again_before_it_is_sent_again() {
    let bench = Bench::new();
    bench.world.fault("one", [Fault::Permanent]);
    bench.run(bake(&bench)).await;
    assert_eq!(bench.state_of("one"), Some(ResourceState::NotMade));
    let heir = bench.heir();
    heir.die_at(&format!("{RECORDED} = 'one'"));
    heir.resume(bake(&heir)).await;
    let last = heir.heir();
    assert_eq!(last.state_of("one"), Some(ResourceState::Open));
    assert_eq!(last.undo(Undo::Everything).await, []);
    assert_eq!(last.world.names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_runs_again_is_not_done_until_it_is() {
    for death in ["volume/create", "snapshot", "one", "two"] {
        let bench = Bench::new();
        bench.run(bake(&bench)).await;
        assert_eq!(bench.undo(Undo::Everything).await, []);
        let heir = bench.heir();
        heir.die_at(&format!("{RECORDED} = '{death}'"));
        heir.resume(bake(&heir)).await;
        let last = heir.heir();
        let outcome = last.resume(bake(&last)).await;
        assert_eq!((outcome.verdict, last.world.names()), (Verdict::Done, BAKED.map(String::from).to_vec()), "{death}");
        assert_eq!(outcome.unknown, [], "{death}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_a_cancel_kept_from_a_try_gives_it_when_it_goes_on() {
    let hour = Duration::from_secs(3600);
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        plan.steps().scope("volume", |scope| {
            let step = scope.step("extra").optional().retry(Retry { attempts: 3, base: hour, cap: hour });
            step.mutate(&bench.volume, |()| make("extra"));
        });
        plan
    };
    let bench = Bench::new();
    bench.world.fault("volume/extra", [Fault::Transient]);
    let cancel = Cancel::new();
    let raise = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.raise();
    };
    tokio::join!(bench.run_with(plan(&bench), cancel.clone()), raise);
    assert_eq!(bench.step_state("volume"), Some(StepState::Skipped));
    let heir = bench.heir();
    assert_eq!(heir.resume(plan(&heir)).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), ["extra"]);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_begins_again_gets_what_it_reads_even_if_it_had_sent_its_request() {
    let plan = |bench: &Bench| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        let disk = steps.scope("first", |scope| scope.step("disk").mutate(&bench.volume, |()| make("disk")));
        steps.scope("second", |scope| {
            let copy =
                scope.step("copy").needs(disk).mutate(&bench.image, |disk| make(&format!("copy of {}", disk.id)));
            scope.step("use").needs(copy).run((), async |(), _, _| Ok(()));
        });
        plan
    };
    let options = EngineOptions { stall_limit: Duration::from_secs(10), ..EngineOptions::default() };
    let bench = Bench::with(Patience::none(), options);
    bench.die_at("INSERT ON steps WHEN NEW.path = 'second/use'");
    bench.run(plan(&bench)).await;
    let heir = bench.heir();
    heir.world.0.lock().unwrap().hidden_use.insert("copy of disk-0-1".into(), u32::MAX);
    assert_eq!(heir.undo(Undo::Everything).await.len(), 1, "the copy stays, the disk goes");
    heir.world.keep("other", "other");
    heir.world.0.lock().unwrap().hidden_use.clear();
    let last = heir.heir();
    assert_eq!(last.resume(plan(&last)).await.verdict, Verdict::Done);
    let names = last.world.names();
    assert_eq!((names.len(), &*names[1]), (3, "disk"), "{names:?}");
    assert_ne!(names[0], "copy of disk-0", "the new disk is another one");
}
