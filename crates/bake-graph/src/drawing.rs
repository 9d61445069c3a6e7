//! What is drawn, whatever it is written as.

use std::collections::{BTreeMap, BTreeSet};

use bake_engine::{ResourceState, RunView, StepRecord, Verdict};
use indexmap::IndexMap;
use serde_json::Value;

use crate::groups::{self, Group};
use crate::plan::{self, DrawingError, StepDescription};
use crate::state::{self, State};
use crate::text::one_line;
use crate::tooltip;
use crate::waits::{self, Wait, Waits};

/// A picture of a plan, or of a run: what its steps are, who waits for whom, and how each stands.
///
/// The same plan and run always give the same bytes.
#[derive(Debug, Clone)]
pub struct Drawing {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// All steps of the plan, in its order.
    pub(crate) steps: Vec<Step>,
    /// The boxes; the first is the whole picture, and a box comes before those in it.
    pub(crate) groups: Vec<Group>,
    pub(crate) arrows: Vec<Arrow>,
    pub(crate) has_run: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) path: String,
    pub(crate) plan: StepDescription,
    pub(crate) group: usize,
    pub(crate) shape: Shape,
    pub(crate) state: State,
    pub(crate) record: Option<StepRecord>,
    pub(crate) tooltip: Vec<String>,
}

/// How a step is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A box with text.
    Node,
    /// A thin bar: it does nothing but wait.
    Bar,
    /// As the frame of a group: it is the end of that scope.
    Frame(usize),
    /// Not at all: arrows say what it said.
    Gone,
}

/// An arrow, from what is waited for to what waits. Both are steps; one that is a frame stands for its box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) wait: Wait,
}

impl Drawing {
    /// Draws a plan from its printed form.
    pub fn of_plan(plan: &Value) -> Result<Drawing, DrawingError> {
        let described = plan::read(plan)?;
        let mut waits = waits_of(&described)?;
        let dissolved = waits::simplify(&mut waits, |step| described[step].is_barrier()).map_err(|step| {
            let path = described.get_index(step).map(|(path, _)| one_line(path));
            DrawingError::Cycle { step: path.unwrap_or_default() }
        })?;
        let mut steps: Vec<Step> = described
            .into_iter()
            .zip(dissolved)
            .map(|((path, plan), gone)| {
                let shape = match () {
                    () if gone => Shape::Gone,
                    () if plan.is_barrier() || plan.is_scope() => Shape::Bar,
                    () => Shape::Node,
                };
                Step { path, plan, group: 0, shape, state: State::Planned, record: None, tooltip: Vec::new() }
            })
            .collect();
        let groups = groups::arrange(&mut steps, &waits);
        let arrows = arrows(&steps, &groups, &waits);
        let mut drawing =
            Drawing { title: "Plan".into(), subtitle: String::new(), steps, groups, arrows, has_run: false };
        drawing.write_tooltips();
        Ok(drawing)
    }

    /// Draws a run: the plan that it stored, and how far it is.
    pub fn of_run(view: &RunView) -> Result<Drawing, DrawingError> {
        Ok(Drawing::of_plan(&view.run.plan)?.with_run(view))
    }

    /// Adds the states of a run's steps. Steps that are not in the plan are passed over.
    #[must_use]
    pub fn with_run(mut self, view: &RunView) -> Drawing {
        let records: BTreeMap<&str, &StepRecord> = view.steps.iter().map(|step| (&*step.path, step)).collect();
        let made = view.resources.iter().map(|resource| &*resource.step).collect::<BTreeSet<_>>();
        let left = view.resources.iter().filter(|resource| resource.state != ResourceState::Undone);
        let left: BTreeSet<&str> = left.map(|resource| &*resource.step).collect();
        for step in &mut self.steps {
            let record = records.get(&*step.path).copied();
            let taken_back = made.contains(&*step.path) && !left.contains(&*step.path);
            step.state = state::of_step(view, record, taken_back);
            step.record = record.cloned();
        }
        self.has_run = true;
        self.title = one_line(&view.run.title);
        self.subtitle = format!("run {} · {}", view.run.id.as_str(), verdict(view));
        self.frames_follow_their_steps();
        self.write_tooltips();
        self
    }

