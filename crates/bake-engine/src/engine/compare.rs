//! Whether a plan is the one that a run began with.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::past::is_good;
use crate::event::StepState;
use crate::journal::RunView;

/// What of a step decides what it makes.
const PARTS: [&str; 4] = ["kind", "scope", "mutation", "request"];

/// One reason why a plan cannot go on with a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanDifference {
    /// A step that has been done would do something else now.
    Changed {
        /// The path of the step.
        step: String,
        /// What of it: `kind`, `scope`, `mutation` or `request`.
        part: String,
        /// As it was done; null if it had none.
        before: Value,
        /// As it is planned now.
        now: Value,
    },
    /// A step that made something is not in the plan any more.
    Removed {
        /// The path of the step.
        step: String,
    },
    /// A step was added to a scope that is finished.
    Added {
        /// The path of the step.
        step: String,
        /// The path of the scope.
        scope: String,
    },
}

impl fmt::Display for PlanDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanDifference::Changed { step, part, before, now } => {
                write!(f, "the {part} of `{step}` was `{before}` and is `{now}`")
            }
            PlanDifference::Removed { step } => write!(f, "`{step}` made something and is not in the plan any more"),
            PlanDifference::Added { step, scope } => write!(f, "`{step}` was added to `{scope}`, which is finished"),
        }
    }
}

/// The steps of a run as it was planned, and how far they are.
pub(super) struct Planned<'a> {
    plan: &'a Value,
    states: HashMap<&'a str, Option<StepState>>,
    there: HashMap<&'a str, bool>,
}

impl<'a> Planned<'a> {
    pub(super) fn new(view: &'a RunView) -> Planned<'a> {
        let states = view.steps.iter().map(|row| (&*row.path, row.state)).collect();
        let mut there = HashMap::new();
        for resource in &view.resources {
            *there.entry(&*resource.step).or_default() |= is_good(resource.state);
        }
        Planned { plan: &view.run.plan, states, there }
    }

    /// Returns the path of the scope that a step was in.
    fn scope_of(&self, step: &str) -> Option<&'a str> {
        self.part(step, "scope")?.as_str()
    }

    /// Says whether a step was in a scope. One that an even earlier plan had is told by its path.
    pub(super) fn was_in_scope(&self, step: &str, scope: &str) -> bool {
        match self.part(step, "kind") {
            Some(_) => self.scope_of(step) == Some(scope),
            None => step.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/')),
        }
    }

    /// Returns a part of the description of a step.
    pub(super) fn part(&self, step: &str, name: &str) -> Option<&'a Value> {
        part(self.plan, step, name)
    }

    /// Returns what stands between the run and another plan for it.
    pub(super) fn differences(&self, plan: &Value) -> Vec<PlanDifference> {
        let now: HashMap<_, _> = steps(plan).collect();
        let kept = steps(self.plan).filter(|(path, _)| self.must_stay(path, &now));
        let changed = kept.flat_map(|(path, before)| compare(path, before, now.get(path).copied()));
        changed.chain(steps(plan).filter_map(|(path, step)| self.added_too_late(path, step))).collect()
    }

    /// Says whether a step can only be what it was: it is done, or there is something that it made.
    fn must_stay(&self, path: &str, now: &HashMap<&str, &Value>) -> bool {
        let is_there = self.there.get(path).copied();
        match self.scope_of(path) {
            // A scope that is not finished begins again, whatever is in it now, and what it made goes. But it must be
            // there to do that, and its steps cannot go elsewhere.
            Some(scope) if !self.is_done(scope) => {
                let fits = match now.get(path) {
                    Some(step) => step.get("scope").and_then(Value::as_str) == Some(scope),
                    None => now.contains_key(scope),
                };
                is_there == Some(true) && !fits
            }
            Some(_) => true,
            // What was made and taken back is made anew, if at all.
            None => is_there.unwrap_or_else(|| self.is_done(path) && now.contains_key(path)),
        }
    }

    fn added_too_late(&self, path: &str, step: &Value) -> Option<PlanDifference> {
        let scope = step.get("scope")?.as_str()?;
        let late = self.is_done(scope) && self.part(path, "kind").is_none();
        late.then(|| PlanDifference::Added { step: path.to_owned(), scope: scope.to_owned() })
    }

    fn is_done(&self, path: &str) -> bool {
        self.states.get(path) == Some(&Some(StepState::Done))
    }
}

/// Returns a part of the description of a step of a plan.
pub(super) fn part<'a>(plan: &'a Value, step: &str, name: &str) -> Option<&'a Value> {
    plan.get("steps")?.get(step)?.get(name)
}

fn steps(plan: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let steps = plan.get("steps").and_then(Value::as_object);
    steps.into_iter().flatten().map(|(path, step)| (path.as_str(), step))
}

fn compare(path: &str, before: &Value, now: Option<&Value>) -> Vec<PlanDifference> {
    let Some(now) = now else { return vec![PlanDifference::Removed { step: path.to_owned() }] };
    let changed = PARTS.iter().filter(|&&part| before.get(part) != now.get(part));
    changed
        .map(|&part| PlanDifference::Changed {
            step: path.to_owned(),
            part: part.to_owned(),
            before: before.get(part).cloned().unwrap_or_default(),
            now: now.get(part).cloned().unwrap_or_default(),
        })
        .collect()
}
