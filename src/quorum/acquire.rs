//! One attempt as a machine: granted, refused, too slow or undecided; and what must be undone.
//!
//! It does not know commands, connections or tokens; the driver names masters by index.
//!
//! Invariants:
//! 1. The outcome is decided at the earliest moment and never changes (R7).
//! 2. `Granted` is said only while the validity left is above the least asked for (R8).
//! 3. Whatever is not `Granted` is undone on every master that may hold the SET (R9): those that
//!    granted and those that were sent it and have not answered. A master that denied, or that
//!    answered with an error, holds nothing of this attempt.

use super::{Lease, Members, Moment, Standing, Tally, Terms, Vote};
use std::time::Duration;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// A quorum granted in time; the lock is held until this moment.
    Granted {
        /// The end of the validity.
        valid_until: Moment,
    },
    /// A quorum is out of reach: the tally says because of whom.
    Refused,
    /// The validity was gone, or not above the least asked for, before a quorum had granted.
    TooSlow,
    /// The per-master timeout passed before it was decided: who is silent counts as failed.
    TimedOut,
    /// The caller's own wait ended before it was decided: silence says nothing of the masters.
    CutShort,
}

/// One fan-out of `SET key token NX PX ttl` to all masters.
///
/// Calling order: [`begin`](Self::begin), then for each master
/// [`handle_sent`](Self::handle_sent) or a failed [`handle_vote`](Self::handle_vote); votes as
/// they come; [`handle_time`](Self::handle_time) at [`deadline`](Self::deadline). The round is
/// over once [`outcome`](Self::outcome) is `Some`.
#[derive(Clone, Debug)]
pub struct AcquireRound {
    tally: Tally,
    /// Masters whose answer, or silence, leaves it open whether they hold the SET.
    may_hold: Members,
    least: Duration,
    timeout_at: Moment,
    /// The end of the caller's own wait, where it comes before the timeout.
    cut_at: Option<Moment>,
    valid_until: Moment,
    outcome: Option<AcquireOutcome>,
}

impl AcquireRound {
    /// Begins an attempt, before its first byte is sent.
    ///
    /// `least` is the least validity asked for; `give_up_at` the end of the caller's own wait,
    /// if it has one (R14).
    pub fn begin(
        terms: &Terms,
        lease: &Lease,
        least: Duration,
        give_up_at: Option<Moment>,
        now: Moment,
    ) -> Self {
        let timeout_at = now.plus(terms.timeout_for(lease.ttl()));
        Self {
            tally: Tally::new(terms.masters),
            may_hold: Members::NONE,
            least,
            timeout_at,
            cut_at: give_up_at.filter(|end| *end < timeout_at),
            valid_until: lease.valid_until(now),
            outcome: None,
        }
    }

    /// The SET is on its way to this master: from here on it may hold the lock.
    pub fn handle_sent(&mut self, master: usize) {
        self.may_hold.insert(master);
    }

    /// A master voted.
    ///
    /// A failed vote of a master that was sent the SET means that *no answer* came (a broken
    /// connection); a server's own refusal is told by [`handle_error`](Self::handle_error).
    pub fn handle_vote(&mut self, master: usize, vote: Vote, now: Moment) {
        if !self.tally.record(master, vote) {
            return;
        }
        if vote == Vote::Denied {
            self.may_hold.remove(master);
        }
        self.decide(now);
    }

    /// A master answered the SET with an error: its vote failed, and it holds nothing.
    pub fn handle_error(&mut self, master: usize, vote: Vote, now: Moment) {
        if !self.tally.has_voted(master) {
            self.may_hold.remove(master);
        }
        self.handle_vote(master, vote, now);
    }

    /// Time has passed: an undecided round ends at its deadline.
    pub fn handle_time(&mut self, now: Moment) {
        self.decide(now);
        if self.outcome.is_none() && now >= self.timeout_at {
            self.outcome = Some(AcquireOutcome::TimedOut);
        } else if self.outcome.is_none() && self.cut_at.is_some_and(|end| now >= end) {
            self.outcome = Some(AcquireOutcome::CutShort);
        }
    }

    /// When an undecided round ends: the earliest of its timeout, the end of its validity and
    /// the end of the caller's own wait.
    pub fn deadline(&self) -> Moment {
        let own = self.timeout_at.min(self.too_slow_at());
        self.cut_at.map_or(own, |end| end.min(own))
    }

    /// How the attempt ended, once it has.
    pub fn outcome(&self) -> Option<AcquireOutcome> {
        self.outcome
    }

    /// The votes so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The masters on which an attempt that is not `Granted` must be undone (R9).
    pub fn to_undo(&self) -> Members {
        self.may_hold
    }

    fn decide(&mut self, now: Moment) {
        if self.outcome.is_some() {
            return;
        }
        let late = now >= self.too_slow_at();
        self.outcome = match self.tally.standing() {
            Standing::Lost => Some(AcquireOutcome::Refused),
            Standing::Won | Standing::Open if late => Some(AcquireOutcome::TooSlow),
            Standing::Won => Some(AcquireOutcome::Granted {
                valid_until: self.valid_until,
            }),
            Standing::Open => None,
        };
    }

