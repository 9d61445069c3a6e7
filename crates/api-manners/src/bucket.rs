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

/// The slowest a bucket becomes, as a part of its rate. Those who are refused wait longer and longer by themselves, so that a
/// lower one would only keep the others from going on once the service lets them.
const FLOOR: f64 = 0.1;

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    /// Counts how many are let through in so long, from as many as want to.
    async fn through(bucket: &TokenBucket, time: Duration) -> u32 {
        let end = Instant::now() + time;
        let mut count = 0;
        while tokio::time::timeout_at(end, bucket.take()).await.is_ok() {
            count += 1;
        }
        count
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_bucket_lets_a_burst_through_and_then_its_rate() {
        let bucket = TokenBucket::new(Rate::new(20.0, 100));
        assert_eq!(through(&bucket, Duration::from_millis(1)).await, 100);
        let count = through(&bucket, seconds(10)).await;
        assert!((199..=201).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_fills_again_in_a_quiet_time_but_does_not_overflow() {
        let bucket = TokenBucket::new(Rate::new(5.0, 10));
        through(&bucket, Duration::from_millis(1)).await;
        tokio::time::advance(seconds(3600)).await;
        assert_eq!(through(&bucket, Duration::from_millis(1)).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_complaint_empties_the_bucket_and_halves_its_rate() {
        let bucket = TokenBucket::new(Rate::new(20.0, 100));
        bucket.was_throttled();
        let count = through(&bucket, seconds(10)).await;
        assert!((99..=101).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn complaints_of_one_moment_count_once() {
        let bucket = TokenBucket::new(Rate::new(20.0, 100));
        for _ in 0..50 {
            bucket.was_throttled();
        }
        assert_eq!(bucket.state().per_second, 10.0);
        tokio::time::advance(seconds(2)).await;
        bucket.was_throttled();
        assert_eq!(bucket.state().per_second, 5.0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_number_of_complaints_stops_a_bucket() {
        let bucket = TokenBucket::new(Rate::new(20.0, 100));
        for _ in 0..100 {
            bucket.was_throttled();
            tokio::time::advance(seconds(2)).await;
        }
        bucket.was_throttled();
        assert_eq!(through(&bucket, Duration::from_millis(1001)).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenth_of_the_rate_comes_back_in_a_minute_of_success() {
        let bucket = TokenBucket::new(Rate::new(20.0, 100));
        bucket.was_throttled();
        for _ in 0..60 {
            tokio::time::advance(seconds(1)).await;
            bucket.went_well();
        }
        let rate = bucket.state().per_second;
        assert!((11.9..=12.1).contains(&rate), "{rate}");
        for _ in 0..1000 {
            tokio::time::advance(seconds(6)).await;
            bucket.went_well();
        }
        assert_eq!(bucket.state().per_second, 20.0);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_already_are_held_back_when_the_rate_falls() {
        let bucket = TokenBucket::new(Rate::new(10.0, 1));
        bucket.take().await;
        let (begun, takes) = (Instant::now(), async { tokio::join!(bucket.take(), bucket.take(), bucket.take()) });
        tokio::join!(takes, async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            bucket.was_throttled();
        });
        // Half of one came at 10 a second, the other two and a half at 5.
        let elapsed = begun.elapsed().as_millis();
        assert!((549..=553).contains(&elapsed), "{elapsed}");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_given_in_the_order_in_which_they_were_asked_for() {
        let bucket = Arc::new(TokenBucket::new(Rate::new(5.0, 1)));
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (bucket, sender) = (Arc::clone(&bucket), sender.clone());
            tasks.spawn(async move {
                bucket.take().await;
                sender.send(number).unwrap();
            });
        }
        tasks.join_all().await;
        for number in 0..20 {
            assert_eq!(order.recv().await, Some(number));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_the_token_to_the_next() {
        let bucket = TokenBucket::new(Rate::new(1.0, 1));
        bucket.take().await;
        for _ in 0..10 {
            assert!(tokio::time::timeout(Duration::ZERO, bucket.take()).await.is_err());
        }
        let begun = Instant::now();
        bucket.take().await;
        assert!(begun.elapsed() <= Duration::from_millis(1001), "{:?}", begun.elapsed());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn never_more_than_the_burst_and_the_rate(
            per_second in 1.0..50.0f64,
            burst in 1..50u32,
            steps in proptest::collection::vec((0..4u8, 1..3000u64), 1..20),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let bucket = TokenBucket::new(Rate::new(per_second, burst));
                let (begun, mut count) = (Instant::now(), 0);
                for (what, time) in steps {
                    match what {
                        0 => bucket.was_throttled(),
                        1 => bucket.went_well(),
                        2 => tokio::time::advance(Duration::from_millis(time)).await,
                        _ => count += through(&bucket, Duration::from_millis(time)).await,
                    }
                    let most = f64::from(burst) + begun.elapsed().as_secs_f64() * per_second + 1.0;
                    assert!(f64::from(count) <= most, "{count} of {most}");
                }
            });
        }
    }
}
