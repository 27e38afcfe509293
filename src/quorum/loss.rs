//! Why a held lock can no longer be relied on.

use std::fmt;

/// Why a holder can no longer be sure that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The validity ran out: no extension was asked for, or none succeeded in time.
    Expired,
    /// The longest time to hold had passed, so that it was not extended any more.
    HeldTooLong,
    /// So many masters answered 'not yours' that the lock is no longer ours.
    NotOurs {
        /// How many masters had no key.
        missing: usize,
        /// How many masters had somebody else's.
        foreign: usize,
    },
    /// The watchdog died: nothing extends, and nothing would tell in time.
    WatchdogDied,
    /// This process is a fork of the one that acquired.
    Forked,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its validity ran out"),
            Self::HeldTooLong => f.write_str("it was held for the longest time allowed"),
            Self::NotOurs { missing, foreign } => write!(
                f,
                "it is no longer ours: {missing} masters have no key and {foreign} have somebody else's"
            ),
            Self::WatchdogDied => f.write_str("the watchdog that extends it has died"),
            Self::Forked => f.write_str("this process is a fork of the one that acquired it"),
        }
    }
}
