//! The process dies after any number of writes, and again while another one goes on: the end is always the same.

use bake_engine::*;

use crate::world::*;

const MADE: [&str; 5] = ["image-1", "image-2", "note", "snapshot", "tag"];

/// A scope with two mutations and a live value, a snapshot, two images at once, a tag, something optional, and
/// something that a condition leaves out.
fn bake(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let size = steps.step("size").run(7, give);
    let sealed = steps.scope("volume", |scope| {
        let disk = scope.step("create").needs(size).mutate(&bench.volume, |n| make(&format!("disk-{n}")));
        let attached = scope.step("attach").needs(disk).mutate(&bench.volume, |disk| make_on("attachment", &disk));
        let root =
            scope.step("mount").needs(attached).open((), async |(), _, at: Thing| Ok(at.id), async |(), _| Ok(()));
        scope.step("install").needs(root).run((), async |(), _, root| Ok(root.len()));
        scope.step("seal").needs((root, disk)).run((), async |(), _, (_, disk)| Ok(disk))
    });
    let snapshot = steps.step("snapshot").needs(sealed).mutate(&bench.token, |_| make("snapshot"));
    let mut images = steps.under("images").with(StepDefaults::new().keep_going());
    let one = images.step("one").needs(snapshot).mutate(&bench.image, |made| make_on("image-1", &made));
    let two = images.step("two").needs(snapshot).mutate(&bench.token, |made| make_on("image-2", &made));
    steps.step("tag").needs((one, two)).mutate(&bench.token, |(one, _)| make_on("tag", &one));
    steps.step("note").needs(two).optional().mutate(&bench.image, |_| make("note"));
    steps.step("never").needs(size).when("size > 9", size, |n| Ok(n > 9)).mutate(&bench.image, |_| make("never"));
    steps.step("report").needs((one, two)).run((), async |(), _, (one, two)| Ok((one.id, two.id)));
    plan
}

fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// Begins a run that dies after so many writes. Returns whether it has begun, and whether it came to its end.
async fn begin(bench: &Bench, writes: usize) -> (bool, bool) {
    bench.die_after(writes);
    let outcome = bench.engine.run(bake(bench), bench.spec.clone(), Cancel::new()).await;
    let ended = matches!(&outcome, Ok(outcome) if outcome.verdict == Verdict::Done);
    (bench.journal.run(&bench.spec.id).unwrap().is_some(), ended)
}

async fn resume_and_check(bench: &Bench, after: &str) {
    let outcome = bench.resume(bake(bench)).await;
    assert_eq!(outcome.verdict, Verdict::Done, "{after}: {:?}", outcome.failures);
    assert_eq!(bench.undo(Undo::Scaffolds).await, [], "{after}");
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
    assert_eq!(bench.world.names(), MADE, "{after}");

    let view = bench.journal.view(&bench.spec.id).unwrap().unwrap();
    let in_journal =
        view.resources.iter().filter(|made| made.state == ResourceState::Done && made.keep == Keep::Artifact);
    assert_eq!(in_journal.count(), MADE.len(), "{after}: the journal has what the world has");
    let events = bench.journal.events(&bench.spec.id).unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "{after}");
    let ends =
        events.iter().filter(|event| matches!(event.kind, EventKind::StepFinished { state: StepState::Done, .. }));
    let mut ends: Vec<_> =
        ends.filter_map(|event| event.step.clone()).filter(|step| !step.starts_with("volume")).collect();
    let told = ends.len();
    ends.sort();
    ends.dedup();
    assert_eq!((told, ends.len()), (7, 7), "{after}: each end is told once");
}

async fn tear_down_and_check(bench: &Bench, after: &str) {
    assert_eq!(bench.undo(Undo::Everything).await, [], "{after}");
    assert_eq!(bench.world.names(), Vec::<String>::new(), "{after}");
}

#[test]
fn a_run_that_dies_after_any_write_is_finished_or_taken_back() {
    for writes in 1.. {
        let ended = paused(async {
            let after = format!("after {writes} writes");
            let bench = Bench::new();
            let (begun, ended) = begin(&bench, writes).await;
            if begun {
                resume_and_check(&bench.heir(), &after).await;
                let sends = bench.world.sends();
                resume_and_check(&bench.heir(), &format!("{after}, twice")).await;
                assert_eq!(bench.world.sends(), sends, "{after}: the second time does nothing");
            }
            let bench = Bench::new();
            if begin(&bench, writes).await.0 {
                tear_down_and_check(&bench.heir(), &after).await;
            }
            ended
        });
        if ended {
            assert!(writes > 50, "{writes}");
            return;
        }
    }
}

#[test]
fn it_may_die_again_while_another_process_goes_on() {
    // A stride that has nothing in common with the steps of the protocol.
    for first in (3..).step_by(7) {
        for second in (0..).step_by(5) {
            let (ended, resumed) = paused(async {
                let after = format!("after {first} and then {second} writes");
                let bench = Bench::new();
                let (begun, ended) = begin(&bench, first).await;
                if !begun {
                    return (ended, true);
                }
                let heir = bench.heir();
                heir.die_after(second);
                let resumed = heir.engine.resume(bake(&heir), &heir.spec.id, Cancel::new()).await;
                let resumed = matches!(&resumed, Ok(outcome) if outcome.verdict == Verdict::Done);
                let last = heir.heir();
                if second % 2 == 0 {
                    resume_and_check(&last, &after).await
                } else {
                    tear_down_and_check(&last, &after).await
                }
                (ended, resumed)
            });
            if ended {
                return;
            }
            if resumed {
                break;
            }
        }
    }
}

#[test]
fn it_may_die_in_the_middle_of_taking_back() {
    for writes in 0.. {
        let done = paused(async {
            let bench = Bench::new();
            bench.run(bake(&bench)).await;
            let first = bench.heir();
            first.die_after(writes);
            assert_eq!(first.undo(Undo::Everything).await, [], "a journal that cannot be written can be read");
            let done = first.journal.poison().is_none();
            let second = first.heir();
            tear_down_and_check(&second, &format!("after {writes} writes")).await;
            let states = second.journal.resources(&second.spec.id).unwrap().into_iter().map(|made| made.state);
            assert!(states.into_iter().all(|state| state == ResourceState::Undone));
            done
        });
        if done {
            assert!(writes > 7, "{writes}");
            return;
        }
    }
}
