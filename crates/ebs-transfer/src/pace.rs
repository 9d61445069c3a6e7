//! How many calls are in flight, and how many are begun in a second.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Calls in flight at first. Each of them holds a block in memory. At 100 ms each, which is what the service's documentation reckons
/// with, these are 240 a second, and 640 four seconds later.
const FIRST: usize = 24;

/// Most and fewest calls in flight.
const MOST: usize = 128;
const FEWEST: usize = 4;

/// How much longer than the fastest a call takes that had to wait.
const QUEUED: u32 = 2;

/// Calls in a second: what the service allows for one snapshot, less a margin.
const RATE: u32 = 950;

/// Lets so many calls go at once as the service takes without complaint: one more for each round that went well, half of them
/// when it says that they are too many. Calls that take much longer than the fastest did wait in a queue somewhere, and one more
/// would only wait with them (as TCP Vegas reckons).
///
/// The rate is kept by a clock that runs ahead by one gap for each call. A token bucket of a library would let a burst go,
/// which the service counts against the second.
pub(crate) struct Pace {
    permits: Semaphore,
    state: Mutex<State>,
    gap: Duration,
}

struct State {
    limit: usize,
    /// Permits in flight that are not given again.
    surplus: usize,
    good: usize,
    /// How long the fastest call took.
    fastest: Duration,
    next: Instant,
    halved: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = State { limit: FIRST, surplus: 0, good: 0, fastest: Duration::MAX, next: now, halved: now };
        Self { permits: Semaphore::new(FIRST), state: Mutex::new(state), gap: Duration::from_secs(1) / RATE }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }

    /// Returns how many may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.state().limit
    }

    /// Waits until a call may go. It is in flight until the permit is dropped.
    pub(crate) async fn go(&self) -> Permit<'_> {
        let permit = self.permits.acquire().await.expect("it is never closed");
        self.wait_for_turn().await;
        Permit { permit: Some(permit), pace: self }
    }

    /// Waits until another call may begin.
    pub(crate) async fn wait_for_turn(&self) {
        let turn = {
            let mut state = self.state();
            let turn = state.next.max(Instant::now());
            state.next = turn + self.gap;
            turn
        };
        tokio::time::sleep_until(turn).await;
    }

    /// Hears that a call went well, and how long it took.
    pub(crate) fn went_well(&self, took: Duration) {
        let mut state = self.state();
        state.fastest = state.fastest.min(took);
        if took > state.fastest.saturating_mul(QUEUED) {
            return;
        }
        state.good += 1;
        if state.good >= state.limit && state.limit < MOST {
            (state.limit, state.good) = (state.limit + 1, 0);
            self.permits.add_permits(1);
        }
    }

    /// Hears that the service complained. Complaints of one moment count once.
    pub(crate) fn was_throttled(&self) {
        /// How long the calls that were in flight may go on complaining.
        const MOMENT: Duration = Duration::from_secs(1);
        let mut state = self.state();
        if state.halved.elapsed() < MOMENT && state.limit < FIRST {
            return;
        }
        let fewer = (state.limit / 2).max(FEWEST);
        let idle = self.permits.forget_permits(state.limit - fewer);
        state.surplus += state.limit - fewer - idle;
        (state.limit, state.good, state.halved) = (fewer, 0, Instant::now());
    }
}

/// A call in flight.
pub(crate) struct Permit<'a> {
    permit: Option<SemaphorePermit<'a>>,
    pace: &'a Pace,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        if state.surplus > 0 {
            state.surplus -= 1;
            self.permit.take().expect("it is taken here only").forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_are_begun_in_a_second_than_the_service_takes() {
        let (pace, begun) = (Pace::new(), Instant::now());
        for _ in 0..1900 {
            drop(pace.go().await);
        }
        assert!(begun.elapsed() >= Duration::from_millis(1990), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn fewer_go_at_once_after_a_complaint_and_more_when_all_is_well() {
        let pace = Pace::new();
        pace.was_throttled();
        assert_eq!(pace.permits.available_permits(), 12);
        for _ in 0..13 {
            pace.went_well(Duration::from_millis(100));
        }
        assert_eq!(pace.permits.available_permits(), 13);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_go_at_once_when_they_would_only_wait() {
        let pace = Pace::new();
        pace.went_well(Duration::from_millis(2));
        for _ in 0..1000 {
            pace.went_well(Duration::from_millis(20));
        }
        assert_eq!(pace.limit(), FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_complaint_counts_for_those_in_flight_too() {
        let pace = Pace::new();
        let mut flying = Vec::new();
        for _ in 0..FIRST {
            flying.push(pace.go().await);
        }
        pace.was_throttled();
        assert_eq!(pace.limit(), FIRST / 2);
        flying.clear();
        assert_eq!(pace.permits.available_permits(), FIRST / 2);
    }
}
