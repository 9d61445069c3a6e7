//! Taking back what a run made, from the journal alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::cancel::Cancel;
use crate::crash;
use crate::engine::EngineOptions;
use crate::engine::mutate::find_patiently;
use crate::engine::step::unpanicking;
use crate::error::{Class, StepError, StepResult};
use crate::event::EventKind;
use crate::journal::{JournalError, Record, ResourceRecord, ResourceState, RunLog, Told};
use crate::mutation::{AnyMutation, Keep, Mutations, Op, Undone};

/// The wait between two rounds grows up to this many times the first one.
const SLOWEST_PACE: u32 = 32;

/// How much shorter the wait for what is in use is when something else could not be taken back.
const SHORTER_BEHIND_WHAT_IS_LEFT: u32 = 10;

/// What to take back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Scaffolds, and what was begun and is not ready. Finished artifacts stay.
    Scaffolds,
    /// All that was made.
    Everything,
}

impl Undo {
    fn includes(self, resource: &ResourceRecord) -> bool {
        let wanted = match (resource.keep, self) {
            (Keep::NothingToUndo, _) => false,
            (Keep::Scaffold, _) | (Keep::Artifact, Undo::Everything) => true,
            (Keep::Artifact, Undo::Scaffolds) => resource.state != ResourceState::Done,
        };
        resource.state.is_there() && wanted
    }
}

/// Something that could not be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The kind of mutation.
    pub kind: String,
    /// The path of the step that made it.
    pub step: String,
    /// The id of the operation, as in the tag `bake:op`.
    pub operation: String,
    /// Its ids; `None` if it is not known whether anything was made.
    pub made: Option<Value>,
    /// Why it is left.
    pub reason: String,
}

/// What one try found.
enum Tried {
    Gone,
    Again(String),
    Never(String),
}

pub(super) async fn undo(
    log: &Arc<RunLog>,
    mutations: &Mutations,
    options: &EngineOptions,
    what: Undo,
    cancel: &Cancel,
) -> Result<Vec<Left>, JournalError> {
    let resources = log.journal().resources(log.run())?.into_iter();
    let resources = resources.filter(|resource| what.includes(resource));
    Ok(undo_all(log, mutations, options, resources.collect(), cancel).await)
}

/// Takes back these resources, the last one first.
pub(super) async fn undo_all(
    log: &Arc<RunLog>,
    mutations: &Mutations,
    options: &EngineOptions,
    resources: Vec<ResourceRecord>,
    cancel: &Cancel,
) -> Vec<Left> {
    let queue = resources.into_iter().rev().map(|resource| (resource, String::new())).collect();
    let mut undoing = Undoing { log, mutations, options, cancel, queue, left: Vec::new() };
    undoing.run().await;
    undoing.left
}

/// Says in one line why something is left, such as which of several things it may be.
fn reason(error: &StepError) -> String {
    let reason = error.chain().join(": ");
    match error.detail_lines() {
        [] => reason,
        lines => format!("{reason} ({})", lines.join(", ")),
    }
}

struct Undoing<'a> {
    log: &'a Arc<RunLog>,
    mutations: &'a Mutations,
    options: &'a EngineOptions,
    cancel: &'a Cancel,
    /// What is still to do, newest first, and why it was not done yet.
    queue: VecDeque<(ResourceRecord, String)>,
    left: Vec<Left>,
}

