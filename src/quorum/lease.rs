//! TTL, drift and validity: the arithmetic of R8, in whole numbers.
//!
//! Invariants:
//! 1. A [`Lease`] that exists leaves some validity: its TTL is above its drift.
//! 2. The end of the validity is never later than `began + TTL − drift`.

use super::{BadInput, Moment, quorum_of};
use std::time::Duration;

/// The longest TTL that can be asked for, a hundred years.
///
/// Servers store expiries as signed 64-bit milliseconds since 1970 and refuse a sum that
/// overflows; a hundred years is far inside that for any clock setting that makes sense.
pub const LONGEST_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The least per-master timeout that is chosen by default.
pub const SHORTEST_TIMEOUT: Duration = Duration::from_millis(50);
/// The greatest per-master timeout that is chosen by default.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The allowance for clocks that run at different rates: a share of the TTL plus a constant.
///
/// The default, 1 % + 2 ms, is what Redlock implementations share: the share covers the rates
/// (real clocks differ by some parts per million), the constant the millisecond in which servers
/// count. It does not cover a clock that is *set*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The share of the TTL, in parts per million.
    ppm: u32,
    /// What is added whatever the TTL.
    constant: Duration,
}

impl Drift {
    /// An allowance of `ppm` parts per million of the TTL, plus 2 ms.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self {
            ppm,
            constant: Duration::from_millis(2),
        }
    }

    /// The allowance for this TTL, rounded up to the next nanosecond.
    pub fn of(self, ttl: Duration) -> Duration {
        let share = (ttl.as_nanos().saturating_mul(u128::from(self.ppm))).div_ceil(1_000_000);
        let share = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
        share.saturating_add(self.constant)
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::from_ppm(10_000)
    }
}

/// A TTL that was checked, with the drift that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    ttl_ms: u64,
    drift: Duration,
}

impl Lease {
    /// Checks a TTL: whole milliseconds (rounded down), above its drift, not over `longest`.
    ///
    /// # Errors
    /// - [`BadInput::TtlBelowMillisecond`] where nothing is left after rounding down.
    /// - [`BadInput::TtlWithinDrift`] where the drift eats the whole TTL.
    /// - [`BadInput::TtlTooLong`] above `longest` or [`LONGEST_TTL`].
    pub fn new(ttl: Duration, drift: Drift, longest: Duration) -> Result<Self, BadInput> {
        let longest = longest.min(LONGEST_TTL);
        if ttl > longest {
            return Err(BadInput::TtlTooLong { ttl, longest });
        }
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if ttl_ms == 0 {
            return Err(BadInput::TtlBelowMillisecond { ttl });
        }
        let whole = Duration::from_millis(ttl_ms);
        let drift = drift.of(whole);
        if drift >= whole {
            return Err(BadInput::TtlWithinDrift { ttl, drift });
        }
        Ok(Self { ttl_ms, drift })
    }

    /// The TTL in milliseconds, as it is sent.
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// The TTL.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// The allowance for clock rates.
    pub fn drift(&self) -> Duration {
        self.drift
    }

    /// The validity if no time at all were spent: TTL − drift.
    pub fn most_validity(&self) -> Duration {
        self.ttl().saturating_sub(self.drift)
    }

    /// When the validity ends of a round that began at `began` (R8).
    pub fn valid_until(&self, began: Moment) -> Moment {
        began.plus(self.most_validity())
    }
}

/// What all rounds of one handle have in common: how many masters, and how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How many masters are configured; the quorum follows from it for life (R1).
    pub masters: usize,
    /// The per-master timeout; `None` chooses TTL/10 within 50 ms and 1 s.
    pub timeout: Option<Duration>,
}

impl Terms {
    /// The quorum of the configured masters, ⌊N/2⌋ + 1.
    pub fn quorum(&self) -> usize {
        quorum_of(self.masters)
    }

    /// How long a round under this TTL waits for a master's answer (R7).
    pub fn timeout_for(&self, ttl: Duration) -> Duration {
        self.timeout
            .unwrap_or_else(|| (ttl / 10).clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(ttl: Duration) -> Result<Lease, BadInput> {
        Lease::new(ttl, Drift::default(), LONGEST_TTL)
    }

    #[test]
    fn drift_is_a_hundredth_and_two_milliseconds() {
        let check = |ttl_ms, drift_us| {
            assert_eq!(
                Drift::default().of(Duration::from_millis(ttl_ms)),
                Duration::from_micros(drift_us)
            );
        };
        check(30_000, 302_000);
        check(400, 6_000);
        check(1, 2_010);
        check(10_000, 102_000);
    }

    #[test]
    fn ttls_that_leave_nothing_are_refused() {
        for (ttl, ok) in [
            (Duration::ZERO, false),
            (Duration::from_micros(900), false),
            (Duration::from_millis(1), false),
            (Duration::from_millis(2), false),
            (Duration::from_millis(3), true),
            (Duration::from_millis(10), true),
            (LONGEST_TTL, true),
            (LONGEST_TTL + Duration::from_nanos(1), false),
            (Duration::from_millis(u64::MAX), false),
            (Duration::MAX, false),
        ] {
            assert_eq!(lease(ttl).is_ok(), ok, "{ttl:?}");
        }
    }

    #[test]
    fn the_longest_ttl_is_a_setting() {
        let longest = Duration::from_secs(60);
        assert!(Lease::new(longest, Drift::default(), longest).is_ok());
        assert!(matches!(
            Lease::new(
                longest + Duration::from_millis(1),
                Drift::default(),
                longest
            ),
            Err(BadInput::TtlTooLong { .. })
        ));
    }

    #[test]
    fn the_default_timeout_is_a_tenth_within_bounds() {
        let terms = Terms {
            masters: 5,
            timeout: None,
        };
        for (ttl_ms, timeout_ms) in [(10, 50), (1_000, 100), (5_000, 500), (30_000, 1_000)] {
            let ttl = Duration::from_millis(ttl_ms);
            assert_eq!(terms.timeout_for(ttl), Duration::from_millis(timeout_ms));
        }
        let set = Terms {
            timeout: Some(Duration::from_millis(7)),
            ..terms
        };
        assert_eq!(
            set.timeout_for(Duration::from_secs(30)),
            Duration::from_millis(7)
        );
    }
}
