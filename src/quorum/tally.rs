//! Votes in; won, lost or open out, at the earliest moment at which it is certain (R1, R7).
//!
//! Invariants:
//! 1. The quorum is that of the configured masters, never of those that answered.
//! 2. A master votes once a round; what it says afterwards changes nothing.

use super::{MOST_MASTERS, Members};

/// The quorum of `masters` configured masters: ⌊N/2⌋ + 1.
pub const fn quorum_of(masters: usize) -> usize {
    masters / 2 + 1
}

/// Whether waiting can mend a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mending {
    /// It may pass by itself: a server that is down, loading, busy, out of memory.
    Passing,
    /// It stays until somebody changes something: no rights, a key of another type.
    Lasting,
}

/// One master's answer to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The master did what was asked.
    Granted,
    /// The master answered that somebody else stands in the way.
    Denied,
    /// The master gave no usable answer.
    Failed(Mending),
}

/// What the votes so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Neither is certain yet.
    Open,
    /// A quorum granted.
    Won,
    /// A quorum is out of reach.
    Lost,
}

/// The votes of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    masters: usize,
    granted: Members,
    denied: Members,
    failed: Members,
    /// Those of `failed` that waiting cannot mend.
    lasting: Members,
}

impl Tally {
    /// An empty tally for so many configured masters.
    ///
    /// # Panics
    /// With no master, or with more than [`MOST_MASTERS`]: settings are checked before.
    pub fn new(masters: usize) -> Self {
        assert!(
            (1..=MOST_MASTERS).contains(&masters),
            "a lock has 1 to {MOST_MASTERS} masters"
        );
        Self {
            masters,
            granted: Members::NONE,
            denied: Members::NONE,
            failed: Members::NONE,
            lasting: Members::NONE,
        }
    }

    /// Counts a vote; says whether it was the master's first.
    pub fn record(&mut self, master: usize, vote: Vote) -> bool {
        if master >= self.masters || self.has_voted(master) {
            return false;
        }
        match vote {
            Vote::Granted => self.granted.insert(master),
            Vote::Denied => self.denied.insert(master),
            Vote::Failed(mending) => {
                self.failed.insert(master);
                if mending == Mending::Lasting {
                    self.lasting.insert(master);
                }
            }
        }
        true
    }

    /// Whether the master's vote is in.
    pub fn has_voted(&self, master: usize) -> bool {
        self.granted.contains(master)
            || self.denied.contains(master)
            || self.failed.contains(master)
    }

    /// How many masters are configured.
    pub fn masters(&self) -> usize {
        self.masters
    }

    /// The masters that granted.
    pub fn granted(&self) -> Members {
        self.granted
    }

    /// The masters that denied.
    pub fn denied(&self) -> Members {
        self.denied
    }

    /// The masters that gave no usable answer.
    pub fn failed(&self) -> Members {
        self.failed
    }

    /// How many masters have not answered.
    pub fn open(&self) -> usize {
        self.masters - self.granted.len() - self.denied.len() - self.failed.len()
    }

    /// The quorum of the configured masters.
    pub fn quorum(&self) -> usize {
        quorum_of(self.masters)
    }

    /// What the votes so far amount to.
    pub fn standing(&self) -> Standing {
        if self.granted.len() >= self.quorum() {
            Standing::Won
        } else if self.granted.len() + self.open() < self.quorum() {
            Standing::Lost
        } else {
            Standing::Open
        }
    }

    /// Whether denials alone put a quorum out of reach: enough masters said 'not yours'.
    pub fn is_denied(&self) -> bool {
        self.denied.len() > self.masters - self.quorum()
    }

    /// Whether failures alone put a quorum out of reach, whoever holds the lock.
    pub fn is_unreachable(&self) -> bool {
        self.failed.len() > self.masters - self.quorum()
    }

    /// The same, where time is up and who is silent has failed.
    pub fn is_unreachable_at_timeout(&self) -> bool {
        self.failed.len() + self.open() > self.masters - self.quorum()
    }

    /// Whether failures that waiting cannot mend put a quorum out of reach (R14).
    pub fn is_hopeless(&self) -> bool {
        self.lasting.len() > self.masters - self.quorum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTES: [Option<Vote>; 5] = [
        None,
        Some(Vote::Granted),
        Some(Vote::Denied),
        Some(Vote::Failed(Mending::Passing)),
        Some(Vote::Failed(Mending::Lasting)),
    ];

    #[test]
    fn quorum_is_more_than_half_of_the_configured() {
        for (masters, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)] {
            assert_eq!(quorum_of(masters), quorum);
        }
    }

    /// Every combination of votes (and of no vote yet) for up to five masters, against the
    /// definition counted out by hand.
    #[test]
    fn every_combination_of_votes_up_to_five_masters() {
        for masters in 1..=5_usize {
            let choices = VOTES.len();
            for code in 0..choices.pow(u32::try_from(masters).unwrap()) {
                let votes: Vec<_> = (0..masters)
                    .map(|m| VOTES[code / choices.pow(u32::try_from(m).unwrap()) % choices])
                    .collect();
                check_combination(&votes);
            }
        }
    }

    fn check_combination(votes: &[Option<Vote>]) {
        let masters = votes.len();
        let mut tally = Tally::new(masters);
        for (master, vote) in votes.iter().enumerate() {
            if let Some(vote) = vote {
                assert!(tally.record(master, *vote));
                assert!(
                    !tally.record(master, Vote::Granted),
                    "a second vote counts for nothing"
                );
            }
        }
        let count =
            |wanted: fn(&Vote) -> bool| votes.iter().flatten().filter(|v| wanted(v)).count();
        let granted = count(|v| matches!(v, Vote::Granted));
        let denied = count(|v| matches!(v, Vote::Denied));
        let lasting = count(|v| matches!(v, Vote::Failed(Mending::Lasting)));
        let open = votes.iter().filter(|v| v.is_none()).count();
        let majority = |n: usize| 2 * n > masters;
        let expected = if majority(granted) {
            Standing::Won
        } else if !majority(granted + open) {
            Standing::Lost
        } else {
            Standing::Open
        };
        assert_eq!(tally.standing(), expected, "{votes:?}");
        assert_eq!(tally.is_denied(), !majority(masters - denied), "{votes:?}");
        assert_eq!(
            tally.is_hopeless(),
            !majority(masters - lasting),
            "{votes:?}"
        );
        let failed = count(|v| matches!(v, Vote::Failed(_)));
        assert_eq!(
            tally.is_unreachable(),
            !majority(masters - failed),
            "{votes:?}"
        );
        assert_eq!(
            tally.is_unreachable_at_timeout(),
            !majority(granted + denied),
            "{votes:?}"
        );
    }

    #[test]
    fn votes_of_strangers_do_not_count() {
        let mut tally = Tally::new(3);
        assert!(!tally.record(3, Vote::Granted));
        assert_eq!(tally.open(), 3);
    }
}
