use std::time::Duration;

/// The longest wait of all.
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
    /// Begins with waits up to `first`.
    pub(crate) fn new(first: Duration) -> Self {
        Self { bound: first }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.bound.mul_f64(fastrand::f64());
        self.bound = (self.bound * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(200);

    #[test]
    fn waits_are_anything_up_to_a_bound_that_doubles_and_ends_at_20_seconds() {
        for _ in 0..100 {
            let mut backoff = Backoff::new(FIRST);
            for bound in [200, 400, 800, 1600, 3200, 6400, 12_800, 20_000, 20_000] {
                assert!(backoff.next() <= Duration::from_millis(bound));
            }
        }
    }

    #[test]
    fn waits_fill_their_whole_range() {
        let waits: Vec<_> = (0..200).map(|_| Backoff::new(FIRST).next()).collect();
        assert!(waits.iter().any(|wait| *wait < FIRST / 4), "no short one in {waits:?}");
        assert!(waits.iter().any(|wait| *wait > FIRST * 3 / 4), "no long one in {waits:?}");
    }
}
