//! Mutations: every change that outlives the process is one of these.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::context::StepContext;
use crate::error::StepResult;
use crate::id::{RunId, operation_token};
use crate::inputs::{Output, decode, encode};

/// One kind of change to the world. Plain `async fn` in the impl; the engine erases it.
///
/// The engine freezes the request in the journal, sends it, records what was made, waits until it is settled, finds it
/// again after a crash, and undoes it. Everything here may be called by another process than the one that planned it.
pub trait Mutation: Send + Sync + 'static {
    /// What is planned, frozen in the intent, and sent.
    type Request: Output;
    /// Ids with region and account: enough to undo in another process.
    type Made: Output;
    /// What was read back.
    type Result: Output;

    /// Names the kind, such as `ec2.image`: in journals for ever.
    fn name(&self) -> &'static str;

    /// Names the API calls for the dry run: send, settle, undo.
    fn calls(&self) -> Calls;

    /// Says whether what is made stays.
    fn keep(&self) -> Keep;

    /// Says what sending the same request twice does.
    fn resend(&self) -> Resend;

    /// Says how long to look before something counts as absent. Local things are there or not, at the first look.
    fn patience(&self) -> Patience {
        Patience::none()
    }

    /// Sends once, with `op.token()` and `op.tags()`. Says `Class::Unknown` if it may have happened (also: "name taken").
    fn send(&self, op: &Op, request: &Self::Request) -> impl Future<Output = StepResult<Self::Made>> + Send;

    /// Takes one look, by tag or name. The engine does the patience.
    fn find(&self, op: &Op, request: &Self::Request) -> impl Future<Output = StepResult<Found<Self::Made>>> + Send;

    /// Waits for the target state. May be called again from the start by another process: long uploads belong here.
    fn settle(
        &self,
        cx: &StepContext,
        request: &Self::Request,
        made: &Self::Made,
    ) -> impl Future<Output = StepResult<Self::Result>> + Send;

    /// Takes it back. `Gone` also if it was not there; `InUse` goes back to the queue. Checks the run tag before it deletes.
    fn undo(&self, op: &Op, made: &Self::Made) -> impl Future<Output = StepResult<Undone>> + Send;
}

/// The API calls of a mutation, as a dry run names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Calls that make the change.
    pub send: &'static [&'static str],
    /// Calls that wait for it.
    pub settle: &'static [&'static str],
    /// Calls that take it back.
    pub undo: &'static [&'static str],
}

/// Whether what a mutation made stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// It is what the run is for.
    Artifact,
    /// It is undone when the run ends well, too.
    Scaffold,
    /// It goes away with something else, or changes nothing that could be taken back.
    NothingToUndo,
}

/// What sending the same request a second time does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resend {
    /// It gives the first answer again (a token), or changes nothing (repeatable).
    SameAnswer,
    /// It makes a second one, so only after the first was looked for and is absent.
    OnlyIfAbsent,
}

/// How long and how often to look before something counts as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Looks that must all find nothing.
    pub looks: u32,
    /// Time that must pass between the first look and the last.
    pub time: Duration,
}

impl Patience {
    /// One look is enough.
    pub fn none() -> Patience {
        Patience { looks: 1, time: Duration::ZERO }
    }

    /// At least `looks` looks, and at least `time` after the first.
    pub fn new(looks: u32, time: Duration) -> Patience {
        Patience { looks: looks.max(1), time }
    }

    pub(crate) fn pace(&self) -> Duration {
        /// Looks that cost nothing still should not spin.
        const SHORTEST: Duration = Duration::from_millis(50);
        (self.time / self.looks.max(1)).max(SHORTEST)
    }
}

/// What one look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<M> {
    /// Ours.
    Made(M),
    /// Not there, as far as one look can tell.
    Absent,
    /// Several, or one that is not ours. Never resolved by a guess.
    Ambiguous(Vec<String>),
}

/// How an undo ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// It is not there any more, or never was.
    Gone,
    /// Something else still uses it.
    InUse,
}

/// One operation: which run and step it belongs to, and the token that makes its repetitions one.
#[derive(Debug, Clone)]
pub struct Op {
    run: RunId,
    step: Arc<str>,
    generation: u32,
    token: Arc<str>,
    at: jiff::Timestamp,
}

