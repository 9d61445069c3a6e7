//! The scheduler: starts each step when all it waits for has settled, until nothing is left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cancel::Cancel;
use crate::engine::outcome::{Outcome, Skipped, StepFailure, UnknownOperation, Unsaved};
use crate::engine::step::run_step;
use crate::error::{Class, StepError};
use crate::event::{EventKind, SkipReason, StepState, Verdict};
use crate::inputs::NeedKind;
use crate::journal::{Record, RunLog, StepRow, Told};
use crate::plan::{Graph, Node, Plan, Work};
use crate::slot::Slots;
use crate::values::RunValues;

/// What all steps of a run share.
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) log: Arc<RunLog>,
    pub(super) values: RunValues,
    pub(super) cancel: Cancel,
    /// Cancelled when nothing new may start: by a cancel, or by the first fatal failure.
    pub(super) closed: CancellationToken,
    pub(super) slots: Arc<Slots>,
    pub(super) unsaved: Mutex<Vec<Unsaved>>,
}

impl Shared {
    pub(super) fn node(&self, index: usize) -> &Node {
        &self.plan.nodes[index]
    }

    /// How often the scope of a step was begun: part of the id of each operation. A run that one process carries out
    /// begins each scope once.
    pub(super) fn generation(&self, _index: usize) -> u32 {
        1
    }

    pub(super) fn why_closed(&self) -> SkipReason {
        if self.cancel.level() > 0 { SkipReason::Cancelled } else { SkipReason::RunFailed }
    }
}

/// How a step ended.
pub(super) enum StepEnd {
    Done,
    Skipped(SkipReason),
    Failed { error: StepError, unknown: Option<Box<UnknownOperation>> },
}

/// What the scheduler remembers of a settled step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Done,
    Skipped,
    Failed,
    Warned,
}

pub(super) struct Schedule {
    shared: Arc<Shared>,
    graph: Graph,
    dependants: Vec<Vec<usize>>,
    waiting: Vec<usize>,
    settled: Vec<Option<Settled>>,
    ready: VecDeque<usize>,
    running: JoinSet<(usize, StepEnd)>,
    /// The first step of each scope that makes it fail.
    broken_scopes: BTreeMap<usize, usize>,
    report: Report,
}

#[derive(Default)]
struct Report {
    failures: Vec<StepFailure>,
    warnings: Vec<StepFailure>,
    skipped: Vec<Skipped>,
    unknown: Vec<UnknownOperation>,
    /// A step failed while nobody had cancelled.
    failed: bool,
    /// A step was ended or left out by a cancel.
    cancelled: bool,
}

impl Schedule {
    pub(super) fn new(plan: Plan, graph: Graph, log: Arc<RunLog>, cancel: Cancel, slots: Arc<Slots>) -> Schedule {
        let steps = plan.nodes.len();
        let mut dependants = vec![Vec::new(); steps];
        for (step, needs) in graph.needs.iter().enumerate() {
            needs.keys().for_each(|&from| dependants[from].push(step));
        }
        let waiting: Vec<_> = graph.needs.iter().map(BTreeMap::len).collect();
        let ready = (0..steps).filter(|&step| waiting[step] == 0).collect();
        let closed = cancel.stop().child_token();
        let values = RunValues::new(steps);
        let shared = Shared { plan, log, values, cancel, closed, slots, unsaved: Mutex::default() };
        Schedule {
            shared: Arc::new(shared),
            graph,
            dependants,
            waiting,
            settled: vec![None; steps],
            ready,
            running: JoinSet::new(),
            broken_scopes: BTreeMap::new(),
            report: Report::default(),
        }
    }

