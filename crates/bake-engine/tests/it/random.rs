//! Random plans against a model that is simple enough to be right.

use std::collections::BTreeSet;

use bake_engine::*;
use proptest::prelude::*;

use crate::world::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Value,
    Maybe,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Works,
    FailsForGood,
    /// Fails once, then works.
    Flaky,
    LosesTheAnswer,
    LosesTheRequest,
    ConditionFails,
}

#[derive(Debug, Clone)]
struct RandomStep {
    edges: Vec<(prop::sample::Index, Edge)>,
    behaviour: Behaviour,
    mutation: bool,
    optional: bool,
}

fn random_step() -> impl Strategy<Value = RandomStep> {
    use Behaviour::*;
    let edge = prop_oneof![3 => Just(Edge::Value), 1 => Just(Edge::Maybe), 1 => Just(Edge::After)];
    let edges = prop::collection::vec((any::<prop::sample::Index>(), edge), 0..4);
    let behaviour = prop_oneof![
        6 => Just(Works), 2 => Just(FailsForGood), 2 => Just(Flaky),
        1 => Just(LosesTheAnswer), 1 => Just(LosesTheRequest), 1 => Just(ConditionFails)
    ];
    (edges, behaviour, any::<bool>(), prop::bool::weighted(0.4))
        .prop_map(|(edges, behaviour, mutation, optional)| RandomStep { edges, behaviour, mutation, optional })
}

fn edges_of(step: &RandomStep, number: usize) -> Vec<(usize, Edge)> {
    if number == 0 {
        return Vec::new();
    }
    step.edges.iter().map(|(index, edge)| (index.index(number), *edge)).collect()
}

/// Which steps are done, in a run that keeps going.
fn model(steps: &[RandomStep]) -> Vec<bool> {
    let mut done: Vec<bool> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let has_inputs = edges_of(step, number).iter().all(|&(from, edge)| edge != Edge::Value || done[from]);
        let works = !matches!(step.behaviour, Behaviour::FailsForGood | Behaviour::ConditionFails);
        done.push(has_inputs && works);
    }
    done
}

fn build(bench: &Bench, steps: &[RandomStep]) -> Plan {
    let mut plan = Plan::new();
    let mut top = plan.steps();
    let mut top = top.under("r").with(StepDefaults::new().keep_going());
    let mut handles: Vec<Handle<Thing>> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let (name, path) = (format!("s{number}"), format!("r/s{number}"));
        let edges = edges_of(step, number);
        let of = |wanted| edges.iter().filter(move |(_, edge)| *edge == wanted).map(|&(from, _)| handles[from]);
        let values: Vec<_> = of(Edge::Value).collect();
        let maybes: Vec<_> = of(Edge::Maybe).map(Handle::maybe).collect();
        let afters: Vec<_> = of(Edge::After).collect();
        let mut builder = top.step(&name).needs((values, maybes));
        for after in afters {
            builder = builder.after(after);
        }
        if step.optional {
            builder = builder.optional();
        }
        if step.behaviour == Behaviour::ConditionFails {
            builder = builder.when("false", (), |()| Ok(false));
        }
        let behaviour = step.behaviour;
        handles.push(if step.mutation {
            let faults = match behaviour {
                Behaviour::FailsForGood => vec![Fault::Permanent],
                Behaviour::Flaky => vec![Fault::Transient],
                Behaviour::LosesTheAnswer => vec![Fault::LostAnswer],
                Behaviour::LosesTheRequest => vec![Fault::LostRequest],
                Behaviour::Works | Behaviour::ConditionFails => vec![],
            };
            bench.world.fault(&path, faults);
            builder.mutate(&bench.image, move |(values, _)| Make {
                name: name.clone(),
                uses: values.into_iter().map(|value| value.id).filter(|id| !id.starts_with("local")).collect(),
            })
        } else {
            builder.run((name, behaviour), async |(name, behaviour), cx: StepContext, _| {
                match (behaviour, cx.attempt()) {
                    (Behaviour::FailsForGood, _) => Err(StepError::permanent("bad")),
                    (Behaviour::Flaky | Behaviour::LosesTheAnswer | Behaviour::LosesTheRequest, 1) => {
                        Err(StepError::transient("hiccup"))
                    }
                    _ => Ok(Thing { id: format!("local-{name}"), name }),
                }
            })
        });
    }
    plan
}

fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

fn names(steps: &[RandomStep], wanted: impl Fn(usize, &RandomStep) -> bool) -> BTreeSet<String> {
    let wanted = steps.iter().enumerate().filter(|(number, step)| wanted(*number, step));
    wanted.map(|(number, _)| format!("s{number}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_does_what_the_model_says(steps in prop::collection::vec(random_step(), 1..14)) {
        paused(async {
            let bench = Bench::new();
            let done = model(&steps);
            let outcome = bench.run(build(&bench, &steps)).await;

            let finished: BTreeSet<_> = outcome.outputs.keys().map(|path| path.replace("r/", "")).collect();
            assert_eq!(finished, names(&steps, |number, _| done[number]));
            let made: Vec<_> = names(&steps, |number, step| done[number] && step.mutation).into_iter().collect();
            let mut there = bench.world.names();
            there.sort();
            assert_eq!(there, made, "one of each, and nothing else");

            let states = bench.journal.steps(&bench.spec.id).unwrap();
            let in_state = |state| states.iter().filter(|step| step.state == Some(state)).count();
            assert_eq!(states.len(), steps.len());
            assert_eq!(in_state(StepState::Done), finished.len());
            assert_eq!(in_state(StepState::Failed), outcome.failures.len());
            assert_eq!(in_state(StepState::Warned), outcome.warnings.len());
            assert_eq!(in_state(StepState::Skipped), outcome.skipped.len());
            assert_eq!(outcome.verdict == Verdict::Done, outcome.failures.is_empty());

            assert_eq!(bench.undo(Undo::Everything).await, []);
            assert_eq!(bench.world.names(), Vec::<String>::new());
        });
    }

    #[test]
    fn a_cancel_at_any_moment_leaves_nothing_that_cannot_be_undone(
        steps in prop::collection::vec(random_step(), 1..10),
        millis in 0u64..3000,
        levels in 1u32..3,
    ) {
        paused(async {
            let mut bench = Bench::new();
            let cancel = Cancel::new();
            let raise = async {
                tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
                for _ in 0..levels {
                    cancel.raise();
                }
            };
            let (outcome, ()) = tokio::join!(bench.run_with(build(&bench, &steps), cancel.clone()), raise);
            assert_eq!(bench.journal.steps(&bench.spec.id).unwrap().len(), steps.len(), "each has settled");
            assert_eq!(bench.undo(Undo::Everything).await, []);
            assert_eq!(bench.world.names(), Vec::<String>::new());
            bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
            assert_eq!(bench.told().last().unwrap(), "run_finished ");
        });
    }
}
