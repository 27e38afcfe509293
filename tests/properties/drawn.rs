//! What is drawn: settings, moments and votes; and how the runner draws.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use quorumlock::quorum::{Drift, LONGEST_TTL, Lease, Mending, Moment, Terms, Vote};
use std::time::Duration;

/// Any number that is not drawn; the draw is the same in every run unless the environment says.
const SEED: u64 = 0x5eed_0001;

pub(crate) fn config() -> Config {
    let asked = Config::default();
    Config {
        rng_seed: match asked.rng_seed {
            RngSeed::Random => RngSeed::Fixed(SEED),
            fixed @ RngSeed::Fixed(_) => fixed,
        },
        failure_persistence: None,
        ..asked
    }
}

/// For machines whose interesting orders of events are rarer.
pub(crate) fn more() -> Config {
    let config = config();
    Config {
        cases: config.cases.saturating_mul(4),
        ..config
    }
}

/// Moments all over the clock: its beginning, an ordinary uptime, and where sums saturate.
pub(crate) fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        1 => Just(Moment::ZERO),
        1 => (0_u64..20_000_000).prop_map(Moment::from_nanos),
        6 => (1_000_000_000..10_000_000_000_000_000_u64).prop_map(Moment::from_nanos),
        1 => (u64::MAX - 50_000_000..=u64::MAX).prop_map(Moment::from_nanos),
    ]
}

/// Moments of an ordinary uptime, where no sum saturates.
pub(crate) fn ordinary_moment() -> impl Strategy<Value = Moment> {
    (1_000_000_000..10_000_000_000_000_000_u64).prop_map(Moment::from_nanos)
}

/// Spans from nothing to beyond every TTL, most of them about as long as a round.
pub(crate) fn gap() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => Just(Duration::ZERO),
        8 => (0_u64..20_000_000).prop_map(Duration::from_nanos),
        4 => (0_u64..400).prop_map(Duration::from_millis),
        1 => (0_u64..100_000).prop_map(Duration::from_millis),
    ]
}

/// Leases with the shortest TTLs as likely as ordinary ones.
pub(crate) fn lease() -> impl Strategy<Value = Lease> {
    let ttl = prop_oneof![3_u64..60, 60_u64..2_000, 2_000_u64..120_000];
    let ppm = prop_oneof![3 => Just(10_000_u32), 1 => 0_u32..=500_000];
    (ttl, ppm).prop_filter_map("the drift eats this TTL", |(ttl, ppm)| {
        Lease::new(
            Duration::from_millis(ttl),
            Drift::from_ppm(ppm),
            LONGEST_TTL,
        )
        .ok()
    })
}

pub(crate) fn terms() -> impl Strategy<Value = Terms> {
    let masters = prop_oneof![8 => 1_usize..=5, 2 => 6_usize..=9];
    let timeout = prop_oneof![
        2 => Just(None),
        1 => (1_u64..3_000).prop_map(|ms| Some(Duration::from_millis(ms))),
    ];
    (masters, timeout).prop_map(|(masters, timeout)| Terms { masters, timeout })
}

pub(crate) fn mending() -> impl Strategy<Value = Mending> {
    prop_oneof![Just(Mending::Passing), Just(Mending::Lasting)]
}

pub(crate) fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        3 => Just(Vote::Granted),
        2 => Just(Vote::Denied),
        2 => mending().prop_map(Vote::Failed),
    ]
}

/// More than half of the configured masters, by the definition.
pub(crate) fn majority(count: usize, masters: usize) -> bool {
    2 * count > masters
}
