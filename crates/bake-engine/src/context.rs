//! What a running step knows and can ask for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cancel::Cancel;
use crate::error::{StepError, StepResult};
use crate::event::{EventKind, StepReporter};
use crate::slot::Seat;

/// What a step has at hand: its name, the cancel, a way to wait, and a way to report.
///
/// Owned by the step (`Clone`, no lifetime). [`until`](StepContext::until) and [`pause`](StepContext::pause) end early
/// with `Class::Cancelled`, and hold no slot while they wait.
#[derive(Clone)]
pub struct StepContext {
    inner: Arc<Inner>,
}

struct Inner {
    path: Arc<str>,
    attempt: u32,
    cancel: Cancel,
    stop: CancellationToken,
    deadline: Option<Instant>,
    seat: Option<Seat>,
    reporter: Option<StepReporter>,
}

/// What the engine puts into a context.
pub(crate) struct ContextParts {
    pub(crate) path: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) cancel: Cancel,
    pub(crate) deadline: Option<Instant>,
    pub(crate) seat: Seat,
    pub(crate) reporter: StepReporter,
}

impl StepContext {
    pub(crate) fn new(parts: ContextParts) -> StepContext {
        let ContextParts { path, attempt, cancel, deadline, seat, reporter } = parts;
        let (stop, seat, reporter) = (cancel.stop(), Some(seat), Some(reporter));
        StepContext { inner: Arc::new(Inner { path, attempt, cancel, stop, deadline, seat, reporter }) }
    }

    /// Makes a context outside any run, for tests of plugins: no slot, no limit, and reports go nowhere.
    pub fn detached(path: &str, cancel: &Cancel) -> StepContext {
        let inner = Inner {
            path: path.into(),
            attempt: 1,
            cancel: cancel.clone(),
            stop: cancel.stop(),
            deadline: None,
            seat: None,
            reporter: None,
        };
        StepContext { inner: Arc::new(inner) }
    }

    /// Returns the path of the step.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns which try this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// Returns the time until this try ends, or `None` if it has no limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns how the run is cancelled, to hand on to a program or a library.
    pub fn cancel(&self) -> &Cancel {
        &self.inner.cancel
    }

    /// Ends when the run is cancelled: for `select!` in local work.
    pub async fn cancelled(&self) {
        self.inner.stop.cancelled().await;
    }

    /// Fails if the run is cancelled.
    pub fn stop_if_cancelled(&self) -> StepResult<()> {
        if self.inner.stop.is_cancelled() { Err(StepError::cancelled()) } else { Ok(()) }
    }

    /// Waits without holding a slot.
    pub async fn pause(&self, time: Duration) -> StepResult<()> {
        self.without_slot(tokio::time::sleep(time)).await
    }

    /// Waits for something that others do, without holding a slot.
    pub async fn without_slot<T>(&self, waiting: impl Future<Output = T>) -> StepResult<T> {
        let had_slot = self.inner.seat.as_ref().is_some_and(Seat::leave);
        let outcome = tokio::select! {
            outcome = waiting => outcome,
            // What a step does now is clean up, which should not wait in a queue.
            () = self.inner.stop.cancelled() => return Err(StepError::cancelled()),
        };
        if let (true, Some(seat)) = (had_slot, &self.inner.seat) {
            seat.take().await;
        }
        Ok(outcome)
    }

    /// Asks `probe` again and again until it gives something. How long is the step's `timeout`.
    pub async fn until<T, F>(&self, pace: Duration, mut probe: impl FnMut() -> F) -> StepResult<T>
    where
        F: Future<Output = StepResult<Option<T>>>,
    {
        loop {
            self.stop_if_cancelled()?;
            if let Some(found) = probe().await? {
                return Ok(found);
            }
            self.pause(pace).await?;
        }
    }

    /// Reports how far the step is, such as `(4096, Some(8192), "bytes")`.
    pub fn progress(&self, done: u64, total: Option<u64>, unit: &str) {
        self.report(|| EventKind::StepProgress { done, total, unit: unit.to_owned() });
    }

    /// Reports one line. Lines go to those who listen, not into the journal.
    pub fn log(&self, line: &str) {
        self.report(|| EventKind::StepLog { line: line.to_owned() });
    }

    fn report(&self, kind: impl FnOnce() -> EventKind) {
        if let Some(reporter) = &self.inner.reporter {
            reporter.send(self.inner.attempt, kind());
        }
    }
}
