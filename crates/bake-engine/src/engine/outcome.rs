//! How a run went.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Class, StepError, StepResult};
use crate::event::{SkipReason, Verdict};
use crate::handle::Handle;
use crate::id::RunId;
use crate::inputs::{Output, decode};
use crate::journal::{ResourceRecord, StepTrouble};

/// How a run went, before anything was undone.
#[derive(Debug)]
pub struct Outcome {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub verdict: Verdict,
    /// Steps that failed the run, the first one first.
    pub failures: Vec<StepFailure>,
    /// Optional steps that failed.
    pub warnings: Vec<StepFailure>,
    /// Steps that were not run.
    pub skipped: Vec<Skipped>,
    /// Operations of which nobody knows whether they made something.
    pub unknown: Vec<UnknownOperation>,
    /// What was made and is not known to be in the journal.
    pub unsaved: Vec<Unsaved>,
    /// What steps gave, by path.
    pub outputs: BTreeMap<String, Value>,
    pub(super) plan: u64,
    pub(super) values: Vec<Option<Arc<str>>>,
}

impl Outcome {
    /// Returns the output of a step, or `None` if the step did not finish.
    pub fn output<T: Output>(&self, handle: Handle<T>) -> StepResult<Option<T>> {
        if handle.place.plan != self.plan {
            return Err(StepError::bug("a handle of another plan was used"));
        }
        self.values[handle.place.node].as_deref().map(decode).transpose()
    }
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// The path of the step.
    pub path: String,
    /// What kind of failure it was.
    pub class: Class,
    /// The messages from the outermost to the cause.
    pub error: Vec<String>,
    /// What to do next, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Lines to show below the error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl StepFailure {
    pub(super) fn new(path: &str, error: &StepError) -> StepFailure {
        StepFailure {
            path: path.to_owned(),
            class: error.class(),
            error: error.chain(),
            hint: error.hint_text().map(str::to_owned),
            details: error.detail_lines().to_vec(),
        }
    }

    pub(super) fn from_journal(path: &str, trouble: StepTrouble) -> StepFailure {
        let StepTrouble { class, chain, hint, details } = trouble;
        StepFailure { path: path.to_owned(), class, error: chain, hint, details }
    }
}

/// A step that was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The path of the step.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// An operation of which nobody knows whether it made something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownOperation {
    /// The path of the step.
    pub step: String,
    /// The kind of mutation.
    pub kind: String,
    /// The id of the operation, as in the tag `bake:op`.
    pub operation: String,
    /// What was sent.
    pub request: Value,
}

impl From<&ResourceRecord> for UnknownOperation {
    fn from(resource: &ResourceRecord) -> UnknownOperation {
        UnknownOperation {
            step: resource.step.clone(),
            kind: resource.kind.clone(),
            operation: resource.operation.clone(),
            request: resource.request.clone(),
        }
    }
}

/// What was made and is not known to be in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsaved {
    /// The path of the step.
    pub step: String,
    /// The kind of mutation.
    pub kind: String,
    /// Its ids.
    pub made: Value,
}
