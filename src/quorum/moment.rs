//! An instant on one client's clock, with arithmetic that saturates instead of wrapping.
//!
//! It reads no clock: a [`Moment`] is handed in by whoever does.

use std::time::Duration;

/// An instant on one client's monotonic, suspend-counting clock.
///
/// Stored as nanoseconds since that clock's own beginning (the boot of the host on Linux).
/// Moments of two hosts, or of two processes with different clocks, cannot be compared.
///
/// Arithmetic saturates: a moment beyond what 64 bits hold (some 584 years after the beginning)
/// is the last moment, and a difference never goes below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be told.
    pub const MAX: Self = Self(u64::MAX);

    /// A moment so many nanoseconds after the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later, at most [`Moment::MAX`].
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(span)))
    }

    /// The moment `span` earlier, at least [`Moment::ZERO`].
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(span)))
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long it is until `later`; zero if that has passed.
    pub fn until(self, later: Self) -> Duration {
        later.since(self)
    }
}

fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Moment::MAX.plus(Duration::from_nanos(1)), Moment::MAX);
        assert_eq!(Moment::from_nanos(5).plus(Duration::MAX), Moment::MAX);
        assert_eq!(
            Moment::from_nanos(5).minus(Duration::from_secs(1)),
            Moment::ZERO
        );
        assert_eq!(Moment::ZERO.since(Moment::MAX), Duration::ZERO);
    }

    #[test]
    fn differences_are_exact() {
        let start = Moment::from_nanos(7);
        let end = start.plus(Duration::from_millis(3));
        assert_eq!(end.since(start), Duration::from_millis(3));
        assert_eq!(start.until(end), Duration::from_millis(3));
    }
}