impl Undoing<'_> {
    async fn run(&mut self) {
        let mut last_progress = Instant::now();
        let mut pace = self.options.undo_pace;
        while !self.queue.is_empty() {
            if self.round().await {
                last_progress = Instant::now();
                pace = self.options.undo_pace;
                continue;
            }
            let stalled = last_progress.elapsed() >= self.stall_limit();
            if self.queue.is_empty() || stalled || !self.wait(pace).await {
                break;
            }
            pace = (pace * 2).min(self.options.undo_pace * SLOWEST_PACE);
        }
        let rest: Vec<_> = self.queue.drain(..).collect();
        for (resource, reason) in rest {
            let reason = if self.abandoned() { "undoing was stopped".to_owned() } else { reason };
            self.leave(resource, reason);
        }
    }

    /// How long to wait while nothing moves. Once something is left for good, it may be what uses the rest.
    fn stall_limit(&self) -> Duration {
        match self.left.is_empty() {
            true => self.options.stall_limit,
            false => self.options.stall_limit / SHORTER_BEHIND_WHAT_IS_LEFT,
        }
    }

    /// Tries everything once and says whether anything was done.
    async fn round(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..self.queue.len() {
            if self.abandoned() {
                break;
            }
            let Some((resource, _)) = self.queue.pop_front() else { break };
            match self.attempt(&resource).await {
                Tried::Gone => progress = true,
                Tried::Again(reason) => self.queue.push_back((resource, reason)),
                Tried::Never(reason) => self.leave(resource, reason),
            }
        }
        progress
    }

    async fn attempt(&self, resource: &ResourceRecord) -> Tried {
        let Some(mutation) = self.mutations.get(&resource.kind) else {
            return Tried::Never(format!("this program has no plugin for `{}`", resource.kind));
        };
        let op = Op::new(self.log.run(), &resource.step, resource.generation, resource.intended);
        let abandon = self.cancel.abandon();
        let taken_back = tokio::select! {
            biased;
            result = self.take_back(&**mutation, &op, resource) => result,
            () = abandon.cancelled() => Err(StepError::cancelled()),
        };
        match taken_back {
            Ok(Undone::Gone) => Tried::Gone,
            Ok(Undone::InUse) => Tried::Again("it is still in use".to_owned()),
            Err(error) => {
                let reason = reason(&error);
                match error.class() {
                    Class::Throttled | Class::Transient | Class::Unknown | Class::InUse | Class::Cancelled => {
                        Tried::Again(reason)
                    }
                    Class::Permanent | Class::Bug => Tried::Never(reason),
                }
            }
        }
    }

    /// Undoes one operation. One whose answer was lost is looked for first, and never sent.
    async fn take_back(&self, mutation: &dyn AnyMutation, op: &Op, resource: &ResourceRecord) -> StepResult<Undone> {
        crash::point(op.step(), "undo");
        let made: Option<Arc<str>> = match &resource.made {
            Some(made) => Some(made.to_string().into()),
            None => self.find(mutation, op, resource).await?,
        };
        if let Some(made) = &made
            && self.undo_made(mutation, op, resource, made).await? == Undone::InUse
        {
            return Ok(Undone::InUse);
        }
        crash::point(op.step(), "undone");
        let state = if made.is_some() { ResourceState::Undone } else { ResourceState::NotMade };
        let record = Record::Resource { operation: op.id().to_owned(), state };
        let told = made.map(|made| {
            let id = serde_json::from_str(&made).unwrap_or_default();
            let kind = EventKind::ResourceUndone { kind: resource.kind.clone(), id };
            Told::step(&op.step().into(), None, kind)
        });
        self.record(record, told).await;
        Ok(Undone::Gone)
    }

    /// Takes back what has ids. The journal says so before, or a run that goes on would build on what is gone.
    async fn undo_made(
        &self,
        mutation: &dyn AnyMutation,
        op: &Op,
        resource: &ResourceRecord,
        made: &str,
    ) -> StepResult<Undone> {
        let record = |state| Record::Resource { operation: op.id().to_owned(), state };
        self.record(record(ResourceState::Undoing), None).await;
        crash::point(op.step(), "undoing");
        let undone = unpanicking(mutation.undo(op, made)).await;
        let is_still_there = match &undone {
            Ok(Undone::Gone) => false,
            Ok(Undone::InUse) => true,
            Err(error) => !matches!(error.class(), Class::Unknown | Class::Bug),
        };
        if is_still_there {
            let before = if resource.result.is_some() { ResourceState::Done } else { ResourceState::Accepted };
            self.log.post(vec![record(before)], Vec::new());
        }
        undone
    }

    async fn find(
        &self,
        mutation: &dyn AnyMutation,
        op: &Op,
        resource: &ResourceRecord,
    ) -> StepResult<Option<Arc<str>>> {
        let pause = |time| async move {
            tokio::time::sleep(time).await;
            Ok(())
        };
        let found = find_patiently(mutation, op, &resource.request.to_string(), pause).await?;
        if let Some(made) = &found {
            let record = Record::Made { operation: op.id().to_owned(), made: Arc::clone(made) };
            self.record(record, None).await;
        }
        Ok(found)
    }

    /// Writes what was done. If that fails, a later teardown finds it gone, which is the same.
    async fn record(&self, record: Record, told: Option<Told>) {
        if let Err(error) = self.log.write(vec![record], told.into_iter().collect()).await {
            tracing::debug!(%error, "what was undone is not in the journal");
        }
    }

    async fn wait(&self, time: std::time::Duration) -> bool {
        let abandon = self.cancel.abandon();
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            () = abandon.cancelled() => false,
        }
    }

    fn abandoned(&self) -> bool {
        self.cancel.abandon().is_cancelled()
    }

    fn leave(&mut self, resource: ResourceRecord, reason: String) {
        tracing::warn!(step = resource.step, kind = resource.kind, reason, "something is left");
        let ResourceRecord { kind, step, operation, made, .. } = resource;
        self.left.push(Left { kind, step, operation, made, reason });
    }
}
