//! The attempt as a machine (R6–R10), driven through virtual time in any order of events.
//!
//! Beside the machine runs a model of what the masters really hold: a SET may be carried out
//! though its answer is lost, and only a denial or an error says that it was not.

use crate::drawn::{config, gap, lease, majority, mending, moment, terms, vote};
use proptest::prelude::*;
use quorumlock::quorum::{
    AcquireOutcome, AcquireRound, Lease, Members, Moment, Standing, Terms, Vote,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What happens to a master, or to the clock.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The SET goes out; `arrives` says whether the master carries it out should it grant or
    /// never be heard of.
    Send { arrives: bool },
    /// It answers that it granted, or denied, or nothing usable came.
    Vote(Vote),
    /// It answers with an error.
    Refuse(Vote),
    /// Somebody looks at the clock.
    Time,
}

/// One attempt's settings.
#[derive(Clone, Debug)]
struct Setting {
    terms: Terms,
    lease: Lease,
    least: Duration,
    give_up: Option<Duration>,
    began: Moment,
}

fn setting() -> impl Strategy<Value = Setting> {
    let give_up = prop_oneof![2 => Just(None), 1 => gap().prop_map(Some)];
    (terms(), lease(), 0_u32..100, give_up, moment()).prop_map(
        |(terms, lease, share, give_up, began)| {
            // Mostly nothing, else some share of what there is to have.
            let least = if share < 60 {
                Duration::ZERO
            } else {
                lease.most_validity() * (share - 60) / 40
            };
            Setting {
                terms,
                lease,
                least,
                give_up,
                began,
            }
        },
    )
}

fn events() -> impl Strategy<Value = Vec<(Duration, usize, Event)>> {
    let event = prop_oneof![
        4 => any::<bool>().prop_map(|arrives| Event::Send { arrives }),
        6 => vote().prop_map(Event::Vote),
        1 => mending().prop_map(|mending| Event::Refuse(Vote::Failed(mending))),
        1 => Just(Event::Time),
    ];
    let step = prop_oneof![6 => Just(Duration::ZERO), 4 => gap()];
    prop::collection::vec((step, 0_usize..9, event), 0..60)
}

/// The masters as they really are, beside the machine.
struct World {
    setting: Setting,
    round: AcquireRound,
    now: Moment,
    sent: BTreeMap<usize, bool>,
    /// Every master's first answer, or the lack of one that was noticed.
    heard: BTreeMap<usize, Vote>,
    /// Masters that said themselves that they hold nothing of this attempt.
    clean: BTreeSet<usize>,
    decided: Option<AcquireOutcome>,
}

impl World {
    fn new(setting: Setting) -> Self {
        let Setting {
            terms,
            lease,
            least,
            give_up,
            began,
        } = &setting;
        let give_up_at = give_up.map(|span| began.plus(span));
        let round = AcquireRound::begin(terms, lease, *least, give_up_at, *began);
        Self {
            now: setting.began,
            round,
            setting,
            sent: BTreeMap::new(),
            heard: BTreeMap::new(),
            clean: BTreeSet::new(),
            decided: None,
        }
    }

    /// Plays one event, in the calling order that the machine documents.
    fn play(&mut self, after: Duration, master: usize, event: Event) {
        self.now = self.now.plus(after);
        let master = master % self.setting.terms.masters;
        let (first, was_sent) = (
            !self.heard.contains_key(&master),
            self.sent.contains_key(&master),
        );
        match event {
            Event::Send { arrives } if first && !was_sent => {
                self.sent.insert(master, arrives);
                self.round.handle_sent(master);
            }
            // Not sent: it can only have failed.
            Event::Vote(vote) if was_sent || matches!(vote, Vote::Failed(_)) => {
                if first {
                    self.heard.insert(master, vote);
                    if vote == Vote::Denied {
                        self.clean.insert(master);
                    } else if vote == Vote::Granted {
                        self.sent.insert(master, true);
                    }
                }
                // A second answer is nobody's: it must change nothing.
                self.round.handle_vote(master, vote, self.now);
            }
            Event::Refuse(vote) if was_sent => {
                if first {
                    self.heard.insert(master, vote);
                    self.clean.insert(master);
                }
                self.round.handle_error(master, vote, self.now);
            }
            Event::Send { .. } | Event::Vote(_) | Event::Refuse(_) => {}
            Event::Time => self.round.handle_time(self.now),
        }
    }

    /// The masters on which the SET stands: it went out, it arrived, and it was not refused.
    fn holding(&self) -> impl Iterator<Item = usize> {
        self.sent
            .iter()
            .filter(|(master, arrives)| **arrives && !self.clean.contains(master))
            .map(|(master, _)| *master)
    }

    fn granted(&self) -> usize {
        self.heard
            .values()
            .filter(|vote| **vote == Vote::Granted)
            .count()
    }

    fn too_slow_at(&self) -> Moment {
        self.setting
            .lease
            .valid_until(self.setting.began)
            .minus(self.setting.least)
    }

    /// When the caller's own wait ends, where it has one.
    fn cut_at(&self) -> Option<Moment> {
        self.setting
            .give_up
            .map(|span| self.setting.began.plus(span))
    }

    fn timeout_at(&self) -> Moment {
        let Setting {
            terms,
            lease,
            began,
            ..
        } = &self.setting;
        began.plus(terms.timeout_for(lease.ttl()))
    }

