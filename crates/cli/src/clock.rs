//! The one file of this crate that reads a clock.
//!
//! The clock counts the time that the host spends suspended, as the lock's validity does, and it is the same for every
//! process of the host: an instant can be handed from `quorumlock` to the warden as a plain number of nanoseconds.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
// On macOS and the BSDs the monotonic clock is the nearest; on macOS it goes on while the host sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// An instant of this host, in nanoseconds since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(u64);

impl Instant {
    /// Reads the clock.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(CLOCK);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Instant(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// An instant that another process of this host sent.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// The number that [`Instant::from_nanos`] takes.
    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// This much later; the end of time if that cannot be counted.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Instant(self.0.saturating_add(nanos(duration)))
    }

    /// This much earlier; the start of the host if that would be before it.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Instant(self.0.saturating_sub(nanos(duration)))
    }

    /// How long it is until then; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Instant::now())
    }

    /// How long it has been since `earlier`; zero if that is later.
    pub(crate) fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whether it has come.
    pub(crate) fn has_come(self) -> bool {
        Instant::now() >= self
    }
}

/// The longest that a timer sleeps before it looks at the clock again. The runtime's timers stand still while the host
/// is suspended, so a deadline is noticed at most this long after resuming.
const SLICE: Duration = Duration::from_millis(200);

/// Waits until `instant` has come.
pub(crate) async fn until(instant: Instant) {
    loop {
        let left = instant.left();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
