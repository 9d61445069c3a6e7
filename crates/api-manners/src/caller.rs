//! One layer of retries, for all calls to the cloud.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::bucket::TokenBucket;
use crate::{Bucket, CallError, Effect, ErrorClass, Failure, Operation, Place, Rate};

/// Hears of each retry, before its wait.
pub type Observer = Arc<dyn Fn(&Retry<'_>) + Send + Sync>;

/// Gets new credentials. Whether that worked is seen by the next attempt.
pub type Refresh = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A call that failed and is made again.
#[derive(Debug)]
pub struct Retry<'a> {
    /// Which call.
    pub operation: &'static str,
    /// Where.
    pub place: &'a Place,
    /// How often it was tried so far.
    pub attempt: u32,
    /// What the last attempt failed with.
    pub failure: &'a Failure,
    /// How long until the next one, apart from the wait for a token.
    pub wait: Duration,
    /// How long since the first one began.
    pub elapsed: Duration,
}

/// How often the cloud may be asked, to begin with, and how soon again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Calls that change nothing.
    pub reads: Rate,
    /// Calls that change something.
    pub writes: Rate,
    /// The longest first wait before a call is tried again; each may be twice as long as the one before, up to 20 seconds.
    pub first_wait: Duration,
}

impl Default for Settings {
    /// Returns the one rate that the EC2 documentation gives as an example for reading, and a careful one for writing, of which it
    /// says only that it is much lower.
    fn default() -> Self {
        Self { reads: Rate::new(20.0, 100), writes: Rate::new(5.0, 10), first_wait: Duration::from_millis(200) }
    }
}

/// How this process behaves towards a cloud: one for all places. Clones share the token buckets.
#[derive(Clone)]
pub struct Manners(Arc<Shared>);

struct Shared {
    settings: Settings,
    observer: Observer,
    buckets: Mutex<HashMap<(Place, &'static str), Arc<TokenBucket>>>,
}

/// Makes the calls to one place.
#[derive(Clone)]
pub struct Caller {
    place: Place,
    manners: Manners,
    refresh: Option<Refresh>,
}

impl Default for Manners {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Manners {
    /// Makes manners whose retries are lines of the log.
    pub fn new(settings: Settings) -> Self {
        Self::observed(settings, Arc::new(log))
    }

    /// Makes manners whose retries are told to somebody.
    pub fn observed(settings: Settings, observer: Observer) -> Self {
        Self(Arc::new(Shared { settings, observer, buckets: Mutex::default() }))
    }

    /// Returns the caller of a place. Callers of one place share its token buckets.
    pub fn caller(&self, place: Place) -> Caller {
        Caller { place, manners: self.clone(), refresh: None }
    }

    fn bucket(&self, place: &Place, bucket: Bucket) -> Option<Arc<TokenBucket>> {
        let (name, rate) = match bucket {
            Bucket::Unmetered => return None,
            Bucket::Reads => ("reads", self.0.settings.reads),
            Bucket::Writes => ("writes", self.0.settings.writes),
            Bucket::Own { name, rate } => (name, rate),
        };
        let mut buckets = self.0.buckets.lock().expect("nothing panics with it");
        Some(Arc::clone(buckets.entry((place.clone(), name)).or_insert_with(|| Arc::new(TokenBucket::new(rate)))))
    }
}

fn log(retry: &Retry<'_>) {
    let Retry { operation, place, attempt, failure, wait, elapsed } = retry;
    tracing::warn!(operation, %place, attempt, ?elapsed, "{failure}; tried again in {wait:.1?}");
}

impl Caller {
    /// Sets what gets new credentials. Without it, credentials that have run out end a call at once; with it they are refreshed
    /// once for each call.
    #[must_use]
    pub fn refreshing(mut self, refresh: Refresh) -> Self {
        self.refresh = Some(refresh);
        self
    }

