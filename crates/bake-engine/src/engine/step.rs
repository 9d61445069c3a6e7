//! One step, from its conditions to its last try.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::context::{ContextParts, StepContext};
use crate::crash;
use crate::engine::mutate::Operation;
use crate::engine::outcome::UnknownOperation;
use crate::engine::schedule::{Shared, StepEnd};
use crate::error::{Class, StepError, StepResult};
use crate::event::{EventKind, SkipReason, StepReporter, StepState};
use crate::inputs::{Source, SourceKind};
use crate::journal::{JournalError, Record, StepRow, StepTrouble, Told};
use crate::plan::{Condition, Node, Work};
use crate::retry::{Backoff, RetryState};
use crate::slot::Seat;

impl From<JournalError> for StepError {
    fn from(error: JournalError) -> StepError {
        StepError::wrap(Class::Permanent, error)
    }
}

/// A step while it runs.
pub(super) struct Running<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) node: &'a Node,
    pub(super) index: usize,
    pub(super) generation: u32,
    pub(super) attempt: u32,
    pub(super) begun: Instant,
    /// The wait for a next try that the end of the run cut short.
    waited_for: Option<RetryState>,
    seat: Seat,
}

/// Why a step ends without an output.
enum Stopped {
    Skip(SkipReason),
    Fail(StepError),
}

impl<E: Into<StepError>> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped::Fail(error.into())
    }
}

/// Runs a step to its end and journals it.
pub(super) async fn run_step(shared: &Arc<Shared>, index: usize, broken_scope: Option<String>) -> StepEnd {
    let node = shared.node(index);
    let mut step = Running {
        shared,
        node,
        index,
        generation: shared.generation(index),
        attempt: shared.past[index].attempts,
        begun: Instant::now(),
        waited_for: None,
        seat: shared.slots.seat(node.settings.slot),
    };
    let mut operation = match &node.work {
        Work::Mutate(work) => Some(match &shared.past[index].operation {
            Some(before) => Operation::resumed(work, shared.log.run(), before),
            None => Operation::new(work),
        }),
        Work::Run(_) | Work::Open(_) | Work::EndScope(_) | Work::Barrier => None,
    };
    let ended = step.through(operation.as_mut(), broken_scope).await;
    let unknown = match &mut operation {
        Some(operation) => operation.give_up(&step, ended.is_ok()).await,
        None => None,
    };
    step.seat.leave();
    match ended {
        Ok(()) => StepEnd::Done,
        Err(Stopped::Skip(reason)) => StepEnd::Skipped(reason),
        Err(Stopped::Fail(error)) => {
            step.record_failure(&error, unknown.is_some());
            StepEnd::Failed { error, unknown: unknown.map(Box::new), cut: step.waited_for.is_some() }
        }
    }
}

