//! Random plans against a model that is simple enough to be right.

use std::collections::BTreeSet;
use std::time::Duration;

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
    place: Place,
}

/// Where a step is. Members of a scope follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    BeginsScope,
    /// In the scope of the step before, if that is in one.
    StaysInScope,
}

fn random_step() -> impl Strategy<Value = RandomStep> {
    use Behaviour::*;
    let edge = prop_oneof![3 => Just(Edge::Value), 1 => Just(Edge::Maybe), 1 => Just(Edge::After)];
    let edges = prop::collection::vec((any::<prop::sample::Index>(), edge), 0..4);
    let behaviour = prop_oneof![
        6 => Just(Works), 2 => Just(FailsForGood), 2 => Just(Flaky),
        1 => Just(LosesTheAnswer), 1 => Just(LosesTheRequest), 1 => Just(ConditionFails)
    ];
    let place = prop_oneof![4 => Just(Place::Outside), 1 => Just(Place::BeginsScope), 3 => Just(Place::StaysInScope)];
    (edges, behaviour, any::<bool>(), prop::bool::weighted(0.4), place).prop_map(
        |(edges, behaviour, mutation, optional, place)| RandomStep { edges, behaviour, mutation, optional, place },
    )
}

fn edges_of(step: &RandomStep, number: usize) -> Vec<(usize, Edge)> {
    if number == 0 {
        return Vec::new();
    }
    step.edges.iter().map(|(index, edge)| (index.index(number), *edge)).collect()
}

/// Returns which scope each step is in.
fn scopes_of(steps: &[RandomStep]) -> Vec<Option<usize>> {
    let mut scopes: Vec<Option<usize>> = Vec::new();
    let mut begun = 0;
    for step in steps {
        scopes.push(match step.place {
            Place::Outside => None,
            Place::BeginsScope => {
                begun += 1;
                Some(begun - 1)
            }
            Place::StaysInScope => scopes.last().copied().flatten(),
        });
    }
    scopes
}

/// What becomes of a run that keeps going.
struct Model {
    scopes: Vec<Option<usize>>,
    /// Which steps are done, and seen by others.
    done: Vec<bool>,
    /// Which are left out or fail for a reason that is no choice.
    blocked: Vec<bool>,
    broken: BTreeSet<usize>,
}

impl Model {
    fn of(steps: &[RandomStep], fails: impl Fn(&RandomStep) -> bool) -> Model {
        let mut model =
            Model { scopes: scopes_of(steps), done: Vec::new(), blocked: Vec::new(), broken: BTreeSet::new() };
        for (number, step) in steps.iter().enumerate() {
            let edges = edges_of(step, number);
            let values: Vec<_> = edges.iter().filter(|(_, edge)| *edge == Edge::Value).map(|&(from, _)| from).collect();
            let runs = values.iter().all(|&from| model.done[from]) && step.behaviour != Behaviour::ConditionFails;
            model.done.push(runs && !fails(step));
            let blocked = (runs && fails(step) && !step.optional) || values.iter().any(|&from| model.blocked[from]);
            model.blocked.push(blocked);
            if let (Some(scope), true) = (model.scopes[number], blocked) {
                model.broken.insert(scope);
            }
            let scope_ends = model.scopes[number] != model.scopes.get(number + 1).copied().flatten();
            if scope_ends {
                model.hide_what_is_broken();
            }
        }
        model
    }

    fn hide_what_is_broken(&mut self) {
        for number in 0..self.done.len() {
            let broken = self.is_broken(number);
            self.done[number] &= !broken;
            self.blocked[number] |= broken;
        }
    }

    fn is_broken(&self, number: usize) -> bool {
        self.scopes[number].is_some_and(|scope| self.broken.contains(&scope))
    }