    /// From this moment on the validity left is not above the least asked for.
    fn too_slow_at(&self) -> Moment {
        self.valid_until.minus(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Drift, LONGEST_TTL, Mending};
    use super::*;

    const PASSING: Vote = Vote::Failed(Mending::Passing);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(1_000_000_000).plus(Duration::from_millis(ms))
    }

    fn round(masters: usize, ttl_ms: u64, timeout_ms: u64) -> AcquireRound {
        let lease =
            Lease::new(Duration::from_millis(ttl_ms), Drift::default(), LONGEST_TTL).unwrap();
        let terms = Terms {
            masters,
            timeout: Some(Duration::from_millis(timeout_ms)),
        };
        let mut round = AcquireRound::begin(&terms, &lease, Duration::ZERO, None, at(0));
        for master in 0..masters {
            round.handle_sent(master);
        }
        round
    }

    #[test]
    fn granted_at_the_moment_of_the_quorum() {
        let mut round = round(5, 1_000, 100);
        round.handle_vote(0, Vote::Granted, at(1));
        round.handle_vote(4, Vote::Granted, at(2));
        assert_eq!(round.outcome(), None);
        round.handle_vote(2, Vote::Granted, at(3));
        assert_eq!(
            round.outcome(),
            Some(AcquireOutcome::Granted {
                valid_until: at(988)
            })
        );
    }

    #[test]
    fn refused_as_soon_as_a_quorum_is_out_of_reach() {
        let mut round = round(3, 1_000, 100);
        round.handle_vote(0, Vote::Denied, at(1));
        assert_eq!(round.outcome(), None);
        round.handle_vote(1, PASSING, at(2));
        assert_eq!(round.outcome(), Some(AcquireOutcome::Refused));
        // Master 0 denied; 1 broke, 2 has not answered: both may hold the SET.
        assert_eq!(round.to_undo().iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn an_error_answer_leaves_nothing_to_undo() {
        let mut round = round(1, 1_000, 100);
        round.handle_error(0, PASSING, at(1));
        assert_eq!(round.outcome(), Some(AcquireOutcome::Refused));
        assert!(round.to_undo().is_empty());
    }

    #[test]
    fn an_error_after_a_grant_does_not_hide_the_grant() {
        let mut round = round(3, 1_000, 100);
        round.handle_vote(0, Vote::Granted, at(1));
        round.handle_error(0, PASSING, at(1));
        assert!(round.to_undo().contains(0));
    }

    #[test]
    fn a_silent_majority_times_out() {
        let mut round = round(3, 1_000, 100);
        round.handle_vote(0, Vote::Granted, at(1));
        assert_eq!(round.deadline(), at(100));
        round.handle_time(at(99));
        assert_eq!(round.outcome(), None);
        round.handle_time(at(100));
        assert_eq!(round.outcome(), Some(AcquireOutcome::TimedOut));
        assert_eq!(round.to_undo().len(), 3);
    }

    #[test]
    fn a_quorum_that_comes_after_the_validity_is_no_lock() {
        let mut round = round(3, 100, 1_000);
        assert_eq!(round.deadline(), at(97), "100 ms less 1 % less 2 ms");
        round.handle_vote(0, Vote::Granted, at(1));
        round.handle_vote(1, Vote::Granted, at(97));
        assert_eq!(round.outcome(), Some(AcquireOutcome::TooSlow));
    }

    #[test]
    fn undecided_when_the_validity_is_gone_is_too_slow() {
        let mut round = round(3, 100, 1_000);
        round.handle_time(round.deadline());
        assert_eq!(round.outcome(), Some(AcquireOutcome::TooSlow));
    }

    #[test]
    fn the_least_validity_is_kept() {
        let lease = Lease::new(Duration::from_millis(100), Drift::default(), LONGEST_TTL).unwrap();
        let terms = Terms {
            masters: 1,
            timeout: None,
        };
        let begin = || AcquireRound::begin(&terms, &lease, Duration::from_millis(90), None, at(0));
        let check = |ms, expected_granted| {
            let mut round = begin();
            round.handle_vote(0, Vote::Granted, at(ms));
            assert_eq!(
                matches!(round.outcome(), Some(AcquireOutcome::Granted { .. })),
                expected_granted
            );
        };
        check(6, true);
        check(7, false);
    }

    #[test]
    fn the_callers_own_deadline_ends_the_round() {
        let lease = Lease::new(Duration::from_secs(10), Drift::default(), LONGEST_TTL).unwrap();
        let terms = Terms {
            masters: 1,
            timeout: None,
        };
        let mut round = AcquireRound::begin(&terms, &lease, Duration::ZERO, Some(at(20)), at(0));
        assert_eq!(round.deadline(), at(20));
        round.handle_time(at(20));
        assert_eq!(round.outcome(), Some(AcquireOutcome::CutShort));
    }

    #[test]
    fn decided_stays_decided() {
        let mut round = round(3, 1_000, 100);
        round.handle_vote(0, Vote::Denied, at(1));
        round.handle_vote(1, Vote::Denied, at(1));
        round.handle_vote(2, Vote::Granted, at(2));
        round.handle_time(at(5_000));
        assert_eq!(round.outcome(), Some(AcquireOutcome::Refused));
        assert_eq!(
            round.to_undo().iter().collect::<Vec<_>>(),
            [2],
            "a late grant is undone (R10)"
        );
    }
}
