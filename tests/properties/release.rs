//! The release as a machine (R22): as early as certain, never wrong, never changed.

use crate::drawn::{config, gap, lease, majority, moment, terms};
use proptest::prelude::*;
use quorumlock::quorum::{Deletion, ReleaseOutcome, ReleaseRound};
use std::collections::BTreeMap;
use std::time::Duration;

fn deletion() -> impl Strategy<Value = Deletion> {
    prop_oneof![
        Just(Deletion::Deleted),
        Just(Deletion::NotOurs),
        Just(Deletion::Failed)
    ]
}

/// An answer of a master, or a look at the clock.
fn events() -> impl Strategy<Value = Vec<(Duration, usize, Option<Deletion>)>> {
    let what = prop_oneof![4 => deletion().prop_map(Some), 1 => Just(None)];
    let step = prop_oneof![6 => Just(Duration::ZERO), 4 => gap()];
    prop::collection::vec((step, 0_usize..9, what), 0..40)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_release_keeps_its_rules_in_any_order(
        terms in terms(), lease in lease(), began in moment(), events in events(),
    ) {
        let masters = terms.masters;
        let mut round = ReleaseRound::begin(&terms, lease.ttl(), began);
        prop_assert_eq!(round.deadline(), began.plus(terms.timeout_for(lease.ttl())));
        let mut first: BTreeMap<usize, Deletion> = BTreeMap::new();
        let (mut now, mut decided) = (began, None);
        for (after, master, what) in events {
            now = now.plus(after);
            match what {
                Some(answer) => {
                    round.handle_answer(master % masters, answer);
                    first.entry(master % masters).or_insert(answer);
                }
                None => round.handle_time(now),
            }
            let outcome = round.outcome();
            if decided.is_some() {
                prop_assert_eq!(outcome, decided, "the outcome changed");
                continue;
            }
            let count = |wanted| first.values().filter(|answer| **answer == wanted).count();
            let (deleted, not_ours) = (count(Deletion::Deleted), count(Deletion::NotOurs));
            let was_ours = majority(deleted, masters);
            let not_any_more = !majority(masters - not_ours, masters);
            let ended = first.len() == masters || what.is_none() && now >= round.deadline();
            let expected = if was_ours {
                Some(ReleaseOutcome::WasOurs)
            } else if not_any_more {
                Some(ReleaseOutcome::NoLongerOurs)
            } else if ended {
                Some(ReleaseOutcome::Unconfirmed)
            } else {
                None
            };
            prop_assert_eq!(outcome, expected);
            decided = outcome;
        }
    }
}