impl Running<'_> {
    async fn through(
        &mut self,
        mut operation: Option<&mut Operation<'_>>,
        broken_scope: Option<String>,
    ) -> Result<(), Stopped> {
        if let Work::EndScope(scope) = self.node.work {
            return self.end_scope(scope, broken_scope).await;
        }
        self.ask_conditions().await?;
        let mut backoff = self.wait_out_the_past().await.map_err(Stopped::Skip)?;
        let mut last_error = None;
        loop {
            if let Err(reason) = self.take_slot().await {
                return Err(last_error.map_or(Stopped::Skip(reason), Stopped::Fail));
            }
            self.attempt += 1;
            self.shared.log.tell(&self.node.path, Some(self.attempt), EventKind::StepStarted);
            crash::point(&self.node.path, "start");
            let result = match (&self.node.work, operation.as_deref_mut()) {
                (Work::Mutate(_), Some(operation)) => operation.attempt(self).await,
                _ => self.local_work().await,
            };
            self.seat.leave();
            let Err(error) = result else { return Ok(()) };
            if error.class() == Class::Throttled {
                self.seat.slow_down();
            }
            match backoff.after(error.class()) {
                Some(delay) if self.wait_to_retry(&error, delay, &backoff).await => last_error = Some(error),
                Some(_) | None => return Err(Stopped::Fail(error)),
            }
        }
    }

    /// Asks each condition once and journals the answers, so that a resumed run takes the same branch.
    async fn ask_conditions(&self) -> Result<(), Stopped> {
        let conditions = &self.node.settings.conditions;
        if conditions.is_empty() {
            return Ok(());
        }
        let mut answers = Map::new();
        let mut refused = None;
        let mut asked = false;
        for condition in conditions {
            let before = self.shared.past[self.index].conditions.get(&condition.text).and_then(Value::as_bool);
            let holds = match before {
                Some(holds) => holds,
                None => self.ask(condition)?,
            };
            asked |= before.is_none();
            answers.insert(condition.text.clone(), holds.into());
            if !holds {
                refused = Some(condition.text.clone());
                break;
            }
        }
        if asked {
            let mut row = StepRow::under_way(&self.node.path, self.generation, self.attempt);
            row.conditions = Some(Value::Object(answers).to_string());
            self.shared.log.write(vec![Record::Step(row)], Vec::new()).await?;
        }
        match refused {
            Some(text) => Err(Stopped::Skip(SkipReason::Condition(text))),
            None => Ok(()),
        }
    }

    fn ask(&self, condition: &Condition) -> StepResult<bool> {
        let source = self.source();
        caught(|| (condition.holds)(&source))
            .map_err(|error| error.context(format!("cannot tell whether `{}` holds", condition.text)))
    }

    /// Waits for what is left of a wait that another process began, and counts on from there. A step that had used up
    /// its tries gets new ones.
    async fn wait_out_the_past(&self) -> Result<Backoff, SkipReason> {
        let (past, retry) = (&self.shared.past[self.index], self.node.settings.retry);
        let Some(before) = &past.retry else { return Ok(Backoff::new(retry)) };
        tokio::select! {
            biased;
            () = self.shared.closed.cancelled() => return Err(self.shared.why_closed()),
            () = tokio::time::sleep(before.remaining(jiff::Timestamp::now())) => {}
        }
        Ok(if past.failed { Backoff::new(retry) } else { Backoff::resumed(retry, before) })
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source(SourceKind::Run(&self.shared.values))
    }

    /// Waits for a slot, unless the run ends meanwhile.
    async fn take_slot(&self) -> Result<(), SkipReason> {
        tokio::select! {
            biased;
            () = self.shared.closed.cancelled() => Err(self.shared.why_closed()),
            () = self.seat.take() => Ok(()),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.node.settings.timeout.map(|limit| Instant::now() + limit)
    }

    pub(super) fn context(&self, deadline: Option<Instant>) -> StepContext {
        StepContext::new(ContextParts {
            path: Arc::clone(&self.node.path),
            attempt: self.attempt,
            cancel: self.shared.cancel.clone(),
            deadline,
            seat: self.seat.clone(),
            reporter: StepReporter { log: Arc::clone(&self.shared.log), path: Arc::clone(&self.node.path) },
        })
    }

    /// Ends a wait at the deadline or when the run is abandoned. What it waits for must bear being dropped.
    pub(super) async fn limited<T>(
        &self,
        deadline: Option<Instant>,
        late: Class,
        work: impl Future<Output = StepResult<T>>,
    ) -> StepResult<T> {
        let abandon = self.shared.cancel.abandon();
        tokio::select! {
            biased;
            result = work => result,
            () = abandon.cancelled() => Err(StepError::cancelled().context("left unfinished")),
            () = sleep_until(deadline) => {
                let limit = self.node.settings.timeout.unwrap_or_default();
                Err(StepError::new(late, format!("not finished within {limit:?}")))
            }
        }
    }

    async fn local_work(&self) -> StepResult<()> {
        let deadline = self.deadline();
        let cx = self.context(deadline);
        let output = match &self.node.work {
            Work::Run(action) => {
                let begun = caught(|| action(cx, &self.source()))?;
                // Half-done local work is not safe to do again by default; who knows better says `Transient` in time.
                Some(self.limited(deadline, Class::Permanent, unpanicking(begun)).await?.into())
            }
            Work::Open(open) => {
                let begun = caught(|| open(cx, &self.source()))?;
                let opened = self.limited(deadline, Class::Permanent, unpanicking(begun)).await?;
                self.shared.values.lives().put(self.index, opened);
                None
            }
            Work::Mutate(_) | Work::EndScope(_) | Work::Barrier => return Err(StepError::bug("not local work")),
        };
        crash::point(&self.node.path, "settled");
        self.finish(Vec::new(), output).await
    }

    /// Makes the end of the step durable; only then do dependants see its output.
    pub(super) async fn finish(&self, mut records: Vec<Record>, output: Option<Arc<str>>) -> StepResult<()> {
        let mut row = StepRow::settled(&self.node.path, self.generation, StepState::Done, self.attempt);
        row.output = output.clone();
        records.push(Record::Step(row));
        self.shared.log.write(records, vec![self.finished(StepState::Done, Vec::new())]).await?;
        crash::point(&self.node.path, "done");
        if let Some(output) = output {
            self.shared.values.set(self.index, output);
        }
        Ok(())
    }

    fn finished(&self, state: StepState, error: Vec<String>) -> Told {
        let elapsed_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let kind = EventKind::StepFinished { state, elapsed_ms, error };
        Told::step(&self.node.path, Some(self.attempt), kind)
    }

    /// Says whether its failure is one that the run can bear: its own, or that of its scope.
    fn is_optional(&self) -> bool {
        let scope_end = self.node.scope.map(|scope| self.shared.node(self.shared.plan.scopes[scope].end));
        self.node.settings.optional || scope_end.is_some_and(|end| end.settings.optional)
    }

    fn record_failure(&self, error: &StepError, unknown: bool) {
        let state = match error.class() {
            _ if unknown => StepState::Unknown,
            Class::Cancelled => StepState::Cancelled,
            _ if self.is_optional() => StepState::Warned,
            _ => StepState::Failed,
        };
        let mut row = StepRow::settled(&self.node.path, self.generation, state, self.attempt);
        row.error = Some(json!(StepTrouble::from(error)).to_string());
        row.retry = self.waited_for.as_ref().map(|retry| json!(retry).to_string());
        self.shared.log.post(vec![Record::Step(row)], vec![self.finished(state, error.chain())]);
    }

    /// Waits before the next try, without a slot. Says whether there should be one.
    async fn wait_to_retry(&mut self, error: &StepError, delay: Duration, backoff: &Backoff) -> bool {
        if self.shared.closed.is_cancelled() {
            return false;
        }
        let due = Instant::now() + delay;
        let retry = backoff.state(error.class(), delay);
        let kind = EventKind::StepRetry { error: error.chain(), class: error.class(), delay_ms: retry.delay_ms };
        let mut row = StepRow::under_way(&self.node.path, self.generation, self.attempt);
        row.retry = Some(json!(retry).to_string());
        self.shared.log.post(vec![Record::Step(row)], vec![Told::step(&self.node.path, Some(self.attempt), kind)]);
        let waited = tokio::select! {
            () = tokio::time::sleep_until(due) => true,
            () = self.shared.closed.cancelled() => false,
        };
        crash::point(&self.node.path, "retry");
        self.waited_for = (!waited).then(|| retry.cut(due.saturating_duration_since(Instant::now())));
        waited
    }

    /// Closes the live values of a scope, the newest first, and makes its end durable if it ended well.
    async fn end_scope(&self, scope: usize, broken: Option<String>) -> Result<(), Stopped> {
        crash::point(&self.node.path, "close");
        let mut first_error = None;
        for &member in self.shared.plan.scopes[scope].members.iter().rev() {
            if !matches!(self.shared.node(member).work, Work::Open(_)) {
                continue;
            }
            let path = &self.shared.node(member).path;
            let closing = unpanicking(self.shared.values.lives().close(member));
            if let Err(error) = self.limited(None, Class::Permanent, closing).await {
                let error = error.context(format!("cannot close `{path}`"));
                tracing::debug!(step = &**path, %error, "closing a live value failed");
                first_error.get_or_insert(error);
            }
        }
        crash::point(&self.node.path, "closed");
        match (first_error, broken) {
            (Some(error), _) => Err(Stopped::Fail(error)),
            (None, Some(member)) => Err(Stopped::Skip(SkipReason::Scope(member))),
            (None, None) => Ok(self.finish(Vec::new(), None).await?),
        }
    }

    pub(super) fn unknown_operation(&self, kind: &str, operation: &str, request: &str) -> UnknownOperation {
        UnknownOperation {
            step: self.node.path.to_string(),
            kind: kind.to_owned(),
            operation: operation.to_owned(),
            request: serde_json::from_str(request).unwrap_or_default(),
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Turns a panic into an error.
pub(super) fn caught<T>(work: impl FnOnce() -> StepResult<T>) -> StepResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// Turns a panic of a future into an error.
pub(super) async fn unpanicking<T>(work: impl Future<Output = StepResult<T>>) -> StepResult<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> StepError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    StepError::bug(format!("the program has a bug: it panicked with `{text}`"))
}
