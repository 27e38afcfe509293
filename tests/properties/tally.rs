//! The tally against a count by hand, for any number of masters and any votes, repeated or of
//! nobody.

use crate::drawn::{config, majority, vote};
use proptest::prelude::*;
use quorumlock::quorum::{MOST_MASTERS, Mending, Standing, Tally, Vote, quorum_of};
use std::collections::BTreeMap;

fn standing_by_hand(masters: usize, first: &BTreeMap<usize, Vote>) -> Standing {
    let granted = first
        .values()
        .filter(|vote| **vote == Vote::Granted)
        .count();
    let others = first.len() - granted;
    if majority(granted, masters) {
        Standing::Won
    } else if majority(masters - others, masters) {
        Standing::Open
    } else {
        Standing::Lost
    }
}

fn check(
    masters: usize,
    tally: &Tally,
    first: &BTreeMap<usize, Vote>,
) -> Result<(), TestCaseError> {
    let of = |wanted: fn(Vote) -> bool| -> Vec<usize> {
        first
            .iter()
            .filter(|(_, vote)| wanted(**vote))
            .map(|(master, _)| *master)
            .collect()
    };
    let granted = of(|vote| vote == Vote::Granted);
    let denied = of(|vote| vote == Vote::Denied);
    let failed = of(|vote| matches!(vote, Vote::Failed(_)));
    let lasting = of(|vote| vote == Vote::Failed(Mending::Lasting));
    prop_assert_eq!(tally.granted().iter().collect::<Vec<_>>(), granted.clone());
    prop_assert_eq!(tally.denied().iter().collect::<Vec<_>>(), denied.clone());
    prop_assert_eq!(tally.failed().iter().collect::<Vec<_>>(), failed.clone());
    prop_assert_eq!(tally.open(), masters - first.len());
    prop_assert_eq!(tally.standing(), standing_by_hand(masters, first));
    prop_assert_eq!(
        tally.is_denied(),
        !majority(masters - denied.len(), masters)
    );
    prop_assert_eq!(
        tally.is_unreachable(),
        !majority(masters - failed.len(), masters)
    );
    let answered = granted.len() + denied.len();
    prop_assert_eq!(
        tally.is_unreachable_at_timeout(),
        !majority(answered, masters)
    );
    prop_assert_eq!(
        tally.is_hopeless(),
        !majority(masters - lasting.len(), masters)
    );
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn counts_each_masters_first_vote_and_nothing_else(
        masters in 1..=MOST_MASTERS,
        votes in prop::collection::vec((0..MOST_MASTERS + 3, vote()), 0..100),
    ) {
        let mut tally = Tally::new(masters);
        let mut first = BTreeMap::new();
        for (master, vote) in votes {
            let counts = master < masters && !first.contains_key(&master);
            prop_assert_eq!(tally.record(master, vote), counts);
            if counts {
                first.insert(master, vote);
            }
            check(masters, &tally, &first)?;
        }
    }

    #[test]
    fn what_is_decided_stays_decided(
        masters in 1_usize..=9,
        votes in prop::collection::vec((0_usize..9, vote()), 0..30),
    ) {
        let mut tally = Tally::new(masters);
        let mut decided = None;
        for (master, vote) in votes {
            tally.record(master, vote);
            match (decided, tally.standing()) {
                (None, Standing::Open) => {}
                (None, standing) => decided = Some(standing),
                (Some(before), standing) => prop_assert_eq!(before, standing),
            }
        }
    }

    #[test]
    fn two_quorums_always_meet(masters in 1..=MOST_MASTERS) {
        prop_assert!(2 * quorum_of(masters) > masters);
        prop_assert!(2 * (quorum_of(masters) - 1) <= masters, "no larger than needed");
    }
}
