//! The plan: a graph of steps, built by code and touched by nothing until it runs.

mod builder;
mod check;
mod describe;
pub(crate) mod standin;
mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::context::StepContext;
use crate::error::StepResult;
use crate::handle::Place;
use crate::inputs::{NeedKind, Source};
use crate::live::Opened;
use crate::mutation::AnyMutation;
use crate::retry::Retry;
use crate::slot::Slot;

pub use builder::{Inside, Outside, StepBuilder};
pub use check::{PlanErrors, PlanProblem};
pub use steps::{Scope, StepDefaults, Steps};

pub(crate) use check::Graph;
pub(crate) use describe::digest;

/// A graph of steps that touches nothing until [`Engine::run`](crate::Engine::run).
pub struct Plan {
    id: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) scopes: Vec<ScopeNodes>,
    problems: Vec<PlanProblem>,
}

impl Plan {
    /// Makes an empty plan.
    #[expect(clippy::new_without_default, reason = "each plan has a name of its own; two are never equal")]
    pub fn new() -> Plan {
        // Tells the handles of two plans in one process apart; never leaves the process.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Plan { id, nodes: Vec::new(), scopes: Vec::new(), problems: Vec::new() }
    }

    /// Returns the top of the plan, where steps are added.
    pub fn steps(&mut self) -> Steps<'_> {
        Steps::top(self)
    }

    /// Lays settings over those of a step, or of all steps below a path, as a user asks for by name. Returns how many
    /// steps that were.
    pub fn lay(&mut self, path: &str, settings: &StepDefaults) -> usize {
        let is_meant = |node: &Node| {
            let below = node.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            below && !matches!(node.work, Work::EndScope(_) | Work::Barrier)
        };
        self.nodes.iter_mut().filter(|node| is_meant(node)).map(|node| settings.lay(node)).count()
    }

    /// Returns the paths of all steps that do something, in the order in which they were added.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let steps = self.nodes.iter().filter(|node| !matches!(node.work, Work::EndScope(_) | Work::Barrier));
        steps.map(|node| &*node.path)
    }

    /// Reports everything wrong at once: double ids, unknown `after`, handles of another plan, live values out of
    /// scope, cycles.
    pub fn check(&self) -> Result<(), PlanErrors> {
        self.graph().map(drop)
    }

    /// Returns what `bake plan` prints: steps, edges, conditions, requests with `{"$ref": "snapshot#/id"}`.
    pub fn describe(&self) -> serde_json::Value {
        describe::describe(self)
    }

    /// Returns the digest of the printed plan: names, tags and requests included.
    pub fn digest(&self) -> String {
        describe::digest(&self.describe())
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// The steps of one scope.
pub(crate) struct ScopeNodes {
    pub(crate) members: Vec<usize>,
    /// The node that closes the live values and makes the outputs visible outside.
    pub(crate) end: usize,
}

/// One step, its types erased.
pub(crate) struct Node {
    pub(crate) path: Arc<str>,
    needs: Vec<(Place, NeedKind)>,
    after_paths: Vec<String>,
    pub(crate) scope: Option<usize>,
    pub(crate) settings: Settings,
    pub(crate) work: Work,
}

/// How a step is run.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) optional: bool,
    pub(crate) keep_going: bool,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) retry: Retry,
    pub(crate) timeout: Option<Duration>,
    pub(crate) slot: Slot,
}

/// A predicate on earlier outputs.
#[derive(Clone)]
pub(crate) struct Condition {
    pub(crate) text: String,
    needs: Vec<(Place, NeedKind)>,
    pub(crate) holds: Arc<Reads<bool>>,
}

/// A pure function of earlier outputs.
type Reads<T> = dyn Fn(&Source<'_>) -> StepResult<T> + Send + Sync;
type Try<T> = StepResult<BoxFuture<'static, StepResult<T>>>;
type Action<T> = Box<dyn Fn(StepContext, &Source<'_>) -> Try<T> + Send + Sync>;

/// What a step does.
pub(crate) enum Work {
    /// Local or read-only work.
    Run(Action<String>),
    /// Makes a live value.
    Open(Action<Opened>),
    /// Exactly one call that changes the world.
    Mutate(MutationWork),
    /// Closes the live values of a scope.
    EndScope(usize),
    /// Waits for other steps.
    Barrier,
}

pub(crate) struct MutationWork {
    pub(crate) mutation: Arc<dyn AnyMutation>,
    pub(crate) request: Box<Reads<String>>,
}
