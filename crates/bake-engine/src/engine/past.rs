//! Where a run goes on: what the journal says of each step of its plan.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::engine::compare::{Planned, part};
use crate::engine::outcome::StepFailure;
use crate::engine::undo::Left;
use crate::event::{SkipReason, StepState};
use crate::inputs::NeedKind;
use crate::journal::{ResourceRecord, ResourceState, RunView, StepRecord, StepRow};
use crate::mutation::Keep;
use crate::plan::{Graph, Node, Plan, Work};
use crate::retry::RetryState;

/// What was before this process.
pub(super) struct Past {
    /// For each step of the plan.
    pub(super) steps: Vec<StepPast>,
    /// What must go before its steps can run again.
    pub(super) replays: Vec<Replay>,
    /// Steps that were done and run again. What they gave must be gone from the journal before anything else is, or who
    /// goes on after a crash in between would take it for what they gave last.
    pub(super) reopened: Vec<StepRow>,
}

/// A scope that begins again, or a step whose thing was being taken back.
pub(super) struct Replay {
    /// The first step of it.
    pub(super) step: usize,
    /// What there is, or may be, of before.
    pub(super) abandoned: Vec<ResourceRecord>,
}

/// What was of one step.
#[derive(Default)]
pub(super) struct StepPast {
    /// How often it, or the scope that it is in, was begun: part of the id of its operation.
    pub(super) generation: u32,
    /// How it ended, if it is not to run again.
    pub(super) end: Option<PastEnd>,
    /// Tries so far.
    pub(super) attempts: u32,
    /// What its conditions were found to be, by their text.
    pub(super) conditions: Map<String, Value>,
    /// What it waited for.
    pub(super) retry: Option<RetryState>,
    /// It used up its tries and gets new ones.
    pub(super) failed: bool,
    /// Why it was left out, which was told.
    pub(super) skipped: Option<SkipReason>,
    /// The operation that it goes on with.
    pub(super) operation: Option<ResourceRecord>,
}

/// The end of a step that does not run again.
#[derive(Clone)]
pub(super) enum PastEnd {
    Done(Option<Arc<str>>),
    Skipped(SkipReason),
    /// It failed within an optional part of a scope that is finished.
    Warned(StepFailure),
}

impl Past {
    /// Returns the past of a run that begins.
    pub(super) fn none(steps: usize) -> Past {
        let begin = || StepPast { generation: 1, ..StepPast::default() };
        Past { steps: std::iter::repeat_with(begin).take(steps).collect(), replays: Vec::new(), reopened: Vec::new() }
    }

    /// Reads the past of a run that goes on with this plan.
    pub(super) fn read(plan: &Plan, description: &Value, graph: &Graph, view: &RunView) -> Past {
        let mut reading = Reading::new(plan, description, graph, view);
        reading.find_what_runs_again();
        let steps = (0..plan.nodes.len()).map(|step| reading.step(step)).collect();
        Past { steps, replays: reading.replays(), reopened: reading.reopened() }
    }
}

struct Reading<'a> {
    plan: &'a Plan,
    description: &'a Value,
    graph: &'a Graph,
    planned: Planned<'a>,
    view: &'a RunView,
    rows: HashMap<&'a str, &'a StepRecord>,
    /// The newest operation of each step.
    operations: HashMap<&'a str, &'a ResourceRecord>,
    runs_again: Vec<bool>,
}

