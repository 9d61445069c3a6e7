//! The scheduler: starts each step when all it waits for has settled, until nothing is left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cancel::Cancel;
use crate::engine::outcome::{Outcome, Skipped, StepFailure, UnknownOperation, Unsaved};
use crate::engine::past::{PastEnd, StepPast};
use crate::engine::step::run_step;
use crate::error::{Class, StepError};
use crate::event::{EventKind, SkipReason, StepState, Verdict};
use crate::inputs::NeedKind;
use crate::journal::{Record, RunLog, StepRow, StepTrouble, Told};
use crate::plan::{Graph, Node, Plan, Work};
use crate::slot::Slots;
use crate::values::RunValues;

/// What all steps of a run share.
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) log: Arc<RunLog>,
    pub(super) values: RunValues,
    pub(super) past: Vec<StepPast>,
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

    /// How often a step or its scope was begun: part of the id of each operation.
    pub(super) fn generation(&self, index: usize) -> u32 {
        self.past[index].generation
    }

    pub(super) fn why_closed(&self) -> SkipReason {
        if self.cancel.level() > 0 { SkipReason::Cancelled } else { SkipReason::RunFailed }
    }
}

/// How a step ended.
pub(super) enum StepEnd {
    Done,
    Skipped(SkipReason),
    Failed {
        error: StepError,
        unknown: Option<Box<UnknownOperation>>,
        /// The end of the run kept it from another try.
        cut: bool,
    },
}