    /// Returns where its calls go.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a call, again and again until it works, fails for good, or its time is over.
    ///
    /// - Throttling and a request that never left are tried again for every call, a lost answer or a failing server for those
    ///   that may be repeated. An [`Effect::Once`] that may have happened is [`ErrorClass::UnknownOutcome`] at once.
    /// - No attempt begins after `deadline`. At the deadline or a cancel, a call that reads is dropped; one that changes
    ///   something is in flight until it answers or its attempt's own limit is over, since dropping it would lose what it made.
    /// - Tokens are waited for before each attempt.
    ///
    /// # Errors
    ///
    /// Fails with the last attempt's failure, and how often it was tried.
    pub async fn call<T, F>(
        &self,
        operation: &Operation,
        deadline: Instant,
        cancel: &CancellationToken,
        attempt: impl FnMut() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let bucket = self.manners.bucket(&self.place, operation.bucket);
        let call = Call {
            caller: self,
            operation,
            bucket,
            deadline,
            cancel,
            begun: Instant::now(),
            attempts: 0,
            backoff: Backoff::new(self.manners.0.settings.first_wait),
            refreshed: false,
        };
        call.run(attempt).await
    }
}

/// A call on its way.
struct Call<'a> {
    caller: &'a Caller,
    operation: &'a Operation,
    bucket: Option<Arc<TokenBucket>>,
    deadline: Instant,
    cancel: &'a CancellationToken,
    begun: Instant,
    attempts: u32,
    backoff: Backoff,
    refreshed: bool,
}

/// What is done about a failure.
enum Next {
    Again,
    AfterRefresh(Refresh),
    GiveUp,
}

impl Call<'_> {
    async fn run<T, F>(mut self, mut attempt: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut last = None;
        loop {
            self.token(&last).await?;
            self.attempts += 1;
            let failure = match self.attempt(attempt()).await? {
                Ok(answer) => {
                    self.bucket.iter().for_each(|bucket| bucket.went_well());
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if failure.class() == ErrorClass::Throttled {
                self.bucket.iter().for_each(|bucket| bucket.was_throttled());
            }
            last = Some(self.next_try(failure).await?);
        }
    }

    /// Waits for a token.
    async fn token(&self, last: &Option<Failure>) -> Result<(), CallError> {
        let take = async {
            if let Some(bucket) = &self.bucket {
                bucket.take().await;
            }
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(self.cancelled()),
            () = tokio::time::sleep_until(self.deadline) => Err(match last {
                Some(failure) => self.failed(failure.clone()),
                None => self.crowded(),
            }),
            () = take => Ok(()),
        }
    }

    /// Makes one attempt, within its limit.
    async fn attempt<T>(
        &self,
        attempt: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Result<T, Failure>, CallError> {
        let own_end = Instant::now() + self.operation.attempt_limit;
        let reads = self.operation.effect == Effect::Reads;
        let end = if reads { own_end.min(self.deadline) } else { own_end };
        tokio::select! {
            biased;
            () = self.cancel.cancelled(), if reads => Err(self.cancelled()),
            outcome = attempt => Ok(outcome),
            () = tokio::time::sleep_until(end) => Ok(Err(Failure::lost("no answer came in time"))),
        }
    }

    /// Waits for the next try, or gives up. Returns the failure, for whoever has to tell of it later.
    async fn next_try(&mut self, failure: Failure) -> Result<Failure, CallError> {
        let refresh = match self.next(&failure) {
            Next::GiveUp => return Err(self.failed(failure)),
            Next::Again => None,
            Next::AfterRefresh(refresh) => Some(refresh),
        };
        let wait = if refresh.is_some() { Duration::ZERO } else { self.backoff.next() };
        if Instant::now() + wait >= self.deadline {
            return Err(self.failed(failure));
        }
        (self.caller.manners.0.observer)(&Retry {
            operation: self.operation.name,
            place: &self.caller.place,
            attempt: self.attempts,
            failure: &failure,
            wait,
            elapsed: self.begun.elapsed(),
        });
        let pause = async {
            match refresh {
                Some(refresh) => refresh().await,
                None => tokio::time::sleep(wait).await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(self.cancelled()),
            () = pause => Ok(failure),
            () = tokio::time::sleep_until(self.deadline) => Err(self.failed(failure)),
        }
    }

    fn next(&mut self, failure: &Failure) -> Next {
        if !self.operation.retries {
            return Next::GiveUp;
        }
        let class = failure.class();
        let in_window =
            |(tolerated, window): &(ErrorClass, Duration)| *tolerated == class && self.begun.elapsed() < *window;
        match class {
            ErrorClass::Throttled => Next::Again,
            ErrorClass::Passing | ErrorClass::UnknownOutcome => {
                if self.operation.effect != Effect::Once || failure.is_undone() { Next::Again } else { Next::GiveUp }
            }
            ErrorClass::Expired if !self.refreshed => {
                self.refreshed = true;
                self.caller.refresh.clone().map_or(Next::GiveUp, Next::AfterRefresh)
            }
            ErrorClass::NotYetVisible
            | ErrorClass::InUse
            | ErrorClass::Expired
            | ErrorClass::Denied
            | ErrorClass::Limit
            | ErrorClass::Refused => {
                if self.operation.windows.iter().any(in_window) {
                    Next::Again
                } else {
                    Next::GiveUp
                }
            }
        }
    }

    fn failed(&self, failure: Failure) -> CallError {
        CallError::Failed {
            operation: self.operation.name,
            place: self.caller.place.clone(),
            class: self.class(&failure),
            failure,
            attempts: self.attempts,
            elapsed: self.begun.elapsed(),
        }
    }

    /// Returns the class of a failure of this call. Where nothing is changed, nothing is unknown; where something may have been
    /// changed, that it may be is what counts.
    fn class(&self, failure: &Failure) -> ErrorClass {
        match (self.operation.effect, failure.class()) {
            (Effect::Reads, ErrorClass::UnknownOutcome) => ErrorClass::Passing,
            (Effect::Repeatable | Effect::Once, ErrorClass::Passing) if !failure.is_undone() => {
                ErrorClass::UnknownOutcome
            }
            (_, class) => class,
        }
    }

    fn crowded(&self) -> CallError {
        CallError::Crowded {
            operation: self.operation.name,
            place: self.caller.place.clone(),
            elapsed: self.begun.elapsed(),
        }
    }

    fn cancelled(&self) -> CallError {
        CallError::Cancelled { operation: self.operation.name, place: self.caller.place.clone() }
    }
}
