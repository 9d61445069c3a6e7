//! Events: every change of a run, told to whoever listens once the journal has it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::Class;
use crate::id::RunId;
use crate::journal::RunLog;

/// One change of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up within the run.
    pub seq: u64,
    /// The run.
    pub run: RunId,
    /// When it was recorded.
    pub at: jiff::Timestamp,
    /// The path of the step, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Which try of the step, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The run began.
    RunStarted {
        /// What it bakes, for people.
        title: String,
        /// Paths of all steps, in the order of the plan.
        steps: Vec<String>,
    },
    /// The run goes on, perhaps in another process. Numbers of events go on, too.
    RunResumed {
        /// What it bakes, for people.
        title: String,
        /// Paths of all steps, in the order of the plan.
        steps: Vec<String>,
        /// Paths of those that had ended before. They are not told of again.
        ended: Vec<String>,
    },
    /// A try of a step began.
    StepStarted,
    /// A step says how far it is.
    StepProgress {
        /// Done so far.
        done: u64,
        /// In all, if known.
        total: Option<u64>,
        /// What is counted, such as `bytes`.
        unit: String,
    },
    /// A step says something.
    StepLog {
        /// One line.
        line: String,
    },
    /// A try failed and there will be another.
    StepRetry {
        /// Why it failed.
        error: Vec<String>,
        /// What kind of failure it was.
        class: Class,
        /// How long until the next try.
        delay_ms: u64,
    },
    /// A step ended.
    StepFinished {
        /// How.
        state: StepState,
        /// How long it took, waits included.
        elapsed_ms: u64,
        /// Why it failed, from the outermost message to the cause.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        error: Vec<String>,
    },
    /// A step was not run.
    StepSkipped {
        /// Why.
        reason: SkipReason,
    },
    /// Something that outlives the process was made.
    ResourceMade {
        /// The kind of mutation.
        kind: String,
        /// What was made, as the mutation names it.
        id: serde_json::Value,
    },
    /// Something was taken back.
    ResourceUndone {
        /// The kind of mutation.
        kind: String,
        /// What it was; null if nothing had been made.
        id: serde_json::Value,
    },
    /// The run ended. Nothing comes after this.
    RunFinished {
        /// How.
        verdict: Verdict,
    },
}

impl EventKind {
    /// Says whether the journal keeps it. Lines go to log files, and progress is of the moment.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self, EventKind::StepLog { .. } | EventKind::StepProgress { .. })
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Well.
    Done,
    /// It failed, and with it the run.
    Failed,
    /// It failed, and was optional.
    Warned,
    /// It was not run.
    Skipped,
    /// A cancel ended it.
    Cancelled,
    /// It failed, and whether it changed the world is not known.
    Unknown,
}

/// Why a step was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// Its condition does not hold.
    Condition(String),
    /// A step that it needs failed or was skipped.
    Upstream(String),
    /// The scope that it is in failed.
    Scope(String),
    /// The run had failed already.
    RunFailed,
    /// The run was cancelled.
    Cancelled,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Well; optional steps may have failed.
    Done,
    /// A step failed.
    Failed,
    /// A cancel ended it.
    Cancelled,
    /// The journal could not be written.
    Poisoned,
}

/// Where events go.
#[derive(Debug, Clone, Default)]
pub struct EventSink(Option<mpsc::UnboundedSender<Event>>);

impl EventSink {
    /// Makes a sink and the stream that comes out of it.
    pub fn channel() -> (EventSink, EventStream) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (EventSink(Some(sender)), EventStream(receiver))
    }

    /// Makes a sink that nobody listens to.
    pub fn none() -> EventSink {
        EventSink(None)
    }

    pub(crate) fn send(&self, event: Event) {
        if let Some(sender) = &self.0 {
            // A listener that went away must not stop a run.
            let _nobody_listens = sender.send(event);
        }
    }
}

/// Events as they happen.
#[derive(Debug)]
pub struct EventStream(mpsc::UnboundedReceiver<Event>);

impl EventStream {
    /// Waits for the next event. `None` once the engine is gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok()
    }
}

/// Sends events of one step.
#[derive(Clone)]
pub(crate) struct StepReporter {
    pub(crate) log: Arc<RunLog>,
    pub(crate) path: Arc<str>,
}

impl StepReporter {
    pub(crate) fn send(&self, attempt: u32, kind: EventKind) {
        self.log.tell(&self.path, Some(attempt), kind);
    }
}
