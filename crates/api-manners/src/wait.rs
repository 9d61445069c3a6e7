//! One wait: what was seen so far, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{CallError, Place};

/// What a look says to whoever waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It is as it should be.
    Done(T),
    /// It is on its way: what was seen.
    NotYet(String),
    /// It will never be: the reason.
    Failed(String),
}

/// How long somebody waits, and how sure they want to be.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub(crate) deadline: Instant,
    pub(crate) agreeing: u32,
    pub(crate) visible_within: Option<Duration>,
}

impl Wait {
    /// How long something that was just made may not be there yet.
    const NEW: Duration = Duration::from_secs(180);

    /// Describes a wait for something that was just made: it may be missing for three minutes, and one answer is enough.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, agreeing: 1, visible_within: Some(Self::NEW) }
    }

    /// Sets how many looks in a row have to say the same before it is believed: two answers may be of two endpoints, of which one
    /// is late.
    #[must_use]
    pub fn agreeing(mut self, looks: u32) -> Self {
        self.agreeing = looks.max(1);
        self
    }

    /// Sets how long it may take to be there at all, after which it is not waited for any more. `None` is as long as the wait.
    #[must_use]
    pub fn visible_within(mut self, limit: Option<Duration>) -> Self {
        self.visible_within = limit;
        self
    }
}

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// What kind of thing, as messages call it.
    pub kind: &'static str,
    /// Which.
    pub id: String,
    /// Where.
    pub place: Place,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` in {}", self.kind, self.id, self.place)
    }
}

/// A wait that did not end well.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WaitError {
    /// It will never be.
    #[error("{what} failed: {reason}")]
    Failed {
        /// What was waited for.
        what: Awaited,
        /// Why.
        reason: String,
    },
    /// It did not become visible.
    #[error("{what} is not there after {waited:.0?}")]
    NeverThere {
        /// What was waited for.
        what: Awaited,
        /// How long it was looked for.
        waited: Duration,
    },
    /// It was not in time.
    #[error("{what} was not ready after {waited:.0?}: {seen}")]
    OutOfTime {
        /// What was waited for.
        what: Awaited,
        /// How long.
        waited: Duration,
        /// What was seen of it last.
        seen: String,
    },
    /// Looking does not work.
    #[error("cannot see whether {what} is ready")]
    Blind {
        /// What was waited for.
        what: Awaited,
        /// Why not.
        #[source]
        source: Arc<CallError>,
    },
    /// What looks for all has ended.
    #[error("nobody looks any more whether {what} is ready")]
    Abandoned {
        /// What was waited for.
        what: Awaited,
    },
    /// It is not wanted any more.
    #[error("the wait for {what} was cancelled")]
    Cancelled {
        /// What was waited for.
        what: Awaited,
    },
}

/// What one wait has seen so far.
pub(crate) struct Progress<F> {
    what: Awaited,
    wait: Wait,
    until: F,
    begun: Instant,
    /// What was seen last, for whoever runs out of time.
    seen: String,
    /// What the last look failed with, if it failed.
    trouble: Option<Arc<CallError>>,
    was_there: bool,
    /// How many of the last looks said the same.
    agreed: Agreed,
}

/// What the last looks agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreed {
    Nothing,
    Done(u32),
    Failed(u32),
}

/// What comes after an answer.
pub(crate) enum Step<T> {
    GoOn,
    Done(Result<T, WaitError>),
}

impl<F> Progress<F> {
    pub(crate) fn new(what: Awaited, wait: Wait, until: F) -> Self {
        Self {
            what,
            wait,
            until,
            begun: Instant::now(),
            seen: "it was never looked at".into(),
            trouble: None,
            was_there: false,
            agreed: Agreed::Nothing,
        }
    }

    /// Takes what a look says.
    pub(crate) fn answer<State, T>(&mut self, state: Option<&State>) -> Step<T>
    where
        F: FnMut(Option<&State>) -> Verdict<T>,
    {
        self.trouble = None;
        self.was_there |= state.is_some();
        let outcome = match (self.until)(state) {
            Verdict::Done(value) => Ok(value),
            Verdict::Failed(reason) => Err(reason),
            Verdict::NotYet(seen) => {
                self.seen = seen;
                self.agreed = Agreed::Nothing;
                return self.missing();
            }
        };
        let looks = match (self.agreed, &outcome) {
            (Agreed::Done(looks), Ok(_)) | (Agreed::Failed(looks), Err(_)) => looks + 1,
            _ => 1,
        };
        self.agreed = if outcome.is_ok() { Agreed::Done(looks) } else { Agreed::Failed(looks) };
        if looks >= self.wait.agreeing {
            return Step::Done(outcome.map_err(|reason| self.failed(reason)));
        }
        self.seen = match outcome {
            Ok(_) => format!("it was ready in {looks} of {} looks", self.wait.agreeing),
            Err(reason) => reason,
        };
        Step::GoOn
    }

    /// Gives up what was not there for too long.
    fn missing<T>(&self) -> Step<T> {
        let waited = self.begun.elapsed();
        if self.was_there || self.wait.visible_within.is_none_or(|limit| waited < limit) {
            return Step::GoOn;
        }
        Step::Done(Err(WaitError::NeverThere { what: self.what.clone(), waited }))
    }

    /// Takes that a look failed.
    pub(crate) fn trouble(&mut self, error: Arc<CallError>) {
        self.trouble = Some(error);
    }

    fn failed(&self, reason: String) -> WaitError {
        WaitError::Failed { what: self.what.clone(), reason }
    }

    pub(crate) fn out_of_time(self) -> WaitError {
        let seen = match self.trouble {
            Some(error) => format!("{}, and then {error}", self.seen),
            None => self.seen,
        };
        WaitError::OutOfTime { what: self.what, waited: self.begun.elapsed(), seen }
    }

    pub(crate) fn fatal(self, source: Arc<CallError>) -> WaitError {
        WaitError::Blind { what: self.what, source }
    }

    pub(crate) fn abandoned(self) -> WaitError {
        WaitError::Abandoned { what: self.what }
    }

    pub(crate) fn cancelled(self) -> WaitError {
        WaitError::Cancelled { what: self.what }
    }
}
