//! One extension as a machine: extended, proved not ours, or unsure; and what may be healed (R16).
//!
//! Invariants:
//! 1. Only masters that still hold our token count towards the quorum.
//! 2. Validity counts from before this round was sent, never from the acquisition.
//! 3. A master is healed only after a quorum has proved *in this round* that the lock is ours,
//!    only where the key is missing, and only while the validity lasts. It never counts here.
//! 4. A failed extension undoes nothing.

use super::{Lease, Members, Mending, Moment, Standing, Tally, Terms, Vote};

/// One master's answer to an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// The key is ours, and lives at least as long as was asked.
    Extended,
    /// There is no such key.
    Missing,
    /// The key is somebody else's.
    Foreign,
    /// No usable answer.
    Failed(Mending),
}

/// How an extension ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// A quorum extended in time; the lock is held until at least this moment.
    Extended {
        /// The end of the validity that this round proved.
        valid_until: Moment,
    },
    /// So many masters answered 'not yours' that the lock is no longer ours.
    NotOurs {
        /// How many masters had no key.
        missing: usize,
        /// How many masters had somebody else's.
        foreign: usize,
    },
    /// Neither was shown in time: nothing has changed, and it may be tried again.
    Unsure,
}

/// One fan-out of compare-and-extend to all masters.
///
/// Calling order as for every round; after `Extended`, answers that still come are handed in
/// until [`deadline`](Self::deadline), and [`due_for_heal`](Self::due_for_heal) names the masters
/// that may be given the key again.
#[derive(Clone, Debug)]
pub struct ExtendRound {
    tally: Tally,
    missing: Members,
    foreign: Members,
    healed: Members,
    deadline: Moment,
    valid_until: Moment,
    outcome: Option<ExtendOutcome>,
}

impl ExtendRound {
    /// Begins an extension, before its first byte is sent.
    pub fn begin(terms: &Terms, lease: &Lease, now: Moment) -> Self {
        let valid_until = lease.valid_until(now);
        Self {
            tally: Tally::new(terms.masters),
            missing: Members::NONE,
            foreign: Members::NONE,
            healed: Members::NONE,
            deadline: now.plus(terms.timeout_for(lease.ttl())).min(valid_until),
            valid_until,
            outcome: None,
        }
    }

    /// A master answered, or failed to.
    pub fn handle_answer(&mut self, master: usize, answer: Extension, now: Moment) {
        let vote = match answer {
            Extension::Extended => Vote::Granted,
            Extension::Missing | Extension::Foreign => Vote::Denied,
            Extension::Failed(mending) => Vote::Failed(mending),
        };
        if !self.tally.record(master, vote) {
            return;
        }
        match answer {
            Extension::Missing => self.missing.insert(master),
            Extension::Foreign => self.foreign.insert(master),
            Extension::Extended | Extension::Failed(_) => {}
        }
        self.decide(now);
    }

    /// Time has passed: an undecided round ends at its deadline.
    pub fn handle_time(&mut self, now: Moment) {
        if self.outcome.is_none() && now >= self.deadline {
            self.outcome = Some(ExtendOutcome::Unsure);
        }
    }

    /// When the round ends, decided or not: at its timeout, or with the validity it could give.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// How the extension ended, once it has.
    pub fn outcome(&self) -> Option<ExtendOutcome> {
        self.outcome
    }

    /// Whether every master has answered, so that nothing more can come of this round.
    pub fn is_complete(&self) -> bool {
        self.tally.open() == 0
    }

    /// The answers so far: granted is extended, denied is missing or foreign.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The masters to give the key again (R16).
    ///
    /// Empty unless a quorum has extended in this round and its validity still lasts. A master
    /// is named until [`handle_heal_sent`](Self::handle_heal_sent) says that it was sent one.
    pub fn due_for_heal(&self, now: Moment) -> Members {
        let proved = matches!(self.outcome, Some(ExtendOutcome::Extended { .. }));
        if !proved || now >= self.valid_until {
            return Members::NONE;
        }
        self.missing.without(self.healed)
    }

    /// A heal was sent to this master: it gets no second one in this round.
    pub fn handle_heal_sent(&mut self, master: usize) {
        self.healed.insert(master);
    }

