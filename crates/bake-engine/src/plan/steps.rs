//! Views of a plan through which steps are added.

use std::sync::Arc;
use std::time::Duration;

use crate::error::StepResult;
use crate::handle::Place;
use crate::inputs::{Data, NeedKind, Needs};
use crate::plan::builder::{Inside, Outside, StepBuilder};
use crate::plan::{Condition, Node, Plan, PlanProblem, ScopeNodes, Settings, Work};
use crate::retry::Retry;
use crate::slot::Slot;

/// A place in the plan: a path prefix, what its steps wait for, and what the environment says about them.
pub struct Steps<'p> {
    plan: &'p mut Plan,
    prefix: String,
    defaults: StepDefaults,
    waits_for: Vec<usize>,
}

impl<'p> Steps<'p> {
    pub(crate) fn top(plan: &'p mut Plan) -> Steps<'p> {
        Steps { plan, prefix: String::new(), defaults: StepDefaults::default(), waits_for: Vec::new() }
    }

    /// Returns a view whose steps are named `name/…`.
    pub fn under(&mut self, name: &str) -> Steps<'_> {
        let prefix = self.path(name);
        Steps { plan: self.plan, prefix, defaults: self.defaults.clone(), waits_for: self.waits_for.clone() }
    }

    /// Adds settings for every step of this view.
    #[must_use]
    pub fn with(mut self, defaults: StepDefaults) -> Steps<'p> {
        self.defaults = self.defaults.over(defaults);
        self
    }

    /// Begins a step; `run` or `mutate` puts it into the plan.
    pub fn step(&mut self, name: &str) -> StepBuilder<'_, (), Outside> {
        let draft = self.draft(name, None);
        StepBuilder::new(self.plan, draft)
    }

    /// Groups steps around live values. Later steps see the scope's outputs only when its last step is done.
    pub fn scope<R>(&mut self, name: &str, build: impl FnOnce(&mut Scope<'_>) -> R) -> R {
        let index = self.plan.scopes.len();
        self.plan.scopes.push(ScopeNodes { members: Vec::new(), end: usize::MAX });
        let mut scope = Scope { steps: self.under(name), index };
        // A scope is optional as a whole: without one of its steps it is not finished.
        scope.steps.defaults.optional = false;
        let result = build(&mut scope);
        self.end_scope(name, index);
        result
    }

    /// Makes later steps of this view wait until all added since `mark` (an earlier [`len`](Steps::len)) have settled,
    /// well or not. `name` is the step that waits.
    pub fn wait_for_all_since(&mut self, mark: usize, name: &str) {
        let mut barrier = self.draft(name, None);
        barrier.settings = Settings::default();
        barrier.after_paths.clear();
        let plan = self.plan.id();
        barrier.needs = (mark..self.plan.nodes.len()).map(|node| (Place { plan, node }, NeedKind::After)).collect();
        let node = self.plan.push(barrier);
        self.waits_for.push(node);
    }

    /// Returns the number of steps in the plan so far.
    pub fn len(&self) -> usize {
        self.plan.nodes.len()
    }

    /// Says whether the plan has no step yet.
    pub fn is_empty(&self) -> bool {
        self.plan.nodes.is_empty()
    }

    fn end_scope(&mut self, name: &str, index: usize) {
        let (plan, members) = (self.plan.id(), self.plan.scopes[index].members.clone());
        let mut end = self.draft(name, None);
        end.needs = members.iter().map(|&node| (Place { plan, node }, NeedKind::After)).collect();
        // A scope that no step of it was admitted to must still settle, so its end takes no condition of its own.
        end.settings.conditions.clear();
        end.after_paths.clear();
        end.work = Work::EndScope(index);
        self.plan.scopes[index].end = self.plan.push(end);
    }

    fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    fn draft(&mut self, name: &str, scope: Option<usize>) -> Node {
        let path = self.path(name);
        // A path is part of references, tags and file names; `:` ends it where a test names a point in a step.
        if path.split('/').any(str::is_empty) || path.contains(|c: char| c.is_control() || "#${}:".contains(c)) {
            self.plan.problems.push(PlanProblem::BadName { step: path.clone() });
        }
        let plan = self.plan.id();
        Node {
            path: path.into(),
            needs: self.waits_for.iter().map(|&node| (Place { plan, node }, NeedKind::After)).collect(),
            after_paths: self.defaults.after.clone(),
            scope,
            settings: self.defaults.settings(),
            work: Work::Barrier,
        }
    }
}

