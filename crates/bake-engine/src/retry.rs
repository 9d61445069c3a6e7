//! When a failed step is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Class;
use crate::id::random;

/// In a row. A cloud that throttles for half an hour is not going to stop; a person should look.
const MOST_THROTTLES: u32 = 50;

/// What is in use is let go of more slowly than a network mends itself.
const IN_USE_ATTEMPTS: u32 = 10;

/// How often and how slowly a step is tried again: full jitter below a ceiling that doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub attempts: u32,
    /// The ceiling of the first delay.
    pub base: Duration,
    /// The ceiling that no delay goes over.
    pub cap: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 6, base: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl Retry {
    /// Tries once.
    pub fn never() -> Retry {
        Retry { attempts: 1, ..Retry::default() }
    }

    /// Tries `attempts` times in all.
    pub fn attempts(attempts: u32) -> Retry {
        Retry { attempts: attempts.max(1), ..Retry::default() }
    }

    fn delay(&self, failures: u32) -> Duration {
        let ceiling = self.base.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(self.cap);
        ceiling.mul_f64((random() >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// What a step waits for, and how often it failed before: what the journal keeps of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryState {
    pub(crate) class: Class,
    pub(crate) delay_ms: u64,
    pub(crate) not_before: jiff::Timestamp,
    failures: u32,
    throttles: u32,
}

impl RetryState {
    /// Returns how long there is still to wait. A clock that was put back does not make that longer than it was.
    pub(crate) fn remaining(&self, now: jiff::Timestamp) -> Duration {
        let until_due = Duration::try_from(self.not_before.duration_since(now)).unwrap_or(Duration::ZERO);
        until_due.min(Duration::from_millis(self.delay_ms))
    }

    /// Returns the same with the rest of the wait.
    pub(crate) fn cut(self, remaining: Duration) -> RetryState {
        RetryState { delay_ms: millis(remaining), ..self }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Counts the failures of one step.
#[derive(Debug)]
pub(crate) struct Backoff {
    retry: Retry,
    failures: u32,
    throttles: u32,
}

impl Backoff {
    pub(crate) fn new(retry: Retry) -> Backoff {
        Backoff { retry, failures: 0, throttles: 0 }
    }

    /// Goes on counting where another process ended.
    pub(crate) fn resumed(retry: Retry, before: &RetryState) -> Backoff {
        Backoff { retry, failures: before.failures, throttles: before.throttles }
    }

    /// Returns what the journal keeps of a wait that begins now.
    pub(crate) fn state(&self, class: Class, delay: Duration) -> RetryState {
        let not_before = jiff::Timestamp::now().saturating_add(delay).unwrap_or(jiff::Timestamp::MAX);
        RetryState { class, delay_ms: millis(delay), not_before, failures: self.failures, throttles: self.throttles }
    }

    /// Returns how long to wait before the next try, or `None` if there should be none.
    pub(crate) fn after(&mut self, class: Class) -> Option<Duration> {
        let most = match class {
            Class::Throttled => {
                self.throttles += 1;
                let again = self.retry.attempts > 1 && self.throttles <= MOST_THROTTLES;
                return again.then(|| self.retry.delay(self.throttles));
            }
            Class::Transient | Class::Unknown => self.retry.attempts,
            Class::InUse => match self.retry.attempts {
                1 => 1,
                attempts => attempts.max(IN_USE_ATTEMPTS),
            },
            Class::Permanent | Class::Cancelled | Class::Bug => return None,
        };
        self.throttles = 0;
        self.failures += 1;
        (self.failures < most).then(|| self.retry.delay(self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_the_first_try() {
        let mut backoff = Backoff::new(Retry::attempts(3));
        let tries = 1 + std::iter::from_fn(|| backoff.after(Class::Transient)).count();
        assert_eq!(tries, 3);
    }

    #[test]
    fn throttles_use_up_no_attempt() {
        let mut backoff = Backoff::new(Retry::attempts(2));
        assert!((0..20).all(|_| backoff.after(Class::Throttled).is_some()));
        assert!(backoff.after(Class::Transient).is_some());
        assert!(backoff.after(Class::Transient).is_none());
    }

    #[test]
    fn some_classes_are_never_tried_again() {
        for class in [Class::Permanent, Class::Cancelled, Class::Bug] {
            assert!(Backoff::new(Retry::default()).after(class).is_none());
        }
        assert!(Backoff::new(Retry::never()).after(Class::InUse).is_none());
    }

    #[test]
    fn a_wait_goes_on_with_what_is_left_of_it_and_no_clock_makes_it_longer() {
        let hour = Duration::from_secs(3600);
        let state = Backoff::new(Retry::default()).state(Class::Transient, hour);
        let begun = state.not_before - hour;
        assert_eq!(state.remaining(begun), hour);
        assert_eq!(state.remaining(begun + Duration::from_secs(600)), Duration::from_secs(3000));
        assert_eq!(state.remaining(begun + 2 * hour), Duration::ZERO);
        assert_eq!(state.remaining(begun - 1000 * hour), hour, "the clock was put back");
        let cut = state.cut(Duration::from_secs(60));
        assert_eq!(cut.remaining(begun - 1000 * hour), Duration::from_secs(60));
    }

    #[test]
    fn tries_are_counted_across_processes() {
        let retry = Retry::attempts(3);
        let mut first = Backoff::new(retry);
        let delay = first.after(Class::Transient).unwrap();
        let mut second = Backoff::resumed(retry, &first.state(Class::Transient, delay));
        assert!(second.after(Class::Transient).is_some());
        assert!(second.after(Class::Transient).is_none());
    }

    #[test]
    fn delays_stay_below_the_cap() {
        let retry = Retry::default();
        assert!((1..200).all(|failures| retry.delay(failures) <= retry.cap));
    }
}
