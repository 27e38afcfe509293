//! The only file that reads a clock: monotonic, and counting the time the host was suspended.
//!
//! `std::time::Instant` stops during suspension on Linux and macOS; a holder that slept through
//! its TTL would believe that it still holds. Wall-clock time is never read (R5).

use crate::quorum::Moment;

/// The present moment on this host's suspend-counting clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Moment {
    nanos(rustix::time::ClockId::Boottime)
}

/// The present moment; `CLOCK_MONOTONIC` counts suspended time on macOS.
#[cfg(target_vendor = "apple")]
pub(crate) fn now() -> Moment {
    nanos(rustix::time::ClockId::Monotonic)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn nanos(clock: rustix::time::ClockId) -> Moment {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

/// The present moment, from the nearest equal: on Windows the counter goes on in suspension.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    // An hour ahead, so that moments shortly before the start can be told.
    Moment::from_nanos(3_600_000_000_000).plus(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn never_goes_back() {
        let mut last = now();
        for _ in 0..10_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