impl<'a> Reading<'a> {
    fn new(plan: &'a Plan, description: &'a Value, graph: &'a Graph, view: &'a RunView) -> Reading<'a> {
        let rows = view.steps.iter().map(|row| (&*row.path, row)).collect();
        let mut operations: HashMap<&str, &ResourceRecord> = HashMap::new();
        for resource in &view.resources {
            let newest = operations.entry(&*resource.step).or_insert(resource);
            if newest.generation < resource.generation {
                *newest = resource;
            }
        }
        let runs_again = vec![false; plan.nodes.len()];
        let planned = Planned::new(view);
        Reading { plan, description, graph, planned, view, rows, operations, runs_again }
    }

    fn node(&self, step: usize) -> &'a Node {
        &self.plan.nodes[step]
    }

    fn row(&self, step: usize) -> Option<&'a StepRecord> {
        self.rows.get(&*self.node(step).path).copied()
    }

    fn operation(&self, step: usize) -> Option<&'a ResourceRecord> {
        self.operations.get(&*self.node(step).path).copied()
    }

    fn scope_of(&self, step: usize) -> Option<usize> {
        match self.node(step).work {
            Work::EndScope(scope) => Some(scope),
            _ => self.node(step).scope,
        }
    }

    /// Marks what is not finished; what was taken back and is wanted; and, of a scope, all or nothing.
    fn find_what_runs_again(&mut self) {
        let stale = self.stale();
        let steps = 0..self.plan.nodes.len();
        let mut queue: Vec<_> =
            steps.filter(|&step| !self.has_ended(step) || self.has_lost_its_artifact(step)).collect();
        while let Some(step) = queue.pop() {
            if std::mem::replace(&mut self.runs_again[step], true) {
                continue;
            }
            if let Some(scope) = self.scope_of(step) {
                let scope = &self.plan.scopes[scope];
                queue.extend(scope.members.iter().copied().chain([scope.end]));
            }
            // What was sent, or may have been, has its request already; but a scope asks anew.
            let has_request = self.operation(step).is_some_and(|operation| is_good(operation.state));
            if !has_request || self.scope_of(step).is_some() {
                queue.extend(self.inputs(step).filter(|&from| stale[from]));
            }
        }
    }

    /// Finds the outputs that speak of what was taken back. A handle points to an earlier step, so one pass is enough.
    fn stale(&self) -> Vec<bool> {
        let mut stale = vec![false; self.plan.nodes.len()];
        for step in 0..stale.len() {
            stale[step] = match self.node(step).work {
                Work::Mutate(_) => self.is_undone(step),
                Work::Run(_) | Work::Open(_) => self.inputs(step).any(|from| stale[from]),
                Work::EndScope(_) | Work::Barrier => false,
            };
        }
        stale
    }

    /// Returns the steps whose outputs a step reads.
    fn inputs(&self, step: usize) -> impl Iterator<Item = usize> + use<'_, 'a> {
        let reads = |kind: &NeedKind| matches!(kind, NeedKind::Value | NeedKind::Live | NeedKind::Maybe);
        self.graph.needs[step].iter().filter(move |(_, kind)| reads(kind)).map(|(&from, _)| from)
    }

    fn is_undone(&self, step: usize) -> bool {
        let state = self.operation(step).map(|operation| operation.state);
        matches!(state, Some(ResourceState::Undoing | ResourceState::Undone))
    }

    fn has_lost_its_artifact(&self, step: usize) -> bool {
        self.is_undone(step) && self.operation(step).is_some_and(|operation| operation.keep == Keep::Artifact)
    }

    fn has_ended(&self, step: usize) -> bool {
        if let Some(scope) = self.scope_of(step) {
            let end = self.row(self.plan.scopes[scope].end);
            return end.is_some_and(|end| end.state == Some(StepState::Done));
        }
        let Some(row) = self.row(step) else { return false };
        match (row.state, &row.skipped) {
            (Some(StepState::Done), _) => !self.reads_something_else(step),
            (Some(StepState::Skipped), Some(SkipReason::Condition(text))) => {
                self.node(step).settings.conditions.iter().any(|condition| condition.text == *text)
            }
            _ => false,
        }
    }

    /// Says whether local work was done with other inputs than it has now, as when a report tells of one region more.
    fn reads_something_else(&self, step: usize) -> bool {
        let node = self.node(step);
        let now = part(self.description, &node.path, "needs");
        matches!(node.work, Work::Run(_)) && self.planned.part(&node.path, "needs") != now
    }

    fn step(&self, step: usize) -> StepPast {
        let row = self.row(step);
        if !self.runs_again[step] {
            return StepPast {
                generation: row.map_or(1, |row| row.generation),
                end: row.and_then(past_end),
                operation: self.operation(step).filter(|operation| operation.state.is_pending()).cloned(),
                ..StepPast::default()
            };
        }
        if let Some(scope) = self.scope_of(step) {
            return StepPast { generation: self.next_generation(scope), ..StepPast::default() };
        }
        let operation = self.operation(step);
        let before = operation.map(|operation| operation.generation).or(row.map(|row| row.generation));
        let generation = before.unwrap_or(1) + u32::from(self.needs_another_operation(step));
        let Some(row) = row.filter(|row| row.generation == generation) else {
            let operation = operation.filter(|operation| operation.generation == generation).cloned();
            return StepPast { generation, operation, ..StepPast::default() };
        };
        StepPast {
            generation,
            end: None,
            attempts: row.attempts,
            conditions: row.conditions.as_ref().and_then(Value::as_object).cloned().unwrap_or_default(),
            retry: row.retry.clone().and_then(|retry| serde_json::from_value(retry).ok()),
            failed: row.state.is_some(),
            skipped: row.skipped.clone(),
            operation: operation.filter(|operation| operation.generation == generation).cloned(),
        }
    }

    /// Says whether a step cannot go on with the operation that it has: that was taken back, or made nothing and would
    /// ask for something else now.
    fn needs_another_operation(&self, step: usize) -> bool {
        let node = self.node(step);
        match self.operation(step).map(|operation| operation.state) {
            Some(ResourceState::Undoing | ResourceState::Undone) => true,
            Some(ResourceState::NotMade) => {
                let now = part(self.description, &node.path, "request");
                let other_request = self.planned.part(&node.path, "request") != now;
                other_request || self.inputs(step).any(|from| self.runs_again[from])
            }
            Some(_) | None => false,
        }
    }

    /// Returns a number that no operation of the scope has had. A scope that was never begun has its first.
    fn next_generation(&self, scope: usize) -> u32 {
        let scope = &self.plan.scopes[scope];
        let of_rows = scope.members.iter().chain([&scope.end]).filter_map(|&step| self.row(step));
        let of_rows = of_rows.filter(|row| row.state != Some(StepState::Skipped)).map(|row| row.generation);
        let of_operations = self.operations_of(scope.end).map(|operation| operation.generation);
        of_rows.chain(of_operations).max().map_or(1, |last| last + 1)
    }

    /// Returns all operations of a scope, those of steps included that it has no longer.
    fn operations_of(&self, end: usize) -> impl Iterator<Item = &'a ResourceRecord> + use<'_, 'a> {
        let path = &*self.node(end).path;
        self.view.resources.iter().filter(move |resource| self.planned.was_in_scope(&resource.step, path))
    }

    fn reopened(&self) -> Vec<StepRow> {
        let again = (0..self.plan.nodes.len()).filter(|&step| self.runs_again[step]);
        let rows = again.filter_map(|step| Some((&self.node(step).path, self.row(step)?)));
        let done = rows.filter(|(_, row)| row.state == Some(StepState::Done));
        done.map(|(path, row)| StepRow::under_way(path, row.generation, row.attempts)).collect()
    }

    fn replays(&self) -> Vec<Replay> {
        let scopes = self.plan.scopes.iter().filter(|scope| self.runs_again[scope.end]);
        let of_scopes = scopes.filter_map(|scope| {
            let there = self.operations_of(scope.end).filter(|operation| operation.state.is_there());
            let there = there.filter(|operation| operation.keep != Keep::NothingToUndo);
            Some(Replay { step: *scope.members.first()?, abandoned: there.cloned().collect() })
        });
        let steps = (0..self.plan.nodes.len()).filter(|&step| self.runs_again[step] && self.scope_of(step).is_none());
        let half_gone = steps.filter_map(|step| {
            let operation = self.operation(step).filter(|operation| operation.state == ResourceState::Undoing)?;
            Some(Replay { step, abandoned: vec![operation.clone()] })
        });
        of_scopes.chain(half_gone).collect()
    }
}

/// Says whether a step can go on with its operation.
pub(super) fn is_good(state: ResourceState) -> bool {
    state.is_there() && state != ResourceState::Undoing
}

fn past_end(row: &StepRecord) -> Option<PastEnd> {
    Some(match row.state? {
        StepState::Done => PastEnd::Done(row.output.as_ref().map(|output| output.to_string().into())),
        StepState::Skipped => PastEnd::Skipped(row.skipped.clone().unwrap_or(SkipReason::RunFailed)),
        StepState::Warned | StepState::Failed | StepState::Cancelled | StepState::Unknown => {
            PastEnd::Warned(StepFailure::from_journal(&row.path, row.error.clone()?))
        }
    })
}

/// Returns the steps that cannot run again, and why: what could not be taken back.
pub(super) fn held_up<'a>(
    replays: &'a [Replay],
    left: &'a [Left],
) -> impl Iterator<Item = (usize, Vec<&'a Left>)> + use<'a> {
    let of_each = replays.iter().map(|replay| {
        let is_of_it = |left: &&Left| replay.abandoned.iter().any(|resource| resource.operation == left.operation);
        (replay.step, left.iter().filter(is_of_it).collect::<Vec<_>>())
    });
    of_each.filter(|(_, left)| !left.is_empty())
}
