//! A world that steps can change, with faults, and a bench to run plans on.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bake_engine::*;
use serde::{Deserialize, Serialize};

/// What a call does instead of working.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Throttle,
    Transient,
    Permanent,
    /// The request never arrived, and the caller cannot know.
    LostRequest,
    /// The thing was made, and the caller does not hear of it.
    LostAnswer,
    Panic,
    Slow(Duration),
    /// Fails while it settles.
    NeverReady,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Make {
    pub name: String,
    /// Ids of things that must not go before this one.
    pub uses: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub id: String,
    pub name: String,
}

#[derive(Default)]
pub(crate) struct State {
    /// By token.
    pub things: BTreeMap<String, (Thing, BTreeSet<String>)>,
    pub sends: Vec<String>,
    pub undone: Vec<String>,
    pub tries_to_undo: u32,
    /// Names in use by something that the plan does not know of, and for how many tries.
    pub hidden_use: HashMap<String, u32>,
    pub faults: HashMap<String, VecDeque<Fault>>,
    /// Looks before something that is there is seen.
    pub blind_looks: u32,
    /// What a look finds that is not ours.
    pub foreign: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct World(pub Arc<Mutex<State>>);

impl World {
    pub(crate) fn fault(&self, step: &str, faults: impl IntoIterator<Item = Fault>) {
        self.0.lock().unwrap().faults.insert(step.into(), faults.into_iter().collect());
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.lock().unwrap().things.values().map(|(thing, _)| thing.name.clone()).collect();
        names.sort();
        names
    }

    pub(crate) fn sends(&self) -> Vec<String> {
        self.0.lock().unwrap().sends.clone()
    }

    pub(crate) fn undone(&self) -> Vec<String> {
        self.0.lock().unwrap().undone.clone()
    }

    /// Puts a thing there that somebody else made.
    pub(crate) fn keep(&self, id: &str, name: &str) {
        let thing = Thing { id: id.into(), name: name.into() };
        self.0.lock().unwrap().things.insert(format!("foreign#{id}"), (thing, BTreeSet::new()));
    }

    /// Lets a thing use another, which the plan does not know of.
    pub(crate) fn use_secretly(&self, user: &str, used: &str) {
        let mut state = self.0.lock().unwrap();
        let thing = state.things.values_mut().find(|(thing, _)| thing.name == user);
        thing.unwrap().1.insert(used.into());
    }

    fn next_fault(&self, step: &str) -> Option<Fault> {
        self.0.lock().unwrap().faults.get_mut(step)?.pop_front()
    }

    fn make(&self, op: &Op, request: &Make) -> Made {
        let mut state = self.0.lock().unwrap();
        // A thing is made anew for each send: only the engine keeps us from two.
        let number = state.things.len();
        let id = format!("{}-{number}", request.name);
        let key = format!("{}#{number}", op.token());
        let thing = Thing { id: id.clone(), name: request.name.clone() };
        state.things.insert(key, (thing, request.uses.iter().cloned().collect()));
        Made { id }
    }
}

/// Makes things.
pub(crate) struct Maker {
    pub world: World,
    pub name: &'static str,
    pub keep: Keep,
    pub resend: Resend,
    pub patience: Patience,
}

impl Mutation for Maker {
    type Request = Make;
    type Made = Made;
    type Result = Thing;

    fn name(&self) -> &'static str {
        self.name
    }
    fn calls(&self) -> Calls {
        Calls { send: &["MakeThing"], settle: &["DescribeThings"], undo: &["DeleteThing"] }
    }
    fn keep(&self) -> Keep {
        self.keep
    }
    fn resend(&self) -> Resend {
        self.resend
    }
    fn patience(&self) -> Patience {
        self.patience
    }

    async fn send(&self, op: &Op, request: &Make) -> StepResult<Made> {
        self.world.0.lock().unwrap().sends.push(op.step().into());
        match self.world.next_fault(op.step()) {
            Some(Fault::Throttle) => Err(StepError::new(Class::Throttled, "slow down")),
            Some(Fault::Transient) => Err(StepError::transient("hiccup")),
            Some(Fault::Permanent) => Err(StepError::permanent("not allowed").hint("ask for it")),
            Some(Fault::LostRequest) => Err(StepError::unknown("no answer")),
            Some(Fault::LostAnswer) => {
                self.answer(op, request);
                Err(StepError::unknown("no answer"))
            }
            Some(Fault::Panic) => panic!("the cloud fell down"),
            Some(Fault::Slow(time)) => {
                tokio::time::sleep(time).await;
                Ok(self.answer(op, request))
            }
            Some(Fault::NeverReady) => {
                self.world.fault(op.step(), [Fault::NeverReady]);
                Ok(self.answer(op, request))
            }
            None => Ok(self.answer(op, request)),
        }
    }

