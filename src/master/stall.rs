//! Notices that a master answers nothing any more, and that it does again.
//!
//! It reads no clock and sends nothing; the sweeper asks it at every look at a lane.

use crate::quorum::Moment;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A lane whose oldest undo is unanswered for so long gets no new SET.
const STALLED_AFTER: Duration = Duration::from_millis(500);
/// A lane that has been stalled for so long is given up, and connected anew.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);

/// Whether a lane is answered at all.
#[derive(Default)]
pub(super) struct Stall {
    /// To be seen without the lock.
    stalled: AtomicBool,
    watch: Mutex<Watch>,
}

#[derive(Default)]
struct Watch {
    since: Option<Moment>,
    /// The count of answers at the last look.
    seen: u64,
}

impl Stall {
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Acquire)
    }

    /// A new connection begins, or the old one is over.
    pub(super) fn clear(&self) {
        self.stalled.store(false, Ordering::Release);
        self.watch().since = None;
    }

    /// One look: how many answers there were in all, how long the oldest undo has waited.
    ///
    /// Says whether anything moved, and whether the connection is to be given up.
    pub(super) fn note(
        &self,
        now: Moment,
        answered: u64,
        oldest: Option<Duration>,
    ) -> (bool, bool) {
        let mut watch = self.watch();
        let moved = answered != watch.seen;
        watch.seen = answered;
        if moved || oldest.is_none_or(|span| span < STALLED_AFTER) {
            watch.since = None;
            self.stalled.store(false, Ordering::Release);
            return (moved, false);
        }
        let since = *watch.since.get_or_insert(now);
        self.stalled.store(true, Ordering::Release);
        (moved, now.since(since) >= GIVEN_UP_AFTER)
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_stalls_an_answer_mends_and_long_silence_is_given_up() {
        let stall = Stall::default();
        let at = |ms| Moment::ZERO.plus(Duration::from_millis(ms));
        let waited = |ms| Some(Duration::from_millis(ms));
        assert_eq!(stall.note(at(0), 1, waited(0)), (true, false));
        assert_eq!(stall.note(at(499), 1, waited(499)), (false, false));
        assert!(!stall.is_stalled());
        stall.note(at(500), 1, waited(500));
        assert!(stall.is_stalled());
        assert_eq!(stall.note(at(10_500), 1, waited(10_500)), (false, true));
        assert_eq!(stall.note(at(10_501), 2, waited(1)), (true, false));
        assert!(!stall.is_stalled());
    }
}