    /// Gives the picture a title of its own.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Drawing {
        self.title = one_line(title);
        self
    }

    /// A scope has no record before it ends; until then it stands as its steps do.
    fn frames_follow_their_steps(&mut self) {
        for frame in 0..self.steps.len() {
            if let (Shape::Frame(group), State::Waiting) = (self.steps[frame].shape, self.steps[frame].state) {
                let begun = |step: &Step| step.record.is_some() && groups::is_inside(&self.groups, step.group, group);
                if self.steps.iter().any(begun) {
                    self.steps[frame].state = State::Running;
                }
            }
        }
    }

    fn write_tooltips(&mut self) {
        let states: BTreeMap<String, State> = self.steps.iter().map(|step| (step.path.clone(), step.state)).collect();
        for step in &mut self.steps {
            step.tooltip = tooltip::of_step(step, &states, self.has_run);
        }
    }

    /// Returns the steps that are drawn as nodes or bars, by number.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = (usize, &Step)> {
        self.steps.iter().enumerate().filter(|(_, step)| matches!(step.shape, Shape::Node | Shape::Bar))
    }

    /// Returns the name of a group, with the mark of its state if it is a scope.
    pub(crate) fn heading(&self, group: usize) -> String {
        let name = &self.groups[group].name;
        match self.frame(group).filter(|_| self.has_run) {
            Some(frame) => format!("{} {name}", frame.state.look().mark),
            None => name.clone(),
        }
    }

    /// Returns how many steps of a group are done, of how many. Empty without a run.
    pub(crate) fn tally(&self, group: usize) -> String {
        if !self.has_run {
            return String::new();
        }
        let inside = self.steps.iter().filter(|step| step.shape == Shape::Node);
        let states = inside.filter(|step| groups::is_inside(&self.groups, step.group, group)).map(|step| step.state);
        let (done, other): (Vec<State>, Vec<State>) = states.partition(|state| *state == State::Done);
        format!("{} of {}", done.len(), done.len() + other.len())
    }

    /// Returns the frame of a group, if it is a scope.
    pub(crate) fn frame(&self, group: usize) -> Option<&Step> {
        self.groups[group].end.map(|end| &self.steps[end])
    }

    /// Returns the states that the picture shows, for its legend.
    pub(crate) fn states(&self) -> Vec<State> {
        let bars_have_none = |step: &&Step| !matches!(step.shape, Shape::Bar | Shape::Gone);
        let shown: BTreeSet<State> = self.steps.iter().filter(bars_have_none).map(|step| step.state).collect();
        State::all().filter(|state| shown.contains(state) && *state != State::Planned).collect()
    }

    pub(crate) fn has(&self, wait: Wait) -> bool {
        self.arrows.iter().any(|arrow| arrow.wait == wait)
    }

    pub(crate) fn has_bars(&self) -> bool {
        self.steps.iter().any(|step| step.shape == Shape::Bar)
    }
}

impl Step {
    /// Returns the name that a node shows: its path below the groups that are drawn around it.
    pub(crate) fn name(&self, groups: &[Group]) -> String {
        one_line(groups::below(&groups[self.group].path, &self.path)).replace('/', " / ")
    }

    /// Returns the line below the name: why it failed, or else what it does.
    pub(crate) fn remark(&self) -> String {
        let record = self.record.as_ref();
        let trouble = record.and_then(|record| record.error.as_ref()).and_then(|error| error.chain.last());
        let tries = record.map_or(0, |record| record.attempts);
        match (self.state, trouble) {
            (State::Failed | State::Warned | State::Unknown | State::Retrying, Some(error)) => one_line(error),
            (State::Skipped, _) if self.unmet_condition().is_some() => "condition not met".into(),
            _ if tries > 1 => format!("try {tries} · {}", one_line(self.plan.does())),
            _ => one_line(self.plan.does()),
        }
    }

    /// Returns the condition that kept the step from being run.
    pub(crate) fn unmet_condition(&self) -> Option<&str> {
        let answers = self.record.as_ref()?.conditions.as_ref()?.as_object()?;
        answers.iter().find(|(_, answer)| **answer == Value::Bool(false)).map(|(text, _)| text.as_str())
    }
}

fn verdict(view: &RunView) -> &'static str {
    match view.run.verdict {
        None => "not finished",
        Some(Verdict::Done) => "done",
        Some(Verdict::Failed) => "failed",
        Some(Verdict::Cancelled) => "cancelled",
        Some(Verdict::Poisoned) => "stopped: the journal could not be written",
    }
}

fn waits_of(steps: &IndexMap<String, StepDescription>) -> Result<Waits, DrawingError> {
    let number = |step: &str, path: &str| {
        let unknown = || DrawingError::UnknownStep { step: one_line(step), missing: one_line(path) };
        steps.get_index_of(path).ok_or_else(unknown)
    };
    let mut waits: Waits = vec![BTreeMap::new(); steps.len()];
    for (index, (path, step)) in steps.iter().enumerate() {
        for from in &step.needs {
            waits[index].insert(number(path, from)?, Wait::Needs);
        }
        for from in &step.after {
            // A scope is only finished with all of its steps, although its end is there whatever becomes of them.
            let number = number(path, from)?;
            let is_member = step.is_scope() && steps[number].scope.as_ref() == Some(path);
            waits[index].entry(number).or_insert(if is_member { Wait::Needs } else { Wait::After });
        }
    }
    Ok(waits)
}

/// Returns the arrows, but not those from a step to the frame around it: being inside says as much.
fn arrows(steps: &[Step], groups: &[Group], waits: &Waits) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for (to, waits) in waits.iter().enumerate() {
        for (&from, &wait) in waits {
            let inside = matches!(steps[to].shape, Shape::Frame(group)
                if groups::is_inside(groups, steps[from].group, group));
            if !inside {
                arrows.push(Arrow { from, to, wait });
            }
        }
    }
    arrows
}
