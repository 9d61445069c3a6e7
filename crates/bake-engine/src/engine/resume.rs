//! Going on with a run that another process left.

use std::sync::Arc;

use serde_json::Value;

use crate::cancel::Cancel;
use crate::crash;
use crate::engine::compare::Planned;
use crate::engine::past::{Past, held_up};
use crate::engine::schedule::Schedule;
use crate::engine::{Engine, EngineError, Left, Outcome, finish, undo};
use crate::error::{Class, StepError};
use crate::event::EventKind;
use crate::id::RunId;
use crate::journal::{OLDEST_TO_RESUME, Record, RunView, Told};
use crate::plan::{Plan, digest};

impl Engine {
    /// Goes on with a run that was killed, failed or was cancelled, and takes it away from a process that may still
    /// have it: of one run, only who opened it last can write.
    ///
    /// What is done stays done. Its outputs are read back, and nothing is told of it again. A scope that has not ended
    /// begins again, after what it made was taken back. A call of which nobody knows how it ended is looked for, or sent
    /// again where that gives the first answer; always with the request that it had. What failed is tried again.
    /// What was taken back is made again if it is an artifact, or if something that has yet to run needs it.
    ///
    /// The plan may have more steps than the run began with, such as one region more. What is done must be in it as it
    /// was ([`EngineError::PlanChanged`]). An error means that nothing was started.
    pub async fn resume(&self, plan: Plan, run: &RunId, cancel: Cancel) -> Result<Outcome, EngineError> {
        let graph = plan.graph().map_err(EngineError::Plan)?;
        self.check_registered(&plan)?;
        let description = plan.describe();
        // Looks before it opens: who refuses should not have stopped anybody.
        self.resumable(run, &description)?;
        let log = self.log(run);
        log.open().await?;
        log.flush().await?;
        // Once more, since the process that had it may have written until then.
        let view = self.resumable(run, &description)?;
        let Past { steps: past, replays, reopened } = Past::read(&plan, &description, &graph, &view);

        let ended = past.iter().zip(&plan.nodes).filter(|(past, _)| past.end.is_some());
        let told = EventKind::RunResumed {
            title: view.run.title.clone(),
            steps: plan.nodes.iter().map(|node| node.path.to_string()).collect(),
            ended: ended.map(|(_, node)| node.path.to_string()).collect(),
        };
        let resumed = Record::Resumed { plan_digest: digest(&description), plan: description.to_string() };
        let records = std::iter::once(resumed).chain(reopened.into_iter().map(Record::Step));
        log.write(records.collect(), vec![Told::run(told)]).await?;
        crash::point("run", "resumed");

        let mut abandoned: Vec<_> = replays.iter().flat_map(|replay| replay.abandoned.iter().cloned()).collect();
        abandoned.sort_by_key(|resource| view.resources.iter().position(|other| other.operation == resource.operation));
        let left = undo::undo_all(&log, &self.mutations, &self.options, abandoned, &cancel).await;
        let mut schedule = Schedule::new(plan, graph, past, Arc::clone(&log), cancel.clone(), Arc::clone(&self.slots));
        for (step, left) in held_up(&replays, &left) {
            schedule.fail_early(step, cannot_begin_again(&left, &cancel));
        }
        Ok(finish(schedule, &log).await)
    }

    /// Returns what the journal has of a run, if the plan can go on with it.
    fn resumable(&self, run: &RunId, description: &Value) -> Result<RunView, EngineError> {
        let view = self.journal.view(run)?.ok_or_else(|| EngineError::NoSuchRun(run.clone()))?;
        if view.run.format < OLDEST_TO_RESUME {
            return Err(EngineError::TooOld { run: run.clone() });
        }
        let differences = Planned::new(&view).differences(description);
        if differences.is_empty() { Ok(view) } else { Err(EngineError::PlanChanged { run: run.clone(), differences }) }
    }
}

/// Nothing may be made a second time while the first may be there.
fn cannot_begin_again(left: &[&Left], cancel: &Cancel) -> StepError {
    let class = if cancel.level() > 0 { Class::Cancelled } else { Class::Permanent };
    let named = left.iter().map(|left| {
        let what = left.made.as_ref().map_or_else(|| format!("operation `{}`", left.operation), Value::to_string);
        format!("{} of `{}`, {what}: {}", left.kind, left.step, left.reason)
    });
    StepError::new(class, "cannot begin again: what was made before cannot be taken back").details(named)
}