impl Plan {
    /// Adds a finished node. Handles of other plans become problems, so that no edge ever points into nothing.
    pub(crate) fn push(&mut self, mut node: Node) -> usize {
        let (id, index) = (self.id(), self.nodes.len());
        let foreign = |&(place, _): &(Place, NeedKind)| place.plan != id;
        let conditions = node.settings.conditions.iter();
        if node.needs.iter().chain(conditions.flat_map(|condition| &condition.needs)).any(foreign) {
            self.problems.push(PlanProblem::ForeignHandle { step: node.path.to_string() });
        }
        node.needs.retain(|need| !foreign(need));
        node.settings.conditions.iter_mut().for_each(|condition| condition.needs.retain(|need| !foreign(need)));
        if let Some(scope) = node.scope {
            self.scopes[scope].members.push(index);
        }
        self.nodes.push(node);
        index
    }
}

/// Steps around live values: they may need [`Live`](crate::Live) values, and make them with `open`.
///
/// A scope is atomic: its last step finished, or it starts again in a new generation.
pub struct Scope<'p> {
    steps: Steps<'p>,
    index: usize,
}

impl Scope<'_> {
    /// Begins a step; `run`, `mutate` or `open` puts it into the plan.
    pub fn step(&mut self, name: &str) -> StepBuilder<'_, (), Inside> {
        let draft = self.steps.draft(name, Some(self.index));
        StepBuilder::new(self.steps.plan, draft)
    }
}

/// Settings for every step of a view: what a finalizer's entry in the environment says.
#[derive(Clone, Default)]
pub struct StepDefaults {
    optional: bool,
    keep_going: bool,
    conditions: Vec<Condition>,
    retry: Option<Retry>,
    timeout: Option<Duration>,
    slot: Option<Slot>,
    after: Vec<String>,
}

impl StepDefaults {
    /// Makes settings that change nothing.
    pub fn new() -> StepDefaults {
        StepDefaults::default()
    }

    /// Lets the run go on, and end well, if a step fails.
    #[must_use]
    pub fn optional(self) -> StepDefaults {
        StepDefaults { optional: true, ..self }
    }

    /// Lets independent steps finish if a step of this view fails; the run still fails.
    #[must_use]
    pub fn keep_going(self) -> StepDefaults {
        StepDefaults { keep_going: true, ..self }
    }

    /// Runs the steps only if `holds`, which is asked once per step and journaled.
    #[must_use]
    pub fn when<W: Data>(
        mut self,
        text: &str,
        on: W,
        holds: impl Fn(W::Values) -> StepResult<bool> + Send + Sync + 'static,
    ) -> StepDefaults {
        self.conditions.push(condition(text, on, holds));
        self
    }

    /// Sets how the steps are tried again.
    #[must_use]
    pub fn retry(self, retry: Retry) -> StepDefaults {
        StepDefaults { retry: Some(retry), ..self }
    }

    /// Limits each try of each step.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> StepDefaults {
        StepDefaults { timeout: Some(limit), ..self }
    }

    /// Sets what the steps mostly use.
    #[must_use]
    pub fn slot(self, slot: Slot) -> StepDefaults {
        StepDefaults { slot: Some(slot), ..self }
    }

    /// Lets the steps wait for a step, or for all steps under a path. Order only.
    #[must_use]
    pub fn after_path(mut self, path: &str) -> StepDefaults {
        self.after.push(path.to_owned());
        self
    }

    /// Lays these over what a step has.
    pub(super) fn lay(&self, node: &mut Node) {
        let settings = &mut node.settings;
        settings.optional |= self.optional;
        settings.keep_going |= self.keep_going;
        settings.conditions.extend(self.conditions.iter().cloned());
        settings.retry = self.retry.unwrap_or(settings.retry);
        settings.timeout = self.timeout.or(settings.timeout);
        settings.slot = self.slot.unwrap_or(settings.slot);
        node.after_paths.extend(self.after.iter().cloned());
    }

    /// Lays `inner` over these.
    fn over(mut self, inner: StepDefaults) -> StepDefaults {
        self.conditions.extend(inner.conditions);
        self.after.extend(inner.after);
        StepDefaults {
            optional: self.optional || inner.optional,
            keep_going: self.keep_going || inner.keep_going,
            conditions: self.conditions,
            retry: inner.retry.or(self.retry),
            timeout: inner.timeout.or(self.timeout),
            slot: inner.slot.or(self.slot),
            after: self.after,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            optional: self.optional,
            keep_going: self.keep_going,
            conditions: self.conditions.clone(),
            retry: self.retry.unwrap_or_default(),
            timeout: self.timeout,
            slot: self.slot.unwrap_or_default(),
        }
    }
}

pub(crate) fn condition<W: Data>(
    text: &str,
    on: W,
    holds: impl Fn(W::Values) -> StepResult<bool> + Send + Sync + 'static,
) -> Condition {
    let mut needs = Needs::default();
    on.declare(&mut needs);
    let holds = Arc::new(move |source: &crate::inputs::Source<'_>| holds(on.read(source)?));
    Condition { text: text.to_owned(), needs: needs.found, holds }
}
