//! Waiting for something that somebody else does: with a deadline, a pace, and a cancel.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, StepError, StepResult};

/// How often to ask and how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The wait after the first answer of "not yet"; doubled each time.
    pub first: Duration,
    /// The longest wait between two questions.
    pub most: Duration,
    /// When to give up.
    pub limit: Duration,
}

impl Pace {
    /// Asks every `pace`, for `limit` in all.
    pub fn steady(pace: Duration, limit: Duration) -> Pace {
        Pace { first: pace, most: pace, limit }
    }

    /// Asks more and more slowly, from `first` to `most`, for `limit` in all.
    pub fn slowing(first: Duration, most: Duration, limit: Duration) -> Pace {
        Pace { first, most: most.max(first), limit }
    }
}

/// Asks `probe` until it gives something; `what` names it in the error: "image `ami-1`".
///
/// Throttled and transient errors count as "not yet". Fails with `Class::Cancelled` when `cancel` is raised, and with
/// `Class::Transient` when the time is up.
pub async fn until<T, F>(
    what: &str,
    pace: Pace,
    cancel: &CancellationToken,
    mut probe: impl FnMut() -> F,
) -> StepResult<T>
where
    F: Future<Output = StepResult<Option<T>>>,
{
    let deadline = Instant::now() + pace.limit;
    let mut wait = pace.first;
    loop {
        let mut last_error = None;
        if cancel.is_cancelled() {
            return Err(StepError::cancelled().context(format!("stopped waiting for {what}")));
        }
        match probe().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => match error.class() {
                Class::Throttled | Class::Transient => last_error = Some(error),
                Class::Unknown | Class::InUse | Class::Permanent | Class::Cancelled | Class::Bug => return Err(error),
            },
        }
        if Instant::now() >= deadline {
            let error = StepError::transient(format!("waited {:?} for {what}", pace.limit));
            return Err(match last_error {
                Some(cause) => error.because(cause),
                None => error,
            });
        }
        tokio::select! {
            () = tokio::time::sleep_until((Instant::now() + wait).min(deadline)) => {}
            () = cancel.cancelled() => {}
        }
        wait = (wait * 2).min(pace.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const PACE: Pace =
        Pace { first: Duration::from_secs(1), most: Duration::from_secs(4), limit: Duration::from_secs(60) };

    #[tokio::test(start_paused = true)]
    async fn asks_until_it_is_there() {
        let asked = Cell::new(0);
        let probe = || async {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Ok(None),
                2 => Err(StepError::transient("hiccup")),
                n => Ok(Some(n)),
            }
        };
        assert_eq!(until("it", PACE, &CancellationToken::new(), probe).await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_in_time_and_says_why() {
        let begin = Instant::now();
        let probe = || async { Err::<Option<()>, _>(StepError::transient("refused")) };
        let error = until("image `ami-1`", PACE, &CancellationToken::new(), probe).await.unwrap_err();
        assert_eq!(error.chain(), ["waited 60s for image `ami-1`", "refused"]);
        assert_eq!(begin.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_ends_it_at_once() {
        let cancel = CancellationToken::new();
        let begin = Instant::now();
        let raise = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            cancel.cancel();
        };
        let (error, ()) = tokio::join!(until("it", PACE, &cancel, || async { Ok(None::<()>) }), raise);
        assert_eq!(error.unwrap_err().class(), Class::Cancelled);
        assert_eq!(begin.elapsed().as_secs(), 5);
    }
}