    /// Checks that there is one of each, and nothing else but what broken scopes have left. Scaffolds may be gone
    /// if somebody took them back when nothing needed them any more.
    fn check_world(&self, steps: &[RandomStep], world: &World, scaffolds: Scaffolds) {
        let may_be_gone = |number| scaffolds == Scaffolds::MayBeGone && number % 3 == 2;
        let there = world.names();
        let set: BTreeSet<_> = there.iter().cloned().collect();
        assert_eq!(there.len(), set.len(), "nothing twice: {there:?}");
        let must = names(steps, |number, step| self.done[number] && step.mutation && !may_be_gone(number));
        let may = names(steps, |number, step| {
            step.mutation && (self.is_broken(number) || self.done[number] && may_be_gone(number))
        });
        assert!(set.is_superset(&must), "{must:?} should be in {set:?}");
        assert!(set.is_subset(&must.union(&may).cloned().collect()), "{set:?} should be in {must:?} and {may:?}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scaffolds {
    AreThere,
    MayBeGone,
}

fn fails_for_good(step: &RandomStep) -> bool {
    step.behaviour == Behaviour::FailsForGood
}

fn build(bench: &Bench, steps: &[RandomStep]) -> Plan {
    let mut plan = Plan::new();
    let mut top = plan.steps();
    let mut top = top.under("r").with(StepDefaults::new().keep_going());
    let mut handles: Vec<Handle<Thing>> = Vec::new();
    let scopes = scopes_of(steps);
    while handles.len() < steps.len() {
        let number = handles.len();
        let Some(scope) = scopes[number] else {
            let builder = top.step(&format!("s{number}")).needs(inputs(steps, number, &handles));
            handles.push(add(bench, steps, number, builder, &handles));
            continue;
        };
        top.scope(&format!("scope{scope}"), |members| {
            while scopes.get(handles.len()) == Some(&Some(scope)) {
                let number = handles.len();
                let builder = members.step(&format!("s{number}")).needs(inputs(steps, number, &handles));
                handles.push(add(bench, steps, number, builder, &handles));
            }
        });
    }
    plan
}

type RandomInputs = (Vec<Handle<Thing>>, Vec<Maybe<Thing>>);

fn from<'a>(
    steps: &[RandomStep],
    number: usize,
    handles: &'a [Handle<Thing>],
    wanted: Edge,
) -> impl Iterator<Item = Handle<Thing>> + use<'a> {
    let edges = edges_of(&steps[number], number).into_iter();
    edges.filter(move |(_, edge)| *edge == wanted).map(|(from, _)| handles[from])
}

fn inputs(steps: &[RandomStep], number: usize, handles: &[Handle<Thing>]) -> RandomInputs {
    let maybes = from(steps, number, handles, Edge::Maybe).map(Handle::maybe);
    (from(steps, number, handles, Edge::Value).collect(), maybes.collect())
}

fn add<Where>(
    bench: &Bench,
    steps: &[RandomStep],
    number: usize,
    mut builder: StepBuilder<'_, RandomInputs, Where>,
    handles: &[Handle<Thing>],
) -> Handle<Thing> {
    let (step, name) = (&steps[number], format!("s{number}"));
    let path = match scopes_of(steps)[number] {
        Some(scope) => format!("r/scope{scope}/{name}"),
        None => format!("r/{name}"),
    };
    for after in from(steps, number, handles, Edge::After) {
        builder = builder.after(after);
    }
    if step.optional {
        builder = builder.optional();
    }
    if step.behaviour == Behaviour::ConditionFails {
        builder = builder.when("false", (), |()| Ok(false));
    }
    if step.mutation {
        let faults = match step.behaviour {
            Behaviour::FailsForGood => vec![Fault::Permanent],
            Behaviour::Flaky => vec![Fault::Transient],
            Behaviour::LosesTheAnswer => vec![Fault::LostAnswer],
            Behaviour::LosesTheRequest => vec![Fault::LostRequest],
            Behaviour::Works | Behaviour::ConditionFails => vec![],
        };
        bench.world.fault(&path, faults);
        let kind = match number % 3 {
            0 => &bench.image,
            1 => &bench.token,
            _ => &bench.volume,
        };
        return builder.mutate(kind, move |(values, _)| Make {
            name: name.clone(),
            uses: values.into_iter().map(|value| value.id).filter(|id| !id.starts_with("local")).collect(),
        });
    }
    builder.run((name, step.behaviour), async |(name, behaviour), cx: StepContext, _| match (behaviour, cx.attempt()) {
        (Behaviour::FailsForGood, _) => Err(StepError::permanent("bad")),
        (Behaviour::Flaky | Behaviour::LosesTheAnswer | Behaviour::LosesTheRequest, 1) => {
            Err(StepError::transient("hiccup"))
        }
        _ => Ok(Thing { id: format!("local-{name}"), name }),
    })
}

fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

fn names(steps: &[RandomStep], wanted: impl Fn(usize, &RandomStep) -> bool) -> BTreeSet<String> {
    let wanted = steps.iter().enumerate().filter(|(number, step)| wanted(*number, step));
    wanted.map(|(number, _)| format!("s{number}")).collect()
}

/// What a scope was finished without stays undone, so whether it is done depends on when the world mended itself. The
/// model knows no time: where there are scopes, it wants what fails to be no option.
fn without_lasting_warnings(mut steps: Vec<RandomStep>) -> Vec<RandomStep> {
    if scopes_of(&steps).iter().any(Option::is_some) {
        steps.iter_mut().for_each(|step| step.optional &= !step.mutation || !fails_for_good(step));
    }
    steps
}

/// How a run stops before its end.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// It does not: what fails fails.
    Failures,
    Death {
        writes: usize,
    },
    Cancel {
        millis: u64,
        levels: u32,
    },
}

