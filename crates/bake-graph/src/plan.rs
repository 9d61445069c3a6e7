//! A plan as printed, read back.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

/// Why a plan cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum DrawingError {
    /// It is not a plan.
    #[error("cannot draw the plan: it is not one that `bake` printed")]
    NotAPlan(#[source] serde_json::Error),
    /// It is a plan that has mistakes.
    #[error("cannot draw the plan: it has mistakes: {}", .0.join("; "))]
    Mistakes(Vec<String>),
    /// A step waits for something that is not in the plan.
    #[error("cannot draw the plan: `{step}` waits for `{missing}`, and there is no such step")]
    UnknownStep {
        /// The step that waits.
        step: String,
        /// What it waits for.
        missing: String,
    },
    /// Steps wait for each other.
    #[error("cannot draw the plan: steps wait for each other, among them `{step}`")]
    Cycle {
        /// One of them.
        step: String,
    },
}

/// A plan: its steps by path, in its own order. What a newer `bake` adds is passed over.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    #[serde(default)]
    errors: Vec<String>,
    #[serde(default)]
    steps: Option<IndexMap<String, StepDescription>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StepDescription {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) after: Vec<String>,
    pub(crate) scope: Option<String>,
    #[serde(default)]
    pub(crate) when: Vec<String>,
    #[serde(default)]
    pub(crate) optional: bool,
    pub(crate) mutation: Option<String>,
    #[serde(default)]
    pub(crate) calls: Calls,
}

/// The calls of a mutation. Not the engine's type, which borrows its names from the program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Calls {
    pub(crate) send: Vec<String>,
    pub(crate) settle: Vec<String>,
    pub(crate) undo: Vec<String>,
}

impl StepDescription {
    pub(crate) fn is_barrier(&self) -> bool {
        self.kind == "wait"
    }

    pub(crate) fn is_scope(&self) -> bool {
        self.kind == "scope"
    }

    /// Says in a few words what the step does.
    pub(crate) fn does(&self) -> &str {
        match (&self.mutation, &*self.kind) {
            (Some(mutation), _) => mutation,
            (None, "work") => "local work",
            (None, "open") => "live value",
            (None, "scope") => "end of the scope",
            (None, "wait") => "waits for all before it",
            (None, other) => other,
        }
    }
}

pub(crate) fn read(plan: &Value) -> Result<IndexMap<String, StepDescription>, DrawingError> {
    let description = Description::deserialize(plan).map_err(DrawingError::NotAPlan)?;
    if !description.errors.is_empty() {
        return Err(DrawingError::Mistakes(description.errors));
    }
    description.steps.ok_or_else(|| DrawingError::NotAPlan(serde::de::Error::missing_field("steps")))
}
