//! The engine: runs plans, takes runs back.

mod compare;
mod mutate;
mod outcome;
mod past;
mod resume;
mod schedule;
mod step;
mod undo;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::crash;
use crate::event::{EventKind, EventSink, Verdict};
use crate::id::RunId;
use crate::journal::{Journal, JournalError, Record, RunLog, RunRow, Told};
use crate::mutation::Mutations;
use crate::plan::{Plan, PlanErrors, Work};
use crate::slot::{SlotLimits, Slots};

pub use compare::PlanDifference;
pub use outcome::{Outcome, Skipped, StepFailure, UnknownOperation, Unsaved};
pub use undo::{Left, Undo};

use past::Past;
use schedule::Schedule;

/// What can be set about an engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// How many steps of each sort run at once.
    pub slots: SlotLimits,
    /// When to give up undoing while nothing makes progress.
    pub stall_limit: Duration,
    /// How long to wait after a round of undoing in which everything was still in use; doubled each time.
    pub undo_pace: Duration,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            slots: SlotLimits::default(),
            stall_limit: Duration::from_secs(5 * 60),
            undo_pace: Duration::from_secs(1),
        }
    }
}

/// What a run is, for the journal and for people.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// Its name.
    pub id: RunId,
    /// What it bakes, for people.
    pub title: String,
    /// Equal for two runs of the same request.
    pub request_key: String,
    /// The environment, resolved.
    pub config: serde_json::Value,
    /// Names and versions of the plugins.
    pub plugins: serde_json::Value,
    /// When it was begun.
    pub started: jiff::Timestamp,
}

/// The engine could not begin, or could not read its journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The plan is wrong.
    #[error("the plan cannot be run")]
    Plan(#[source] PlanErrors),
    /// A mutation of the plan could never be undone.
    #[error("`{step}` uses the mutation `{kind}`, which is not registered")]
    NotRegistered {
        /// The step.
        step: String,
        /// The mutation.
        kind: &'static str,
    },
    /// There is a run of that name.
    #[error("there is a run `{0}` already")]
    RunExists(RunId),
    /// There is no run of that name.
    #[error("there is no run `{0}`")]
    NoSuchRun(RunId),
    /// The run was begun by a version of this program that kept less than it takes to go on.
    #[error("the run `{run}` was begun by an older version of this program, and can only be taken back")]
    TooOld {
        /// The run.
        run: RunId,
    },
    /// The plan is not the one that the run began with, in something that is done already.
    #[error("the plan is not the one that the run `{run}` began with: {}", list(.differences))]
    PlanChanged {
        /// The run.
        run: RunId,
        /// What differs.
        differences: Vec<PlanDifference>,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn list(differences: &[PlanDifference]) -> String {
    let texts: Vec<_> = differences.iter().map(PlanDifference::to_string).collect();
    texts.join("; ")
}

/// Runs plans with a journal, and takes back what they made.
pub struct Engine {
    journal: Journal,
    mutations: Arc<Mutations>,
    options: EngineOptions,
    events: EventSink,
    slots: Arc<Slots>,
    logs: Mutex<HashMap<RunId, Arc<RunLog>>>,
}

impl Engine {
    /// Makes an engine. `mutations` must hold every kind that its plans use.
    pub fn new(journal: Journal, mutations: Arc<Mutations>, options: EngineOptions, events: EventSink) -> Engine {
        let slots = Arc::new(Slots::new(options.slots));
        Engine { journal, mutations, options, events, slots, logs: Mutex::default() }
    }

    /// Runs a plan, and nothing but the plan: what to undo, and when the run is over, is for the caller to say
    /// ([`undo`](Engine::undo), [`close`](Engine::close)).
    ///
    /// An error means that nothing was started. A failure of a step is part of the [`Outcome`].
    pub async fn run(&self, plan: Plan, run: RunSpec, cancel: Cancel) -> Result<Outcome, EngineError> {
        let graph = plan.graph().map_err(EngineError::Plan)?;
        self.check_registered(&plan)?;
        if self.journal.run(&run.id)?.is_some() {
            return Err(EngineError::RunExists(run.id));
        }
        let log = self.log(&run.id);
        log.begin(run_row(&plan, &run), run_started(&plan, &run)).await?;
        crash::point("run", "begun");
        let past = Past::none(plan.nodes.len());
        let schedule = Schedule::new(plan, graph, past.steps, Arc::clone(&log), cancel, Arc::clone(&self.slots));
        Ok(finish(schedule, &log).await)
    }

    /// Takes back what a run made: newest first, from the journal alone, without stopping half way.
    ///
    /// What is still in use goes back to the queue for as long as anything else makes progress. Returns what is left
    /// and why. Level 2 of `cancel` ends it. Works with a journal that cannot be written, too, but then does not tell.
    pub async fn undo(&self, run: &RunId, what: Undo, cancel: Cancel) -> Result<Vec<Left>, EngineError> {
        if self.journal.run(run)?.is_none() {
            return Err(EngineError::NoSuchRun(run.clone()));
        }
        let log = self.log(run);
        // The last notes of the run say what was not made after all. A journal that cannot be written can still be read,
        // and undoing twice is harmless: a full disk is no reason to leave things behind.
        let _poisoned = log.open().await;
        let _poisoned = log.flush().await;
        let left = undo::undo(&log, &self.mutations, &self.options, what, &cancel).await?;
        let _poisoned = log.flush().await;
        Ok(left)
    }

    /// Writes the end of a run. No event of the run comes after this.
    pub async fn close(&self, run: &RunId, verdict: Verdict) -> Result<(), EngineError> {
        let log = self.log(run);
        let finished = EventKind::RunFinished { verdict };
        let written = match log.open().await {
            Ok(()) => log.write(vec![Record::RunFinished(verdict)], vec![Told::run(finished.clone())]).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            // Who listens waits for the last event, even if no disk can keep it.
            log.send_unsaved(finished);
        }
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        written?;
        crash::point("run", "closed");
        Ok(())
    }

    fn check_registered(&self, plan: &Plan) -> Result<(), EngineError> {
        for node in &plan.nodes {
            let Work::Mutate(work) = &node.work else { continue };
            let kind = work.mutation.name();
            if self.mutations.get(kind).is_none() {
                return Err(EngineError::NotRegistered { step: node.path.to_string(), kind });
            }
        }
        Ok(())
    }

    /// Returns the log of a run, the same one until the run is closed.
    fn log(&self, run: &RunId) -> Arc<RunLog> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = logs.entry(run.clone()).or_insert_with(|| self.journal.log(run, self.events.clone()));
        Arc::clone(log)
    }
}

/// Runs to the end. A broken journal is in the outcome.
async fn finish(schedule: Schedule, log: &Arc<RunLog>) -> Outcome {
    let outcome = schedule.run().await;
    let _broken = log.flush().await;
    crash::point("run", "ended");
    outcome
}

fn run_row(plan: &Plan, run: &RunSpec) -> RunRow {
    let description = plan.describe();
    RunRow {
        started: run.started,
        title: run.title.clone(),
        request_key: run.request_key.clone(),
        config: run.config.to_string(),
        plugins: run.plugins.to_string(),
        plan_digest: crate::plan::digest(&description),
        plan: description.to_string(),
    }
}

fn run_started(plan: &Plan, run: &RunSpec) -> Told {
    let steps = plan.nodes.iter().map(|node| node.path.to_string()).collect();
    Told::run(EventKind::RunStarted { title: run.title.clone(), steps })
}