    async fn find(&self, op: &Op, _: &Make) -> StepResult<Found<Made>> {
        {
            let mut state = self.world.0.lock().unwrap();
            if !state.foreign.is_empty() {
                return Ok(Found::Ambiguous(state.foreign.clone()));
            }
            if state.blind_looks > 0 {
                state.blind_looks -= 1;
                return Ok(Found::Absent);
            }
        }
        let mut found = self.find_now(op);
        Ok(match found.len() {
            0 => Found::Absent,
            1 => Found::Made(found.remove(0)),
            _ => Found::Ambiguous(found.into_iter().map(|made| made.id).collect()),
        })
    }

    async fn settle(&self, cx: &StepContext, request: &Make, made: &Made) -> StepResult<Thing> {
        match self.world.next_fault(cx.path()) {
            Some(Fault::NeverReady) => return Err(StepError::permanent("it broke while it was made")),
            Some(Fault::Slow(time)) => cx.pause(time).await?,
            _ => {}
        }
        Ok(Thing { id: made.id.clone(), name: request.name.clone() })
    }

    async fn undo(&self, _: &Op, made: &Made) -> StepResult<Undone> {
        let mut state = self.world.0.lock().unwrap();
        state.tries_to_undo += 1;
        let hidden = state.hidden_use.get_mut(&made.id).filter(|tries| **tries > 0);
        if let Some(tries) = hidden {
            *tries -= 1;
            return Ok(Undone::InUse);
        }
        if state.things.values().any(|(_, uses)| uses.contains(&made.id)) {
            return Ok(Undone::InUse);
        }
        state.things.retain(|_, (thing, _)| thing.id != made.id);
        state.undone.push(made.id.clone());
        Ok(Undone::Gone)
    }
}

impl Maker {
    /// Makes it, unless a repeated request gives the first answer.
    fn answer(&self, op: &Op, request: &Make) -> Made {
        let first = self.find_now(op).into_iter().next().filter(|_| self.resend == Resend::SameAnswer);
        first.unwrap_or_else(|| self.world.make(op, request))
    }

    fn find_now(&self, op: &Op) -> Vec<Made> {
        let state = self.world.0.lock().unwrap();
        let ours = state.things.iter().filter(|(key, _)| key.starts_with(op.token()));
        ours.map(|(_, (thing, _))| Made { id: thing.id.clone() }).collect()
    }
}

pub(crate) type Kind = MutationKind<Make, Thing>;

/// A journal, a world, and an engine.
pub(crate) struct Bench {
    pub engine: Engine,
    pub journal: Journal,
    pub world: World,
    pub image: Kind,
    pub volume: Kind,
    /// Answers a repeated request with the first answer.
    pub token: Kind,
    pub events: EventStream,
    pub spec: RunSpec,
    pub folder: Arc<tempfile::TempDir>,
    patience: Patience,
    options: EngineOptions,
}

/// A folder that no disk has to sync: these tests ask what is written when, and the kernel does not die in them.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