fn stop() -> impl Strategy<Value = Stop> {
    prop_oneof![
        1 => Just(Stop::Failures),
        3 => (1usize..150).prop_map(|writes| Stop::Death { writes }),
        2 => cancel().prop_map(|(millis, levels)| Stop::Cancel { millis, levels }),
    ]
}

fn cancel() -> impl Strategy<Value = (u64, u32)> {
    (0u64..3000, 1u32..3)
}

fn what_to_undo() -> impl Strategy<Value = Option<Undo>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(Undo::Everything)), 1 => Just(Some(Undo::Scaffolds))]
}

/// Runs, or goes on, until it is stopped.
async fn run_until(bench: &Bench, plan: Plan, stop: Stop) -> Option<Outcome> {
    let cancel = Cancel::new();
    if let Stop::Death { writes } = stop {
        bench.die_after(writes);
    }
    let raise = async {
        let Stop::Cancel { millis, levels } = stop else { return };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        for _ in 0..levels {
            cancel.raise();
        }
    };
    let go = async {
        match bench.journal.run(&bench.spec.id).unwrap() {
            None => bench.engine.run(plan, bench.spec.clone(), cancel.clone()).await.ok(),
            Some(_) => bench.engine.resume(plan, &bench.spec.id, cancel.clone()).await.ok(),
        }
    };
    tokio::join!(go, raise).0
}

/// How many random plans. A thorough run has 10,000.
fn config() -> ProptestConfig {
    let cases = std::env::var("BAKE_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_run_does_what_the_model_says(steps in prop::collection::vec(random_step(), 1..14)) {
        paused(async {
            let bench = Bench::new();
            let model = Model::of(&steps, fails_for_good);
            let outcome = bench.run(build(&bench, &steps)).await;

            let finished: BTreeSet<_> =
                outcome.outputs.keys().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect();
            assert_eq!(finished, names(&steps, |number, _| model.done[number]));
            model.check_world(&steps, &bench.world, Scaffolds::AreThere);

            let states = bench.journal.steps(&bench.spec.id).unwrap();
            let in_state = |state| states.iter().filter(|step| step.state == Some(state)).count();
            let scopes: BTreeSet<_> = model.scopes.iter().flatten().collect();
            assert_eq!(states.len(), steps.len() + scopes.len());
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
        (millis, levels) in cancel(),
    ) {
        paused(async {
            let mut bench = Bench::new();
            let outcome = run_until(&bench, build(&bench, &steps), Stop::Cancel { millis, levels }).await.unwrap();
            assert!(bench.journal.steps(&bench.spec.id).unwrap().iter().all(|step| step.state.is_some()));
            assert_eq!(bench.undo(Undo::Everything).await, []);
            assert_eq!(bench.world.names(), Vec::<String>::new());
            bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
            assert_eq!(bench.told().last().unwrap(), "run_finished ");
        });
    }

    #[test]
    fn wherever_it_stops_going_on_ends_where_the_model_says(
        steps in prop::collection::vec(random_step(), 1..12).prop_map(without_lasting_warnings),
        stops in prop::collection::vec((stop(), what_to_undo()), 1..4),
    ) {
        paused(async {
            let mut bench = Bench::new();
            for (stop, what) in stops {
                let plan = build(&bench, &steps);
                run_until(&bench, plan, stop).await;
                bench = bench.heir();
                let Some(what) = what.filter(|_| bench.journal.run(&bench.spec.id).unwrap().is_some()) else { continue };
                // Scaffolds that artifacts use stay.
                let left = bench.undo(what).await;
                assert!(what == Undo::Scaffolds || left.is_empty() && bench.world.names().is_empty(), "{left:?}");
                bench = bench.heir();
            }
            // The world has mended itself. Local work that fails for good still does.
            let model = Model::of(&steps, |step| fails_for_good(step) && !step.mutation);
            let plan = build(&bench, &steps);
            bench.world.0.lock().unwrap().faults.clear();
            let outcome = run_until(&bench, plan, Stop::Failures).await.unwrap();
            model.check_world(&steps, &bench.world, Scaffolds::MayBeGone);
            let finished: BTreeSet<_> =
                outcome.outputs.keys().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect();
            assert_eq!(finished, names(&steps, |number, _| model.done[number]));
            assert_eq!(outcome.unknown, []);

            let heir = bench.heir();
            let (sends, there) = (heir.world.sends().len(), heir.world.names());
            let again = run_until(&heir, build(&heir, &steps), Stop::Failures).await.unwrap();
            if again.failures.is_empty() && again.warnings.is_empty() {
                assert_eq!((heir.world.sends().len(), heir.world.names()), (sends, there), "twice is once");
            }
            assert_eq!(heir.undo(Undo::Everything).await, []);
            assert_eq!(heir.world.names(), Vec::<String>::new());
        });
    }
}