    /// What must hold after every event.
    fn check(&mut self, event: Event) -> Result<(), TestCaseError> {
        let own = self.timeout_at().min(self.too_slow_at());
        let deadline = self.cut_at().map_or(own, |end| end.min(own));
        prop_assert_eq!(self.round.deadline(), deadline);
        let undo = self.round.to_undo();
        for master in self.holding() {
            prop_assert!(
                undo.contains(master),
                "master {} holds and is not undone",
                master
            );
        }
        let may_hold: Members = self
            .sent
            .keys()
            .copied()
            .filter(|master| !self.clean.contains(master))
            .collect();
        prop_assert_eq!(undo, may_hold, "undone where nothing can be");
        self.check_outcome(event)
    }

    /// Decided for a reason, and once.
    fn check_outcome(&mut self, event: Event) -> Result<(), TestCaseError> {
        let masters = self.setting.terms.masters;
        let outcome = self.round.outcome();
        if let Some(before) = self.decided {
            prop_assert_eq!(outcome, Some(before), "the outcome changed");
            return Ok(());
        }
        let possible = self.granted() + masters - self.heard.len();
        let late = self.now >= self.too_slow_at();
        match outcome {
            Some(AcquireOutcome::Granted { valid_until }) => {
                prop_assert!(
                    majority(self.granted(), masters),
                    "granted without a quorum"
                );
                let Setting {
                    lease,
                    least,
                    began,
                    ..
                } = &self.setting;
                prop_assert_eq!(valid_until, began.plus(lease.most_validity()));
                prop_assert!(
                    self.now.until(valid_until) > *least,
                    "less validity than asked for"
                );
            }
            Some(AcquireOutcome::Refused) => {
                prop_assert!(
                    !majority(possible, masters),
                    "refused with a quorum in reach"
                );
            }
            Some(AcquireOutcome::TooSlow) => prop_assert!(late && majority(possible, masters)),
            Some(AcquireOutcome::TimedOut) => {
                prop_assert!(self.now >= self.timeout_at() && majority(possible, masters));
                prop_assert!(!majority(self.granted(), masters));
            }
            Some(AcquireOutcome::CutShort) => {
                let cut = self.cut_at().is_some_and(|end| self.now >= end);
                prop_assert!(cut && self.now < self.timeout_at() && !late);
                prop_assert!(majority(possible, masters) && !majority(self.granted(), masters));
            }
            None => {
                // Undecided: neither is certain, and nobody has looked at a clock that is past.
                prop_assert!(!majority(self.granted(), masters) && majority(possible, masters));
                let looked = matches!(event, Event::Time);
                prop_assert!(
                    !(looked && self.now >= self.round.deadline()),
                    "past its deadline"
                );
            }
        }
        self.decided = outcome;
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_attempt_keeps_its_rules_in_any_order(setting in setting(), events in events()) {
        let mut world = World::new(setting);
        for (after, master, event) in events {
            world.play(after, master, event);
            world.check(event)?;
        }
        // Whoever is silent is not waited for beyond the deadline.
        world.now = world.now.max(world.round.deadline());
        world.round.handle_time(world.now);
        world.check(Event::Time)?;
        prop_assert!(world.round.outcome().is_some());
        prop_assert_eq!(world.round.tally().open(), world.setting.terms.masters - world.heard.len());
    }

    /// Decided with the very vote that makes it certain, not with a later one.
    #[test]
    fn an_attempt_is_decided_at_the_earliest_moment(
        masters in 1_usize..=7, lease in lease(), votes in prop::collection::vec(vote(), 7),
    ) {
        let terms = Terms { masters, timeout: None };
        let began = Moment::from_nanos(7_000_000_000);
        let mut round = AcquireRound::begin(&terms, &lease, Duration::ZERO, None, began);
        (0..masters).for_each(|master| round.handle_sent(master));
        let (mut granted, mut against) = (0, 0);
        for (master, vote) in votes.into_iter().take(masters).enumerate() {
            round.handle_vote(master, vote, began);
            if vote == Vote::Granted { granted += 1 } else { against += 1 }
            let certain = majority(granted, masters) || !majority(masters - against, masters);
            prop_assert_eq!(round.outcome().is_some(), certain);
            prop_assert_eq!(round.tally().standing() != Standing::Open, certain);
        }
    }
}

/// The events above reach every outcome: no claim about one holds for want of trying.
#[test]
fn every_outcome_is_reached() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config());
    let (mut seen, mut holding_unheard, mut late_grants) = (BTreeMap::new(), 0, 0);
    for _ in 0..2_000 {
        let drawn = (setting(), events())
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let mut world = World::new(drawn.0);
        for (after, master, event) in drawn.1 {
            let was = world.round.outcome();
            let grants = world.granted();
            world.play(after, master, event);
            late_grants += usize::from(was.is_some() && world.granted() > grants);
            world.check(event).unwrap();
        }
        let held = world
            .holding()
            .filter(|master| !world.heard.contains_key(master))
            .count();
        holding_unheard += usize::from(held > 0);
        let name = match world.round.outcome() {
            None => "undecided",
            Some(AcquireOutcome::Granted { .. }) => "granted",
            Some(AcquireOutcome::Refused) => "refused",
            Some(AcquireOutcome::TooSlow) => "too slow",
            Some(AcquireOutcome::TimedOut) => "timed out",
            Some(AcquireOutcome::CutShort) => "cut short",
        };
        *seen.entry(name).or_insert(0) += 1;
    }
    assert!(
        seen.len() == 6 && seen.values().all(|count| *count >= 20),
        "{seen:?}"
    );
    assert!(holding_unheard > 50, "{holding_unheard}");
    assert!(late_grants > 50, "{late_grants}");
}
