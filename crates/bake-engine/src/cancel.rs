//! How a run is stopped: three levels, each raised by one signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;

/// How far a run has been cancelled.
///
/// Level 1: nothing new starts, waits end, what is in flight is finished and recorded, then undone. Level 2: waiting
/// and undoing end too. Level 3 and above: the program should leave at once.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    level: Arc<AtomicU8>,
    stop: CancellationToken,
    abandon: CancellationToken,
}

impl Cancel {
    /// Makes one that is not raised.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Raises it by one level and returns the new one.
    pub fn raise(&self) -> u8 {
        let before = self.level.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |level| Some(level.saturating_add(1)));
        let level = before.unwrap_or(u8::MAX).saturating_add(1);
        if level >= 1 {
            self.stop.cancel();
        }
        if level >= 2 {
            self.abandon.cancel();
        }
        level
    }

    /// Returns the level, 0 if it was never raised.
    pub fn level(&self) -> u8 {
        self.level.load(Ordering::SeqCst)
    }

    /// Returns the token that level 1 cancels.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Returns the token that level 2 cancels.
    pub fn abandon(&self) -> CancellationToken {
        self.abandon.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_one_by_one() {
        let cancel = Cancel::new();
        assert!(!cancel.stop().is_cancelled());
        assert_eq!(cancel.raise(), 1);
        assert!(cancel.stop().is_cancelled() && !cancel.abandon().is_cancelled());
        assert_eq!(cancel.clone().raise(), 2);
        assert!(cancel.abandon().is_cancelled());
        assert_eq!((cancel.raise(), cancel.level()), (3, 3));
    }
}
