//! Which keys are a resource's (R28), and sets of masters against a set by hand.

use crate::drawn::config;
use proptest::prelude::*;
use quorumlock::quorum::{BadInput, MOST_MASTERS, Members, RESERVED_PREFIX, check_key};
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn case_31_any_bytes_are_a_key_but_none_and_ours(
        bytes in prop::collection::vec(any::<u8>(), 0..40), part in 0..=RESERVED_PREFIX.len(),
    ) {
        let key = [&RESERVED_PREFIX[..part], &bytes].concat();
        let expected = if key.is_empty() {
            Err(BadInput::EmptyResource)
        } else if key.starts_with(b"quorumlock:") {
            Err(BadInput::ReservedResource)
        } else {
            Ok(())
        };
        prop_assert_eq!(check_key(&key), expected);
        prop_assert_eq!(check_key(b""), Err(BadInput::EmptyResource));
    }

    #[test]
    fn a_set_of_masters_is_a_set(changes in prop::collection::vec((0..MOST_MASTERS + 70, any::<bool>()), 0..80)) {
        let (mut members, mut by_hand) = (Members::NONE, BTreeSet::new());
        for (master, inside) in changes {
            if inside {
                members.insert(master);
                by_hand.extend((master < MOST_MASTERS).then_some(master));
            } else {
                members.remove(master);
                by_hand.remove(&master);
            }
            prop_assert_eq!(members.contains(master), by_hand.contains(&master));
        }
        prop_assert_eq!(members.iter().collect::<Vec<_>>(), by_hand.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!((members.len(), members.is_empty()), (by_hand.len(), by_hand.is_empty()));
        let even: Members = (0..MOST_MASTERS).step_by(2).collect();
        let odd: Vec<usize> = by_hand.into_iter().filter(|master| master % 2 == 1).collect();
        prop_assert_eq!(members.without(even).iter().collect::<Vec<_>>(), odd);
    }
}