pub(crate) fn spec() -> RunSpec {
    RunSpec {
        id: RunId::new(jiff::Timestamp::now()),
        title: "hello".into(),
        request_key: "key".into(),
        config: serde_json::json!({ "environment": "test" }),
        plugins: serde_json::json!({}),
        started: jiff::Timestamp::now(),
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(Patience::none(), EngineOptions::default())
    }

    pub(crate) fn with(patience: Patience, options: EngineOptions) -> Bench {
        Bench::on(World::default(), Arc::new(memory_folder()), spec(), patience, options)
    }

    /// Makes one on a folder that has a journal.
    pub(crate) fn found(folder: tempfile::TempDir, run: &str) -> Bench {
        let spec = RunSpec { id: run.parse().unwrap(), ..spec() };
        Bench::on(World::default(), Arc::new(folder), spec, Patience::none(), EngineOptions::default())
    }

    /// Returns what another process has: the same world and the same file, and an engine that knows nothing.
    pub(crate) fn heir(&self) -> Bench {
        self.survive();
        Bench::on(self.world.clone(), Arc::clone(&self.folder), self.spec.clone(), self.patience, self.options)
    }

    fn on(
        world: World,
        folder: Arc<tempfile::TempDir>,
        spec: RunSpec,
        patience: Patience,
        options: EngineOptions,
    ) -> Bench {
        let mut mutations = Mutations::new();
        let mut register =
            |name, keep, resend| mutations.register(Maker { world: world.clone(), name, keep, resend, patience });
        let image = register("test.image", Keep::Artifact, Resend::OnlyIfAbsent);
        let volume = register("test.volume", Keep::Scaffold, Resend::OnlyIfAbsent);
        let token = register("test.token", Keep::Artifact, Resend::SameAnswer);
        let journal = Journal::open(&folder.path().join("journal.db")).unwrap();
        let (sink, events) = EventSink::channel();
        let engine = Engine::new(journal.clone(), Arc::new(mutations), options, sink);
        Bench { engine, journal, world, image, volume, token, events, spec, folder, patience, options }
    }

    /// Lets the process die at a write: from then on nothing that it does is recorded, as if it were not there.
    pub(crate) fn die_at(&self, write: &str) {
        execute(
            &self.database(),
            &format!("CREATE TRIGGER death BEFORE {write} BEGIN SELECT raise(ABORT, 'dead'); END"),
        );
    }

    /// Lets the process die after so many writes.
    pub(crate) fn die_after(&self, writes: usize) {
        let mut sql = format!("CREATE TABLE life (left INTEGER); INSERT INTO life VALUES ({writes});");
        for (number, what) in [
            "INSERT ON steps",
            "UPDATE ON steps",
            "INSERT ON resources",
            "UPDATE ON resources",
            "INSERT ON runs",
            "UPDATE ON runs",
            "INSERT ON events",
        ]
        .iter()
        .enumerate()
        {
            sql += &format!(
                "CREATE TRIGGER death_{number} BEFORE {what} BEGIN UPDATE life SET left = left - 1;
                 SELECT raise(ABORT, 'dead') FROM life WHERE left < 0; END;"
            );
        }
        execute(&self.database(), &sql);
    }

    fn survive(&self) {
        let mut sql = String::from("DROP TRIGGER IF EXISTS death; DROP TABLE IF EXISTS life;");
        (0..7).for_each(|number| sql += &format!("DROP TRIGGER IF EXISTS death_{number};"));
        execute(&self.database(), &sql);
    }

    pub(crate) async fn resume(&self, plan: Plan) -> Outcome {
        self.engine.resume(plan, &self.spec.id, Cancel::new()).await.unwrap()
    }

    pub(crate) async fn run(&self, plan: Plan) -> Outcome {
        self.run_with(plan, Cancel::new()).await
    }

    pub(crate) async fn run_with(&self, plan: Plan, cancel: Cancel) -> Outcome {
        self.engine.run(plan, self.spec.clone(), cancel).await.unwrap()
    }

    pub(crate) async fn undo(&self, what: Undo) -> Vec<Left> {
        self.engine.undo(&self.spec.id, what, Cancel::new()).await.unwrap()
    }

    pub(crate) fn database(&self) -> std::path::PathBuf {
        self.journal.path().to_owned()
    }

    pub(crate) fn state_of(&self, step: &str) -> Option<ResourceState> {
        let resources = self.journal.resources(&self.spec.id).unwrap();
        resources.iter().find(|resource| resource.step == step).map(|resource| resource.state)
    }

    pub(crate) fn step_state(&self, path: &str) -> Option<StepState> {
        self.journal.steps(&self.spec.id).unwrap().iter().find(|step| step.path == path)?.state
    }

    /// Returns what was told so far, one word and the step for each.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(event) = self.events.try_next() {
            let json = serde_json::to_value(&event).unwrap();
            let back: Event = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(back, event, "an event survives JSON");
            told.push(format!("{} {}", json["event"].as_str().unwrap(), event.step.unwrap_or_default()));
        }
        told
    }
}

pub(crate) fn make(name: &str) -> Make {
    Make { name: name.into(), uses: Vec::new() }
}

pub(crate) fn make_on(name: &str, uses: &Thing) -> Make {
    Make { name: name.into(), uses: vec![uses.id.clone()] }
}

/// Local work that gives a number.
pub(crate) async fn give(number: u32, _: StepContext, (): ()) -> StepResult<u32> {
    Ok(number)
}

pub(crate) async fn fail(message: &'static str, _: StepContext, (): ()) -> StepResult<u32> {
    Err(StepError::permanent(message))
}

pub(crate) fn execute(database: &Path, sql: &str) {
    rusqlite::Connection::open(database).unwrap().execute_batch(sql).unwrap();
}
