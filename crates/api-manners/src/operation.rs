use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ErrorClass, Rate};

/// One region as one account sees it: what the cloud counts calls by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Whose calls they are; `None` until that is known.
    pub account: Option<Arc<str>>,
    /// Where they go.
    pub region: Arc<str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region `{}`", self.region)?;
        match &self.account {
            Some(account) => write!(f, " of account {account}"),
            None => Ok(()),
        }
    }
}

/// What a call does to the world, which decides whether it may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// Something that is the same when done twice, by its nature or by a token.
    Repeatable,
    /// Something that done twice is there twice. Not repeated unless it is certain that it did not happen.
    Once,
}

/// Which token bucket a call takes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bucket {
    /// All calls that change nothing.
    Reads,
    /// All calls that change something.
    Writes,
    /// None: their pace is kept elsewhere.
    Unmetered,
    /// One that a cloud keeps for calls with a quota of their own.
    Own {
        /// What it is called.
        name: &'static str,
        /// What it begins with. Who takes from it first says so for all.
        rate: Rate,
    },
}

/// A call as the API knows it: its name, and how it may be made.
#[derive(Clone, Debug)]
pub struct Operation {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    pub(crate) bucket: Bucket,
    pub(crate) attempt_limit: Duration,
    pub(crate) retries: bool,
    pub(crate) windows: Vec<(ErrorClass, Duration)>,
}

impl Operation {
    /// How long one attempt may take.
    const ATTEMPT: Duration = Duration::from_secs(30);

    /// How long something that was just made may be unknown to another part of the service.
    const NEW: Duration = Duration::from_secs(180);

    /// Describes a call that changes nothing.
    pub fn reads(name: &'static str) -> Self {
        Self::new(name, Effect::Reads, Bucket::Reads)
    }

    /// Describes a change that is the same when done twice.
    pub fn repeatable(name: &'static str) -> Self {
        Self::new(name, Effect::Repeatable, Bucket::Writes)
    }

    /// Describes a change that done twice is there twice.
    pub fn once(name: &'static str) -> Self {
        Self::new(name, Effect::Once, Bucket::Writes)
    }

    fn new(name: &'static str, effect: Effect, bucket: Bucket) -> Self {
        Self { name, effect, bucket, attempt_limit: Self::ATTEMPT, retries: true, windows: Vec::new() }
    }

    /// Sets the bucket that it takes from.
    #[must_use]
    pub fn bucket(mut self, bucket: Bucket) -> Self {
        self.bucket = bucket;
        self
    }

    /// Sets how long one attempt may take, after which its outcome is unknown.
    #[must_use]
    pub fn attempt_limit(mut self, limit: Duration) -> Self {
        self.attempt_limit = limit;
        self
    }

    /// Says that each call is one attempt, since whoever makes it retries by rules of its own.
    #[must_use]
    pub fn unrepeated(mut self) -> Self {
        self.retries = false;
        self
    }

    /// Says that the call names something that was just made, and that this part of the service may not know yet.
    #[must_use]
    pub fn on_new_id(self) -> Self {
        self.tolerating(ErrorClass::NotYetVisible, Self::NEW)
    }

    /// Says that a class of failure passes by itself, within so long from the call's beginning: what was just made is not
    /// visible, what was just released is in use, a new permission is not known.
    #[must_use]
    pub fn tolerating(mut self, class: ErrorClass, window: Duration) -> Self {
        self.windows.push((class, window));
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what it does to the world.
    pub fn effect(&self) -> Effect {
        self.effect
    }
}
