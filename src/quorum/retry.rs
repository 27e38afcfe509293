//! The wait between attempts: the next pause, given a random number, or that it is over (R11, R14).
//!
//! Invariants:
//! 1. A pause is never zero and never above the cap.
//! 2. No pause goes beyond the caller's deadline, and none follows the last attempt.

use super::Moment;
use std::time::Duration;

/// The least pause; a waiter never spins.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// How long before the deadline the last attempt begins, so that its answer still arrives.
const LAST_TRY_MARGIN: Duration = Duration::from_millis(10);

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One attempt.
    Once,
    /// Attempts until so much time has passed.
    AtMost(Duration),
    /// Attempts until one succeeds.
    Forever,
}

/// Pauses between attempts: full jitter below a bound that doubles up to a cap.
///
/// The random pause keeps clients that were refused together from asking together again; the
/// growth keeps many waiters from loading the masters. The default, 10 ms growing to 250 ms,
/// trades at most a quarter of a second of idle lock for four attempts a second and waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    first: Duration,
    cap: Duration,
}

impl Retry {
    /// Pauses up to `first` after the first refusal, doubling up to `cap`.
    ///
    /// Bounds below one millisecond count as one millisecond, and a cap below `first` as `first`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        let first = first.max(LEAST_PAUSE);
        Self {
            first,
            cap: cap.max(first),
        }
    }

    /// The pause after so many refusals, from a random number over the whole range of `u64`.
    pub fn pause(&self, refusals: u32, draw: u64) -> Duration {
        let factor = 1_u32
            .checked_shl(refusals.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let bound = self.first.saturating_mul(factor).min(self.cap);
        let span = bound.saturating_sub(LEAST_PAUSE);
        // span × draw / 2^64, in whole nanoseconds: at most the span.
        let share = (span.as_nanos().min(u128::from(u64::MAX)) * u128::from(draw)) >> 64;
        LEAST_PAUSE.saturating_add(Duration::from_nanos(
            u64::try_from(share).unwrap_or(u64::MAX),
        ))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_millis(250))
    }
}

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Pause until this moment, then try again.
    PauseUntil(Moment),
    /// The wait is over.
    GiveUp,
}

/// One caller's wait for a lock.
///
/// Calling order: [`begin`](Self::begin); after each attempt that was refused,
/// [`handle_refusal`](Self::handle_refusal) says what to do.
#[derive(Clone, Debug)]
pub struct Waiting {
    retry: Retry,
    once: bool,
    deadline: Option<Moment>,
    refusals: u32,
    /// The attempt that was just made was the last: the pause before it reached the deadline.
    last: bool,
}

impl Waiting {
    /// Begins a wait.
    pub fn begin(retry: Retry, patience: Patience, now: Moment) -> Self {
        Self {
            retry,
            once: patience == Patience::Once,
            deadline: match patience {
                Patience::AtMost(span) => Some(now.plus(span)),
                Patience::Once | Patience::Forever => None,
            },
            refusals: 0,
            last: false,
        }
    }

    /// When the wait is over, if it is bounded; no attempt runs beyond it.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// How many attempts were refused.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// An attempt was refused: pause, or give up. `draw` is a random number.
    pub fn handle_refusal(&mut self, now: Moment, draw: u64) -> Next {
        self.refusals = self.refusals.saturating_add(1);
        if self.once || self.last || self.deadline.is_some_and(|end| now >= end) {
            return Next::GiveUp;
        }
        let wake = now.plus(self.retry.pause(self.refusals, draw));
        let Some(end) = self.deadline else {
            return Next::PauseUntil(wake);
        };
        // The last attempt begins a little before the end; a wait shorter than the margin makes
        // it half-way.
        let last = end.minus(LAST_TRY_MARGIN.min(now.until(end) / 2));
        if wake < last {
            return Next::PauseUntil(wake);
        }
        self.last = true;
        Next::PauseUntil(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO.plus(Duration::from_millis(ms))
    }

    #[test]
    fn once_is_once() {
        let mut waiting = Waiting::begin(Retry::default(), Patience::Once, at(0));
        assert_eq!(waiting.handle_refusal(at(1), 0), Next::GiveUp);
    }

    #[test]
    fn forever_never_gives_up() {
        let mut waiting = Waiting::begin(Retry::default(), Patience::Forever, at(0));
        for _ in 0..100_000 {
            assert!(matches!(
                waiting.handle_refusal(at(1), u64::MAX),
                Next::PauseUntil(_)
            ));
        }
    }

    #[test]
    fn a_pause_beyond_the_deadline_becomes_one_last_try_before_it() {
        let retry = Retry::new(Duration::from_secs(1), Duration::from_secs(1));
        let mut waiting =
            Waiting::begin(retry, Patience::AtMost(Duration::from_millis(300)), at(0));
        assert_eq!(
            waiting.handle_refusal(at(1), u64::MAX),
            Next::PauseUntil(at(290))
        );
        assert_eq!(
            waiting.handle_refusal(at(291), u64::MAX),
            Next::GiveUp,
            "no pause after the last"
        );
    }

    #[test]
    fn a_wait_of_nothing_ends_with_its_first_refusal() {
        let mut waiting = Waiting::begin(Retry::default(), Patience::AtMost(Duration::ZERO), at(0));
        assert_eq!(waiting.handle_refusal(at(0), 7), Next::GiveUp);
    }

    #[test]
    fn odd_settings_are_legal() {
        for (first, cap) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_secs(1), Duration::ZERO),
            (Duration::MAX, Duration::MAX),
        ] {
            let retry = Retry::new(first, cap);
            for refusals in [0, 1, 2, 31, 32, 33, u32::MAX] {
                for draw in [0, 1, u64::MAX / 2, u64::MAX] {
                    let pause = retry.pause(refusals, draw);
                    assert!(pause >= LEAST_PAUSE && pause <= cap.max(first).max(LEAST_PAUSE));
                }
            }
        }
    }
}
