//! TTL, drift and validity (R8), against whole-number sums that cannot overflow.

use crate::drawn::{config, gap, lease, moment};
use proptest::prelude::*;
use quorumlock::quorum::{
    AcquireOutcome, AcquireRound, BadInput, Drift, LONGEST_TTL, Lease, Moment, Terms, Vote,
};
use std::time::Duration;

const MS: u128 = 1_000_000;

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0_u64..5_000_000).prop_map(Duration::from_nanos),
        (0_u64..100_000).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_millis),
        (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        Just(LONGEST_TTL),
        Just(Duration::MAX),
    ]
}

fn ppm() -> impl Strategy<Value = u32> {
    prop_oneof![Just(10_000_u32), 0_u32..=1_000_000, any::<u32>()]
}

/// The drift of a TTL in nanoseconds: its share, rounded up, and 2 ms.
fn drift_by_hand(ttl_ns: u128, ppm: u32) -> u128 {
    (ttl_ns * u128::from(ppm)).div_ceil(1_000_000) + 2 * MS
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_lease_is_whole_milliseconds_above_its_drift(ttl in any_span(), ppm in ppm(), longest in any_span()) {
        let made = Lease::new(ttl, Drift::from_ppm(ppm), longest);
        let whole = ttl.as_nanos() / MS * MS;
        let drift = drift_by_hand(whole, ppm);
        if ttl > longest || ttl > LONGEST_TTL {
            let told = matches!(made, Err(BadInput::TtlTooLong { .. }));
            prop_assert!(told, "{:?}", made);
        } else if whole == 0 {
            prop_assert_eq!(made, Err(BadInput::TtlBelowMillisecond { ttl }));
        } else if drift >= whole {
            let told = matches!(made, Err(BadInput::TtlWithinDrift { .. }));
            prop_assert!(told, "{:?}", made);
        } else {
            let lease = made.unwrap();
            prop_assert_eq!(u128::from(lease.ttl_ms()) * MS, whole);
            prop_assert_eq!(lease.ttl().as_nanos(), whole);
            prop_assert_eq!(lease.drift().as_nanos(), drift);
            prop_assert_eq!(lease.most_validity().as_nanos(), whole - drift);
            prop_assert!(!lease.most_validity().is_zero());
        }
    }

    /// Rounded up: a drift that is a nanosecond short is not the allowance that was asked for.
    #[test]
    fn drift_is_its_share_rounded_up_and_two_milliseconds(nanos in any::<u32>(), ppm in ppm()) {
        let ttl = Duration::from_nanos(u64::from(nanos));
        prop_assert_eq!(Drift::from_ppm(ppm).of(ttl).as_nanos(), drift_by_hand(ttl.as_nanos(), ppm));
    }

    /// R7: a tenth of the TTL within 50 ms and 1 s, unless it is set.
    #[test]
    fn the_timeout_is_a_tenth_within_bounds(lease in lease(), set in any_span()) {
        let terms = |timeout| Terms { masters: 3, timeout };
        let tenth = lease.ttl() / 10;
        let bounded = tenth.max(Duration::from_millis(50)).min(Duration::from_secs(1));
        prop_assert_eq!(terms(None).timeout_for(lease.ttl()), bounded);
        prop_assert_eq!(terms(Some(set)).timeout_for(lease.ttl()), set);
    }

    #[test]
    fn the_validity_ends_at_the_latest_at_send_plus_ttl_less_drift(lease in lease(), began in moment()) {
        let end = u128::from(lease.valid_until(began).as_nanos());
        let most = u128::from(began.as_nanos()) + lease.ttl().as_nanos() - lease.drift().as_nanos();
        prop_assert_eq!(end, most.min(u128::from(u64::MAX)));
    }

    #[test]
    fn a_longer_ttl_never_has_less_drift(ppm in ppm(), one in 1_u64..1_000_000, more in 0_u64..1_000_000) {
        let drift = |ms| Drift::from_ppm(ppm).of(Duration::from_millis(ms));
        prop_assert!(drift(one) <= drift(one + more));
        prop_assert!(drift(one) >= Duration::from_millis(2));
    }

    /// Case 4: whatever the delays, what is granted is valid at most until send + TTL − drift,
    /// and still is when it is said.
    #[test]
    fn case_04_no_delay_lengthens_the_validity(
        lease in lease(),
        sent in moment(),
        masters in 1_usize..=7,
        delays in prop::collection::vec(gap(), 7),
    ) {
        let terms = Terms { masters, timeout: Some(Duration::from_secs(3_600)) };
        let mut round = AcquireRound::begin(&terms, &lease, Duration::ZERO, None, sent);
        let mut arrivals: Vec<(Moment, usize)> =
            (0..masters).map(|master| (sent.plus(delays[master]), master)).collect();
        arrivals.sort_unstable();
        (0..masters).for_each(|master| round.handle_sent(master));
        let mut said = None;
        for (now, master) in arrivals {
            round.handle_vote(master, Vote::Granted, now);
            said = said.or_else(|| round.outcome().map(|outcome| (now, outcome)));
        }
        let (now, outcome) = said.unwrap();
        let latest = sent.plus(lease.ttl()).minus(lease.drift());
        match outcome {
            AcquireOutcome::Granted { valid_until } => {
                prop_assert!(valid_until <= latest.max(sent.plus(lease.most_validity())));
                prop_assert!(now < valid_until, "no validity was left");
                prop_assert!(now.until(valid_until) <= lease.ttl());
            }
            AcquireOutcome::TooSlow => prop_assert!(now >= sent.plus(lease.most_validity())),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn moments_saturate_and_never_wrap(at in moment(), span in any_span()) {
        let (nanos, far) = (u128::from(at.as_nanos()), span.as_nanos());
        prop_assert_eq!(u128::from(at.plus(span).as_nanos()), (nanos + far).min(u128::from(u64::MAX)));
        prop_assert_eq!(u128::from(at.minus(span).as_nanos()), nanos.saturating_sub(far));
        prop_assert_eq!(at.until(at.plus(span)), at.plus(span).since(at));
        prop_assert_eq!(at.plus(span).until(at), Duration::ZERO);
    }
}

/// With 2 ms of constant drift alone, 2 ms leave nothing and 3 ms leave one.
#[test]
fn case_29_the_shortest_lease_is_above_the_constant() {
    let lease = |ms| Lease::new(Duration::from_millis(ms), Drift::from_ppm(0), LONGEST_TTL);
    assert!(lease(2).is_err());
    assert_eq!(lease(3).unwrap().most_validity(), Duration::from_millis(1));
}