    fn decide(&mut self, now: Moment) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = if self.tally.is_denied() {
            Some(ExtendOutcome::NotOurs {
                missing: self.missing.len(),
                foreign: self.foreign.len(),
            })
        } else {
            // A denial is a proof at any time; a quorum of grants only before the deadline.
            match self.tally.standing() {
                Standing::Won if now < self.deadline => Some(ExtendOutcome::Extended {
                    valid_until: self.valid_until,
                }),
                Standing::Won | Standing::Lost => Some(ExtendOutcome::Unsure),
                Standing::Open => None,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Drift, LONGEST_TTL};
    use super::*;
    use Extension::{Extended, Foreign, Missing};
    use std::time::Duration;

    const FAILED: Extension = Extension::Failed(Mending::Passing);

    fn at(ms: u64) -> Moment {
        Moment::ZERO.plus(Duration::from_millis(ms))
    }

    fn round() -> ExtendRound {
        let lease = Lease::new(Duration::from_secs(1), Drift::default(), LONGEST_TTL).unwrap();
        ExtendRound::begin(
            &Terms {
                masters: 3,
                timeout: None,
            },
            &lease,
            at(0),
        )
    }

    fn check(answers: &[Extension], expected: Option<ExtendOutcome>) -> ExtendRound {
        let mut round = round();
        for (master, answer) in answers.iter().enumerate() {
            round.handle_answer(master, *answer, at(5));
        }
        assert_eq!(round.outcome(), expected, "{answers:?}");
        round
    }

    #[test]
    fn outcomes() {
        let extended = Some(ExtendOutcome::Extended {
            valid_until: at(988),
        });
        check(&[Extended], None);
        check(&[Extended, Extended], extended);
        check(&[Missing, Extended, Extended], extended);
        check(&[FAILED, FAILED], Some(ExtendOutcome::Unsure));
        check(&[FAILED, Missing], Some(ExtendOutcome::Unsure));
        check(
            &[Missing, Foreign],
            Some(ExtendOutcome::NotOurs {
                missing: 1,
                foreign: 1,
            }),
        );
        check(
            &[Foreign, Extended, Foreign],
            Some(ExtendOutcome::NotOurs {
                missing: 0,
                foreign: 2,
            }),
        );
    }

    #[test]
    fn heals_only_what_is_missing_after_a_proof_and_only_once() {
        let mut round = check(&[Missing, Extended], None);
        assert!(
            round.due_for_heal(at(5)).is_empty(),
            "no quorum has proved anything yet"
        );
        round.handle_answer(2, Extended, at(6));
        assert_eq!(round.due_for_heal(at(6)).iter().collect::<Vec<_>>(), [0]);
        round.handle_heal_sent(0);
        assert!(round.due_for_heal(at(6)).is_empty());
    }

    #[test]
    fn a_late_missing_is_healed_while_the_validity_lasts() {
        let mut round = check(
            &[Extended, Extended],
            Some(ExtendOutcome::Extended {
                valid_until: at(988),
            }),
        );
        round.handle_answer(2, Missing, at(50));
        assert!(round.clone().due_for_heal(at(988)).is_empty());
        assert_eq!(round.due_for_heal(at(987)).len(), 1);
    }

    #[test]
    fn foreign_keys_and_lost_rounds_are_not_healed() {
        let round = check(
            &[Foreign, Extended, Extended],
            Some(ExtendOutcome::Extended {
                valid_until: at(988),
            }),
        );
        assert!(round.due_for_heal(at(6)).is_empty());
        let lost = check(
            &[Missing, Missing],
            Some(ExtendOutcome::NotOurs {
                missing: 2,
                foreign: 0,
            }),
        );
        assert!(lost.due_for_heal(at(6)).is_empty());
    }

    #[test]
    fn a_quorum_after_the_deadline_proves_nothing() {
        let mut round = round();
        round.handle_answer(0, Extended, at(1));
        round.handle_answer(1, Extended, at(100));
        assert_eq!(round.outcome(), Some(ExtendOutcome::Unsure));
    }
}
