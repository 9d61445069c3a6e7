//! How a call is repeated: how soon, for how long, and for which failures.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::time::Instant;

use crate::api::{ApiError, ErrorClass};

/// How patient a transfer is.
#[derive(Clone, Debug)]
pub struct Patience {
    /// The first wait before a call is repeated; later ones are longer, and all are random.
    pub shortest: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// How long one call is repeated.
    pub budget: Duration,
    /// How long something new may be unknown: a snapshot that was just begun, or that was just completed.
    pub new: Duration,
    /// How long the service may take to check a complete snapshot.
    pub completion: Duration,
    /// How soon the state is looked at first; later looks are further apart.
    pub pace: Duration,
}

impl Default for Patience {
    /// What the service's documentation and its users found out.
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(100),
            longest: Duration::from_secs(20),
            budget: Duration::from_secs(300),
            new: Duration::from_secs(180),
            completion: Duration::from_secs(15 * 60),
            pace: Duration::from_secs(2),
        }
    }
}

/// The tries of one call.
pub(crate) struct Tries {
    waits: backon::ExponentialBackoff,
    begun: Instant,
    end: Instant,
    new_until: Instant,
    pub(crate) count: u32,
}

impl Patience {
    /// Begins the tries of a call on something that is this old.
    pub(crate) fn tries(&self, age: Duration) -> Tries {
        let builder = ExponentialBuilder::new().with_min_delay(self.shortest).with_max_delay(self.longest);
        let begun = Instant::now();
        let new_until = begun + self.new.saturating_sub(age);
        let waits = builder.with_jitter().without_max_times().build();
        Tries { waits, begun, end: begun + self.budget, new_until, count: 0 }
    }
}

impl Tries {
    /// Returns how long to wait before the next try; `None` if there is none.
    pub(crate) fn next(&mut self, error: &ApiError) -> Option<Duration> {
        /// Tries of what is damaged on its way: more would hide a broken machine.
        const DAMAGED: u32 = 3;
        self.count += 1;
        let now = Instant::now();
        let again = match error.class {
            ErrorClass::Throttled | ErrorClass::Passing => now < self.end,
            ErrorClass::Absent => now < self.new_until,
            ErrorClass::BadChecksum => self.count < DAMAGED,
            ErrorClass::TokenExpired | ErrorClass::Fatal => false,
        };
        again.then(|| self.waits.next()).flatten()
    }

    /// Returns how long it has been tried.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}
