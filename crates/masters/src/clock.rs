//! Reads the clock and pauses, the only file of this crate that does either.
//!
//! It is the monotonic clock of the process that tests: no server's clock, and it does not count suspended time.

use std::time::{Duration, Instant, SystemTime};

/// A moment to measure from.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of this crate that reads the clock"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Blocks the thread for a while; for a time that is itself the input of a test, never to synchronise.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this crate that sleeps"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The wall clock, as a scripted master tells it: the time since 1970.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// The present moment for the timers of a relay.
pub(crate) fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Asks again and again until the condition holds; false when the time is over.
#[must_use]
pub fn eventually(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    poll(within, || condition().then_some(())).is_some()
}

/// Asks again and again until there is a value; at least once, and once more at the end.
pub(crate) fn poll<T>(within: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let watch = Stopwatch::start();
    let mut step = Duration::from_millis(1);
    loop {
        let last = watch.elapsed() >= within;
        if let Some(found) = ask() {
            return Some(found);
        }
        if last {
            return None;
        }
        pause(step);
        step = (step * 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_at_least_once_and_not_for_ever() {
        let mut asked = 0;
        assert!(!eventually(Duration::ZERO, || {
            asked += 1;
            false
        }));
        assert_eq!(asked, 1);
        assert!(eventually(Duration::from_secs(5), || {
            asked += 1;
            asked == 4
        }));
    }
}
