//! Token buckets whose rate follows what the service says.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// How many calls a bucket lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls in a second.
    pub per_second: f64,
    /// Calls at once, after a quiet time.
    pub burst: u32,
}

impl Rate {
    /// Returns a rate.
    pub const fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst }
    }
}

/// Complaints of one moment are about one moment's rate, and count once.
const MOMENT: Duration = Duration::from_secs(1);

/// The slowest a bucket becomes, as a part of its rate: without an end to it, recovery would take hours.
const FLOOR: f64 = 1.0 / 50.0;

/// How much of the full rate comes back with a success, and how far apart two such successes are: a tenth in a quiet minute.
const RECOVERY: f64 = 0.01;
const RECOVERY_STEP: Duration = Duration::from_secs(6);

/// A token bucket that halves its rate when the service complains and recovers slowly while calls go well.
///
/// Not `governor`: the quota of its limiters is fixed when they are made, and it waits by a clock that is not tokio's. Callers
/// are numbered as they come and let through in that order, so that a rate that falls holds back those who wait already.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    full: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    per_second: f64,
    /// Numbers given to callers.
    issued: u64,
    /// The number up to which callers may go. It runs ahead of `issued` by the burst at most.
    released: f64,
    counted: Instant,
    halved: Option<Instant>,
    raised: Instant,
}

/// A caller's number. Dropped before its turn it goes to whoever is next.
struct Turn<'a> {
    bucket: &'a TokenBucket,
    number: u64,
    taken: bool,
}

impl TokenBucket {
    pub(crate) fn new(full: Rate) -> Self {
        let now = Instant::now();
        let full = Rate { per_second: full.per_second.max(0.01), burst: full.burst.max(1) };
        let state = State {
            per_second: full.per_second,
            issued: 0,
            released: f64::from(full.burst),
            counted: now,
            halved: None,
            raised: now,
        };
        Self { full, state: Mutex::new(state) }
    }

    /// Waits for a token.
    pub(crate) async fn take(&self) {
        let mut turn = self.turn();
        while let Some(wait) = turn.wait() {
            tokio::time::sleep(wait).await;
        }
        turn.taken = true;
    }

    /// Hears that a call went well.
    pub(crate) fn went_well(&self) {
        let mut state = self.state();
        if state.per_second < self.full.per_second && state.raised.elapsed() >= RECOVERY_STEP {
            state.count(self.full);
            state.per_second = (state.per_second + self.full.per_second * RECOVERY).min(self.full.per_second);
            state.raised = Instant::now();
        }
    }

    /// Hears that the service complained: nothing is left in the bucket, and it fills half as fast.
    pub(crate) fn was_throttled(&self) {
        let mut state = self.state();
        state.count(self.full);
        state.released = state.released.min(state.issued as f64);
        if state.halved.is_some_and(|halved| halved.elapsed() < MOMENT) {
            return;
        }
        let now = Instant::now();
        state.per_second = (state.per_second / 2.0).max(self.full.per_second * FLOOR);
        (state.halved, state.raised) = (Some(now), now);
    }

    fn turn(&self) -> Turn<'_> {
        let mut state = self.state();
        state.count(self.full);
        state.issued += 1;
        Turn { bucket: self, number: state.issued, taken: false }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }
}

impl State {
    /// Releases what has come since the last time.
    fn count(&mut self, full: Rate) {
        let now = Instant::now();
        let came = (now - self.counted).as_secs_f64() * self.per_second;
        self.released = (self.released + came).min(self.issued as f64 + f64::from(full.burst));
        self.counted = now;
    }
}

impl Turn<'_> {
    /// Returns how long it is until this turn, or `None` when it has come.
    fn wait(&self) -> Option<Duration> {
        let mut state = self.bucket.state();
        state.count(self.bucket.full);
        let missing = self.number as f64 - state.released;
        // Timers count whole milliseconds, and what is missing after one is less than a thousandth of a call.
        (missing > 1e-3).then(|| Duration::from_secs_f64(missing / state.per_second))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.bucket.state().released += 1.0;
        }
    }
}