impl Op {
    /// Names an operation. The engine makes these; tests of plugins may too.
    pub fn new(run: &RunId, step: &str, generation: u32, at: jiff::Timestamp) -> Op {
        let token = operation_token(run, step, generation).into();
        Op { run: run.clone(), step: step.into(), generation, token, at }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the path of the step.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Returns how often the step's scope was begun, counted from 1.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the idempotency token: lower case letters and digits, at most 64 of them.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the first letters of the token: unique enough within a run, for tags and file names.
    pub fn id(&self) -> &str {
        &self.token[..16]
    }

    /// Returns when the intent was recorded: the only clock that a request may use, the same for every try.
    pub fn time(&self) -> jiff::Timestamp {
        self.at
    }

    /// Returns the tags that find what the journal lost.
    pub fn tags(&self) -> BTreeMap<String, String> {
        [("bake:run", self.run.as_str()), ("bake:step", &self.step), ("bake:op", self.id())]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }
}

/// A registered mutation, known by what it takes and gives; a cloud hands these to finalizers.
pub struct MutationKind<Q, R> {
    pub(crate) mutation: Arc<dyn AnyMutation>,
    types: PhantomData<fn(Q) -> R>,
}

impl<Q, R> MutationKind<Q, R> {
    /// Returns the name of the mutation.
    pub fn name(&self) -> &'static str {
        self.mutation.name()
    }
}

impl<Q, R> Clone for MutationKind<Q, R> {
    fn clone(&self) -> Self {
        MutationKind { mutation: Arc::clone(&self.mutation), types: PhantomData }
    }
}

impl<Q, R> fmt::Debug for MutationKind<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MutationKind(`{}`)", self.name())
    }
}

/// All kinds of mutation that this program knows, by name.
#[derive(Default)]
pub struct Mutations {
    by_name: BTreeMap<&'static str, Arc<dyn AnyMutation>>,
}

impl Mutations {
    /// Makes an empty list.
    pub fn new() -> Mutations {
        Mutations::default()
    }

    /// Adds a kind. Nothing can be made that nobody can undo: this is the only source of a [`MutationKind`].
    ///
    /// # Panics
    ///
    /// If the name is taken: two plugins clash, which is a mistake in the program.
    pub fn register<M: Mutation>(&mut self, mutation: M) -> MutationKind<M::Request, M::Result> {
        let mutation: Arc<dyn AnyMutation> = Arc::new(Erased(mutation));
        let name = mutation.name();
        let before = self.by_name.insert(name, Arc::clone(&mutation));
        assert!(before.is_none(), "two mutations are named `{name}`");
        MutationKind { mutation, types: PhantomData }
    }

    /// Returns the names of all kinds.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.by_name.keys().copied()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn AnyMutation>> {
        self.by_name.get(name)
    }
}

impl fmt::Debug for Mutations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A mutation whose values are in their journal form.
pub(crate) trait AnyMutation: Send + Sync {
    fn name(&self) -> &'static str;
    fn calls(&self) -> Calls;
    fn keep(&self) -> Keep;
    fn resend(&self) -> Resend;
    fn patience(&self) -> Patience;
    fn send<'a>(&'a self, op: &'a Op, request: &'a str) -> BoxFuture<'a, StepResult<String>>;
    fn find<'a>(&'a self, op: &'a Op, request: &'a str) -> BoxFuture<'a, StepResult<Found<String>>>;
    fn settle<'a>(&'a self, cx: &'a StepContext, request: &'a str, made: &'a str) -> BoxFuture<'a, StepResult<String>>;
    fn undo<'a>(&'a self, op: &'a Op, made: &'a str) -> BoxFuture<'a, StepResult<Undone>>;
}

struct Erased<M>(M);

impl<M: Mutation> AnyMutation for Erased<M> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn calls(&self) -> Calls {
        self.0.calls()
    }

    fn keep(&self) -> Keep {
        self.0.keep()
    }

    fn resend(&self) -> Resend {
        self.0.resend()
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    fn send<'a>(&'a self, op: &'a Op, request: &'a str) -> BoxFuture<'a, StepResult<String>> {
        Box::pin(async move { encode(&self.0.send(op, &decode(request)?).await?) })
    }

    fn find<'a>(&'a self, op: &'a Op, request: &'a str) -> BoxFuture<'a, StepResult<Found<String>>> {
        Box::pin(async move {
            Ok(match self.0.find(op, &decode(request)?).await? {
                Found::Made(made) => Found::Made(encode(&made)?),
                Found::Absent => Found::Absent,
                Found::Ambiguous(ids) => Found::Ambiguous(ids),
            })
        })
    }

    fn settle<'a>(&'a self, cx: &'a StepContext, request: &'a str, made: &'a str) -> BoxFuture<'a, StepResult<String>> {
        Box::pin(async move { encode(&self.0.settle(cx, &decode(request)?, &decode(made)?).await?) })
    }

    fn undo<'a>(&'a self, op: &'a Op, made: &'a str) -> BoxFuture<'a, StepResult<Undone>> {
        Box::pin(async move { self.0.undo(op, &decode(made)?).await })
    }
}
