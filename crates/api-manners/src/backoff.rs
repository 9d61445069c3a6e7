use std::time::Duration;

/// The longest first wait, and the longest of all.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(20);

/// The waits between tries: anything between nothing and a bound that doubles, so that many who failed at one moment do not
/// come back at one moment.
///
/// Not `backon`: its jitter is added to the bound, which keeps the crowd together for half of each wait, and its retries know
/// neither a deadline nor that another class of failure has another one.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { bound: FIRST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.bound.mul_f64(fastrand::f64());
        self.bound = (self.bound * 2).min(LONGEST);
        wait
    }
}