/// What the scheduler remembers of a settled step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Done,
    Skipped,
    /// It was left out because something failed, or because the run ends.
    Blocked,
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
    pub(super) fn new(
        plan: Plan,
        graph: Graph,
        past: Vec<StepPast>,
        log: Arc<RunLog>,
        cancel: Cancel,
        slots: Arc<Slots>,
    ) -> Schedule {
        let steps = plan.nodes.len();
        let mut dependants = vec![Vec::new(); steps];
        for (step, needs) in graph.needs.iter().enumerate() {
            needs.keys().for_each(|&from| dependants[from].push(step));
        }
        let waiting: Vec<_> = graph.needs.iter().map(BTreeMap::len).collect();
        let closed = cancel.stop().child_token();
        let values = RunValues::new(steps);
        let shared = Shared { plan, log, values, past, cancel, closed, slots, unsaved: Mutex::default() };
        let mut schedule = Schedule {
            shared: Arc::new(shared),
            graph,
            dependants,
            waiting,
            settled: vec![None; steps],
            ready: VecDeque::new(),
            running: JoinSet::new(),
            broken_scopes: BTreeMap::new(),
            report: Report::default(),
        };
        schedule.settle_the_past();
        schedule.ready = (0..steps).filter(|&step| schedule.waits_for_nothing(step)).collect();
        schedule
    }

    /// Settles what had ended before this process began.
    fn settle_the_past(&mut self) {
        for step in 0..self.settled.len() {
            let path = || self.shared.node(step).path.to_string();
            let settled = match self.shared.past[step].end.clone() {
                None => continue,
                Some(PastEnd::Done(output)) => {
                    output.into_iter().for_each(|output| self.shared.values.set(step, output));
                    Settled::Done
                }
                Some(PastEnd::Skipped(reason)) => {
                    self.report.skipped.push(Skipped { path: path(), reason });
                    Settled::Skipped
                }
                Some(PastEnd::Warned(failure)) => {
                    self.report.warnings.push(failure);
                    Settled::Warned
                }
            };
            self.note_unknown(step);
            self.settled[step] = Some(settled);
            self.dependants[step].iter().for_each(|&dependant| self.waiting[dependant] -= 1);
        }
    }

    /// Fails a step before any is started.
    pub(super) fn fail_early(&mut self, step: usize, error: StepError) {
        let node = self.shared.node(step);
        let mut row = StepRow::settled(&node.path, self.shared.generation(step), StepState::Failed, 0);
        row.error = Some(json!(StepTrouble::from(&error)).to_string());
        let kind = EventKind::StepFinished { state: StepState::Failed, elapsed_ms: 0, error: error.chain() };
        self.shared.log.post(vec![Record::Step(row)], vec![Told::step(&node.path, None, kind)]);
        self.ready.retain(|&other| other != step);
        self.settle(step, StepEnd::Failed { error, unknown: None, cut: false });
    }

    fn waits_for_nothing(&self, step: usize) -> bool {
        self.waiting[step] == 0 && self.settled[step].is_none()
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
        let missing = self.wanted(step).find(|&from| self.settled[from] != Some(Settled::Done));
        missing.map(|from| SkipReason::Upstream(self.shared.node(from).path.to_string()))
    }

    /// Returns the steps without which a step cannot start.
    fn wanted(&self, step: usize) -> impl Iterator<Item = usize> {
        let needs = self.graph.needs[step].iter();
        needs.filter(|(_, kind)| matches!(kind, NeedKind::Value | NeedKind::Live)).map(|(&from, _)| from)
    }

    fn settle(&mut self, step: usize, end: StepEnd) {
        let settled = match end {
            StepEnd::Done => Settled::Done,
            StepEnd::Skipped(reason) => self.skipped(step, reason),
            StepEnd::Failed { error, unknown, cut } => {
                // Its scope is not finished either: a run that goes on gives it that try.
                if let (Some(scope), true) = (self.shared.node(step).scope, cut) {
                    self.broken_scopes.entry(scope).or_insert(step);
                }
                self.failed(step, &error, unknown)
            }
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
            if self.waits_for_nothing(dependant) {
                self.ready.push_back(dependant);
            }
        }
    }

    fn skipped(&mut self, step: usize, reason: SkipReason) -> Settled {
        let node = self.shared.node(step);
        self.report.cancelled |= reason == SkipReason::Cancelled;
        let blocked = self.is_blocked(step, &reason);
        // Without a member that should have been there, its scope is unfinished.
        if let (Some(scope), true) = (node.scope, blocked) {
            self.broken_scopes.entry(scope).or_insert(step);
        }
        if !matches!(node.work, Work::Barrier) {
            let path = node.path.to_string();
            self.note_skipped(step, &reason);
            self.report.skipped.push(Skipped { path, reason });
        }
        if blocked { Settled::Blocked } else { Settled::Skipped }
    }

    /// Says whether a step was left out for a reason that is no choice: neither a condition nor something optional.
    fn is_blocked(&self, step: usize, reason: &SkipReason) -> bool {
        let node = self.shared.node(step);
        match reason {
            SkipReason::Cancelled | SkipReason::RunFailed => true,
            SkipReason::Condition(_) => false,
            SkipReason::Upstream(_) => {
                let mut wanted = self.wanted(step);
                wanted.any(|from| matches!(self.settled[from], Some(Settled::Failed | Settled::Blocked)))
            }
            SkipReason::Scope(_) => {
                let end = node.scope.map_or(step, |scope| self.shared.plan.scopes[scope].end);
                !self.shared.node(end).settings.optional
            }
        }
    }

    fn note_skipped(&mut self, step: usize, reason: &SkipReason) {
        self.note_unknown(step);
        let (node, past) = (self.shared.node(step), &self.shared.past[step]);
        if past.skipped.as_ref() == Some(reason) {
            return;
        }
        let mut row = StepRow::settled(&node.path, self.shared.generation(step), StepState::Skipped, past.attempts);
        row.skipped = Some(json!(reason).to_string());
        row.retry = past.retry.as_ref().map(|retry| json!(retry).to_string());
        let told = Told::step(&node.path, None, EventKind::StepSkipped { reason: reason.clone() });
        self.shared.log.post(vec![Record::Step(row)], vec![told]);
    }

    /// Reports what another process left open, and this one does not look for.
    fn note_unknown(&mut self, step: usize) {
        let before = self.shared.past[step].operation.as_ref().filter(|before| before.state.is_pending());
        self.report.unknown.extend(before.map(UnknownOperation::from));
    }

    fn failed(&mut self, step: usize, error: &StepError, unknown: Option<Box<UnknownOperation>>) -> Settled {
        let node = self.shared.node(step);
        let failure = StepFailure::new(&node.path, error);
        self.report.unknown.extend(unknown.map(|unknown| *unknown));
        let broken = self.shared.log.broken().is_some();
        let bearable = !broken && error.class() != Class::Cancelled;
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
        if !node.settings.keep_going || broken {
            self.shared.closed.cancel();
        }
        Settled::Failed
    }

    fn outcome(self) -> Outcome {
        let Schedule { shared, report, .. } = self;
        let unsaved = std::mem::take(&mut *shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner));
        let verdict = if shared.log.broken().is_some() {
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
