//! When a failed step is tried again.

use std::time::Duration;

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
    fn delays_stay_below_the_cap() {
        let retry = Retry::default();
        assert!((1..200).all(|failures| retry.delay(failures) <= retry.cap));
    }
}