    /// Runs until every step has settled. All that was started is joined before this returns.
    pub(super) async fn run(mut self) -> Outcome {
        loop {
            while let Some(step) = self.ready.pop_front() {
                self.admit(step);
            }
            match self.running.join_next().await {
                Some(Ok((step, end))) => self.settle(step, end),
                // A step catches the panics of the code that it runs, so this is one of the engine itself.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            }
        }
        debug_assert!(self.settled.iter().all(Option::is_some), "a graph without cycles settles");
        self.outcome()
    }

    /// Starts a step, or says why not.
    fn admit(&mut self, step: usize) {
        let work = &self.shared.node(step).work;
        if let Work::EndScope(scope) = *work {
            // Always, whatever happened: it closes the live values.
            let broken = self.broken_scopes.get(&scope).map(|&member| self.shared.node(member).path.to_string());
            return self.start(step, broken);
        }
        match self.reason_to_skip(step) {
            Some(reason) => self.settle(step, StepEnd::Skipped(reason)),
            None if matches!(work, Work::Barrier) => self.settle(step, StepEnd::Done),
            None => self.start(step, None),
        }
    }

    fn start(&mut self, step: usize, broken_scope: Option<String>) {
        let shared = Arc::clone(&self.shared);
        let span = tracing::info_span!("step", path = &*shared.node(step).path);
        self.running.spawn(async move { (step, run_step(&shared, step, broken_scope).await) }.instrument(span));
    }

    fn reason_to_skip(&self, step: usize) -> Option<SkipReason> {
        if self.shared.closed.is_cancelled() {
            return Some(self.shared.why_closed());
        }
        let node = self.shared.node(step);
        if let Some(&member) = node.scope.and_then(|scope| self.broken_scopes.get(&scope)) {
            return Some(SkipReason::Scope(self.shared.node(member).path.to_string()));
        }
        let wanted = self.graph.needs[step].iter().filter(|(_, kind)| matches!(kind, NeedKind::Value | NeedKind::Live));
        let missing = wanted.map(|(&from, _)| from).find(|&from| self.settled[from] != Some(Settled::Done));
        missing.map(|from| SkipReason::Upstream(self.shared.node(from).path.to_string()))
    }

    fn settle(&mut self, step: usize, end: StepEnd) {
        let settled = match end {
            StepEnd::Done => Settled::Done,
            StepEnd::Skipped(reason) => self.skipped(step, reason),
            StepEnd::Failed { error, unknown } => self.failed(step, &error, unknown),
        };
        if let Work::EndScope(scope) = self.shared.node(step).work
            && settled != Settled::Done
        {
            for &member in &self.shared.plan.scopes[scope].members {
                self.shared.values.forget(member);
            }
        }
        self.settled[step] = Some(settled);
        for &dependant in &self.dependants[step] {
            self.waiting[dependant] -= 1;
            if self.waiting[dependant] == 0 {
                self.ready.push_back(dependant);
            }
        }
    }

    fn skipped(&mut self, step: usize, reason: SkipReason) -> Settled {
        let node = self.shared.node(step);
        match reason {
            SkipReason::Cancelled => self.report.cancelled = true,
            SkipReason::RunFailed | SkipReason::Scope(_) | SkipReason::Condition(_) | SkipReason::Upstream(_) => {}
        }
        // A member that was left out because the run ends leaves its scope unfinished.
        if let (Some(scope), SkipReason::Cancelled | SkipReason::RunFailed) = (node.scope, &reason) {
            self.broken_scopes.entry(scope).or_insert(step);
        }
        if !matches!(node.work, Work::Barrier) {
            let row = StepRow::settled(&node.path, self.shared.generation(step), StepState::Skipped, 0);
            let told = Told::step(&node.path, None, EventKind::StepSkipped { reason: reason.clone() });
            self.shared.log.post(vec![Record::Step(row)], vec![told]);
            self.report.skipped.push(Skipped { path: node.path.to_string(), reason });
        }
        Settled::Skipped
    }

    fn failed(&mut self, step: usize, error: &StepError, unknown: Option<Box<UnknownOperation>>) -> Settled {
        let node = self.shared.node(step);
        let failure = StepFailure::new(&node.path, error);
        self.report.unknown.extend(unknown.map(|unknown| *unknown));
        let poisoned = self.shared.log.journal().poison().is_some();
        let bearable = !poisoned && error.class() != Class::Cancelled;
        if node.settings.optional && bearable {
            self.report.warnings.push(failure);
            return Settled::Warned;
        }
        if let Some(scope) = node.scope {
            self.broken_scopes.entry(scope).or_insert(step);
            if bearable && self.shared.node(self.shared.plan.scopes[scope].end).settings.optional {
                self.report.warnings.push(failure);
                return Settled::Warned;
            }
        }
        if self.shared.cancel.level() > 0 {
            // A program that the cancel ended looks like any other failure.
            self.report.cancelled = true;
        } else {
            self.report.failed = true;
        }
        self.report.failures.push(failure);
        if !node.settings.keep_going || poisoned {
            self.shared.closed.cancel();
        }
        Settled::Failed
    }

    fn outcome(self) -> Outcome {
        let Schedule { shared, report, .. } = self;
        let unsaved = std::mem::take(&mut *shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner));
        let verdict = if shared.log.journal().poison().is_some() {
            Verdict::Poisoned
        } else if report.failed {
            Verdict::Failed
        } else if report.cancelled {
            Verdict::Cancelled
        } else {
            Verdict::Done
        };
        let values: Vec<_> = (0..shared.plan.nodes.len()).map(|step| shared.values.get(step)).collect();
        let outputs = shared.plan.nodes.iter().zip(&values).filter_map(|(node, value)| {
            let value = serde_json::from_str(value.as_deref()?).ok()?;
            Some((node.path.to_string(), value))
        });
        Outcome {
            run: shared.log.run().clone(),
            verdict,
            failures: report.failures,
            warnings: report.warnings,
            skipped: report.skipped,
            unknown: report.unknown,
            unsaved,
            outputs: outputs.collect(),
            plan: shared.plan.id(),
            values,
        }
    }
}
