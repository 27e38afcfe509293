//! The extension as a machine (R16): proof by a quorum of our own, and healing only behind it.

use crate::drawn::{config, gap, lease, majority, mending, moment, terms};
use proptest::prelude::*;
use quorumlock::quorum::{ExtendOutcome, ExtendRound, Extension, Lease, Moment, Terms};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Event {
    Answer(Extension),
    Time,
    /// The driver asks whom it may give the key again, and can send it to one of them or not.
    Heal {
        sends: bool,
    },
}

fn events() -> impl Strategy<Value = Vec<(Duration, usize, Event)>> {
    let answer = prop_oneof![
        5 => Just(Extension::Extended),
        2 => Just(Extension::Missing),
        1 => Just(Extension::Foreign),
        1 => mending().prop_map(Extension::Failed),
    ];
    let event = prop_oneof![
        6 => answer.prop_map(Event::Answer),
        1 => Just(Event::Time),
        2 => any::<bool>().prop_map(|sends| Event::Heal { sends }),
    ];
    let step = prop_oneof![6 => Just(Duration::ZERO), 4 => gap()];
    prop::collection::vec((step, 0_usize..9, event), 0..40)
}

struct World {
    terms: Terms,
    lease: Lease,
    began: Moment,
    round: ExtendRound,
    now: Moment,
    first: BTreeMap<usize, Extension>,
    healed: BTreeSet<usize>,
    decided: Option<ExtendOutcome>,
}

impl World {
    fn new(terms: Terms, lease: Lease, began: Moment) -> Self {
        Self {
            terms,
            lease,
            began,
            round: ExtendRound::begin(&terms, &lease, began),
            now: began,
            first: BTreeMap::new(),
            healed: BTreeSet::new(),
            decided: None,
        }
    }

    fn valid_until(&self) -> Moment {
        self.began.plus(self.lease.most_validity())
    }

    fn of(&self, wanted: Extension) -> BTreeSet<usize> {
        self.first
            .iter()
            .filter(|(_, answer)| **answer == wanted)
            .map(|(master, _)| *master)
            .collect()
    }

    fn play(&mut self, after: Duration, master: usize, event: Event) -> Result<(), TestCaseError> {
        self.now = self.now.plus(after);
        let master = master % self.terms.masters;
        match event {
            Event::Answer(answer) => {
                self.round.handle_answer(master, answer, self.now);
                self.first.entry(master).or_insert(answer);
            }
            Event::Time => self.round.handle_time(self.now),
            Event::Heal { sends } => self.heal(sends)?,
        }
        self.check(event)
    }

    fn heal(&mut self, sends: bool) -> Result<(), TestCaseError> {
        let proved = matches!(self.decided, Some(ExtendOutcome::Extended { .. }));
        let due: BTreeSet<usize> = self.round.due_for_heal(self.now).iter().collect();
        let lasts = proved && self.now < self.valid_until();
        let missing = self.of(Extension::Missing);
        let without: BTreeSet<usize> = missing.difference(&self.healed).copied().collect();
        prop_assert_eq!(&due, &if lasts { without } else { BTreeSet::new() });
        if let (Some(master), true) = (due.first(), sends) {
            self.round.handle_heal_sent(*master);
            self.healed.insert(*master);
        }
        Ok(())
    }

    fn check(&mut self, event: Event) -> Result<(), TestCaseError> {
        let masters = self.terms.masters;
        let deadline = self
            .began
            .plus(self.terms.timeout_for(self.lease.ttl()))
            .min(self.valid_until());
        prop_assert_eq!(self.round.deadline(), deadline);
        prop_assert_eq!(self.round.is_complete(), self.first.len() == masters);
        let outcome = self.round.outcome();
        if let Some(before) = self.decided {
            prop_assert_eq!(outcome, Some(before), "the outcome changed");
            return Ok(());
        }
        let extended = self.of(Extension::Extended).len();
        let (missing, foreign) = (
            self.of(Extension::Missing).len(),
            self.of(Extension::Foreign).len(),
        );
        let not_ours = !majority(masters - missing - foreign, masters);
        let possible = extended + masters - self.first.len();
        match outcome {
            Some(ExtendOutcome::Extended { valid_until }) => {
                prop_assert!(
                    majority(extended, masters),
                    "extended without a quorum of ours"
                );
                prop_assert_eq!(valid_until, self.valid_until());
                prop_assert!(self.now < valid_until, "extended with no validity left");
            }
            Some(ExtendOutcome::NotOurs {
                missing: told,
                foreign: others,
            }) => {
                prop_assert!(not_ours, "given up as lost though a quorum may have it");
                prop_assert_eq!((told, others), (missing, foreign));
            }
            Some(ExtendOutcome::Unsure) => {
                prop_assert!(!not_ours);
                prop_assert!(self.now >= deadline || !majority(possible, masters));
            }
            None => {
                prop_assert!(
                    !not_ours && !majority(extended, masters) && majority(possible, masters)
                );
                let looked = matches!(event, Event::Time);
                prop_assert!(!(looked && self.now >= deadline), "past its deadline");
            }
        }
        self.decided = outcome;
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_extension_keeps_its_rules_in_any_order(
        terms in terms(), lease in lease(), began in moment(), events in events(),
    ) {
        let mut world = World::new(terms, lease, began);
        for (after, master, event) in events {
            world.play(after, master, event)?;
        }
        world.now = world.now.max(world.round.deadline());
        world.round.handle_time(world.now);
        world.check(Event::Time)?;
        prop_assert!(world.round.outcome().is_some());
    }
}

/// The events above reach every outcome, and healing.
#[test]
fn every_outcome_is_reached() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config());
    let (mut seen, mut healed, mut late) = (BTreeMap::new(), 0, 0);
    for _ in 0..2_000 {
        let drawn = (terms(), lease(), moment(), events())
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let mut world = World::new(drawn.0, drawn.1, drawn.2);
        for (after, master, event) in drawn.3 {
            let known = world.of(Extension::Missing).len();
            let proved = world.decided.is_some();
            world.play(after, master, event).unwrap();
            late += usize::from(proved && world.of(Extension::Missing).len() > known);
        }
        healed += usize::from(!world.healed.is_empty());
        let name = match world.round.outcome() {
            None => "undecided",
            Some(ExtendOutcome::Extended { .. }) => "extended",
            Some(ExtendOutcome::NotOurs { .. }) => "not ours",
            Some(ExtendOutcome::Unsure) => "unsure",
        };
        *seen.entry(name).or_insert(0) += 1;
    }
    assert!(
        seen.len() == 4 && seen.values().all(|count| *count >= 20),
        "{seen:?}"
    );
    assert!(healed >= 20 && late >= 20, "{healed} healed, {late} late");
}
