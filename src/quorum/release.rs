//! One release as a machine: was it ours, is it no longer, or can it not be told (R22).
//!
//! It never stops short: the delete goes to *all* masters (R21), whatever is decided early.

use super::{Mending, Moment, Standing, Tally, Terms, Vote};
use std::time::Duration;

/// One master's answer to a compare-and-delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// The key was ours and is gone.
    Deleted,
    /// The key was missing or somebody else's.
    NotOurs,
    /// No usable answer: the key may still be there.
    Failed,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// A quorum deleted our key.
    WasOurs,
    /// So many masters did not have it that a quorum is out of reach.
    NoLongerOurs,
    /// Neither could be shown: the release can be asked for again.
    Unconfirmed,
}

/// One fan-out of compare-and-delete to all masters.
///
/// Calling order: [`begin`](Self::begin), answers as they come,
/// [`handle_time`](Self::handle_time) at [`deadline`](Self::deadline).
#[derive(Clone, Debug)]
pub struct ReleaseRound {
    tally: Tally,
    deadline: Moment,
    outcome: Option<ReleaseOutcome>,
}

impl ReleaseRound {
    /// Begins a release whose lock had this TTL.
    pub fn begin(terms: &Terms, ttl: Duration, now: Moment) -> Self {
        Self {
            tally: Tally::new(terms.masters),
            deadline: now.plus(terms.timeout_for(ttl)),
            outcome: None,
        }
    }

    /// A master answered, or failed to.
    pub fn handle_answer(&mut self, master: usize, answer: Deletion) {
        let vote = match answer {
            Deletion::Deleted => Vote::Granted,
            Deletion::NotOurs => Vote::Denied,
            Deletion::Failed => Vote::Failed(Mending::Passing),
        };
        if !self.tally.record(master, vote) || self.outcome.is_some() {
            return;
        }
        self.outcome = if self.tally.standing() == Standing::Won {
            Some(ReleaseOutcome::WasOurs)
        } else if self.tally.is_denied() {
            Some(ReleaseOutcome::NoLongerOurs)
        } else if self.tally.open() == 0 {
            Some(ReleaseOutcome::Unconfirmed)
        } else {
            None
        };
    }

    /// Time has passed: an undecided round ends at its deadline.
    pub fn handle_time(&mut self, now: Moment) {
        if self.outcome.is_none() && now >= self.deadline {
            self.outcome = Some(ReleaseOutcome::Unconfirmed);
        }
    }

    /// When an undecided round ends.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// How the release ended, once it has.
    pub fn outcome(&self) -> Option<ReleaseOutcome> {
        self.outcome
    }

    /// The answers so far: granted is deleted, denied is not ours.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Deletion::{Deleted, Failed, NotOurs};

    fn check(answers: &[Deletion], expected: Option<ReleaseOutcome>) {
        let terms = Terms {
            masters: 3,
            timeout: None,
        };
        let mut round = ReleaseRound::begin(&terms, Duration::from_secs(1), Moment::ZERO);
        for (master, answer) in answers.iter().enumerate() {
            round.handle_answer(master, *answer);
        }
        assert_eq!(round.outcome(), expected, "{answers:?}");
    }

    #[test]
    fn a_quorum_decides_early_and_doubt_waits() {
        check(&[Deleted], None);
        check(&[Deleted, Deleted], Some(ReleaseOutcome::WasOurs));
        check(&[NotOurs, NotOurs], Some(ReleaseOutcome::NoLongerOurs));
        check(&[Deleted, NotOurs], None);
        check(&[Failed, Failed], None);
        check(
            &[Failed, Failed, Deleted],
            Some(ReleaseOutcome::Unconfirmed),
        );
        check(
            &[Deleted, NotOurs, Failed],
            Some(ReleaseOutcome::Unconfirmed),
        );
    }

    #[test]
    fn silence_is_unconfirmed_at_the_timeout() {
        let terms = Terms {
            masters: 3,
            timeout: None,
        };
        let mut round = ReleaseRound::begin(&terms, Duration::from_secs(1), Moment::ZERO);
        round.handle_answer(0, Deleted);
        round.handle_time(Moment::ZERO.plus(Duration::from_millis(99)));
        assert_eq!(round.outcome(), None);
        round.handle_time(round.deadline());
        assert_eq!(round.outcome(), Some(ReleaseOutcome::Unconfirmed));
    }
}
