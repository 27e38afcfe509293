//! The life of a held lock as a machine: when to extend, and when it is lost (R15–R17).
//!
//! Invariants:
//! 1. Lost is final: no extension is asked for, and no answer revives it.
//! 2. The end of the validity only ever moves later, and only while the lock is not lost.
//! 3. Loss is said before the validity ends, never after, as long as somebody asks in time.
//! 4. After `end` nothing is asked for any more: no extension follows a release.

use super::{ExtendOutcome, Lease, Loss, Moment};
use std::time::Duration;

/// Loss is aimed this long before the end of the validity: room to be told and to stop.
const MOST_LEAD: Duration = Duration::from_millis(5);
/// The least pause before a failed extension is tried again.
const LEAST_RETRY: Duration = Duration::from_millis(5);

/// What a holder does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAction {
    /// Ask again at this moment.
    WaitUntil(Moment),
    /// Send an extension now, and say so through `handle_extension_begun`.
    Extend,
    /// The lock is lost; said once, then [`HoldAction::Over`].
    Lose(Loss),
    /// Lost and told, or ended: nothing is left to do.
    Over,
}

/// The life of one held lock.
///
/// Calling order: [`begin`](Self::begin) with what the acquisition gave;
/// [`poll`](Self::poll) at the moments that it names; for each extension that is sent because of
/// [`HoldAction::Extend`] one [`handle_extension_begun`](Self::handle_extension_begun)
/// and one [`handle_extension`](Self::handle_extension); [`end`](Self::end) when the holder lets go.
#[derive(Clone, Debug)]
pub struct Hold {
    lease: Lease,
    valid_until: Moment,
    /// When the watchdog extends next; `None` without a watchdog, or past the longest hold.
    extend_at: Option<Moment>,
    /// From here on nothing is extended.
    extend_no_more_at: Option<Moment>,
    /// Extensions that were sent and have not ended: the watchdog's, or by hand.
    under_way: u32,
    lost: Option<Loss>,
    told: bool,
    ended: bool,
}

impl Hold {
    /// Begins a hold that is valid until `valid_until`.
    ///
    /// `watchdog` says whether it extends by itself, `longest` for how long at most.
    pub fn begin(
        lease: Lease,
        valid_until: Moment,
        watchdog: bool,
        longest: Option<Duration>,
        now: Moment,
    ) -> Self {
        Self {
            lease,
            valid_until,
            extend_at: watchdog.then(|| third_after_send(&lease, valid_until)),
            extend_no_more_at: longest.map(|span| now.plus(span)),
            under_way: 0,
            lost: None,
            told: false,
            ended: false,
        }
    }

    /// An extension that was asked for was sent: none is asked for beside it.
    pub fn handle_extension_begun(&mut self) {
        self.under_way = self.under_way.saturating_add(1);
    }

    /// An extension ended.
    pub fn handle_extension(&mut self, outcome: ExtendOutcome, now: Moment) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.lost.is_some() || self.ended {
            return;
        }
        if now >= self.lose_at() {
            // Too late to be believed, whatever was answered: loss is final.
            self.lost = Some(self.expiry_reason(now));
            return;
        }
        match outcome {
            ExtendOutcome::Extended { valid_until } => {
                self.valid_until = self.valid_until.max(valid_until);
                self.reschedule(third_after_send(&self.lease, self.valid_until));
            }
            ExtendOutcome::NotOurs { missing, foreign } => {
                self.lost = Some(Loss::NotOurs { missing, foreign });
            }
            ExtendOutcome::Unsure => {
                self.reschedule(now.plus((self.lease.ttl() / 20).max(LEAST_RETRY)));
            }
        }
    }

    /// An extension by hand ended; it stood beside the watchdog's, and barred none.
    ///
    /// It may stay undecided for as long as its caller does not look: the watchdog goes on.
    pub fn handle_extension_by_hand(&mut self, outcome: ExtendOutcome, now: Moment) {
        if outcome == ExtendOutcome::Unsure {
            return;
        }
        let under_way = self.under_way;
        self.handle_extension(outcome, now);
        self.under_way = under_way;
    }

    /// Whether the longest time to hold leaves room for an extension.
    pub fn may_extend(&self, now: Moment) -> bool {
        self.extend_no_more_at.is_none_or(|end| now < end)
    }

    /// Something outside the protocol makes the lock unsure; the first reason stays.
    pub fn lose(&mut self, reason: Loss) {
        if self.lost.is_none() && !self.ended {
            self.lost = Some(reason);
        }
    }

    /// The holder lets go: from here on no extension is asked for, and loss is not told.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What to do now.
    pub fn poll(&mut self, now: Moment) -> HoldAction {
        if self.ended {
            return HoldAction::Over;
        }
        if self.lost.is_none() && now >= self.lose_at() {
            self.lost = Some(self.expiry_reason(now));
        }
        if let Some(reason) = self.lost {
            if self.told {
                return HoldAction::Over;
            }
            self.told = true;
            return HoldAction::Lose(reason);
        }
        match self.extend_at {
            Some(due) if self.under_way == 0 => {
                if self.extend_no_more_at.is_some_and(|end| now >= end) {
                    self.extend_at = None;
                    return HoldAction::WaitUntil(self.lose_at());
                }
                if now >= due {
                    return HoldAction::Extend;
                }
                HoldAction::WaitUntil(due.min(self.lose_at()))
            }
            Some(_) | None => HoldAction::WaitUntil(self.lose_at()),
        }
    }

    /// Looks only whether the lock is lost by now, and leaves the telling to [`poll`](Self::poll).
    pub fn poll_loss(&mut self, now: Moment) -> Option<Loss> {
        if !self.ended && self.lost.is_none() && now >= self.lose_at() {
            self.lost = Some(self.expiry_reason(now));
        }
        self.lost
    }

    /// Whether the holder may still rely on the lock.
    pub fn is_held(&self, now: Moment) -> bool {
        self.lost.is_none() && !self.ended && now < self.lose_at()
    }

    /// Whether it is extended by itself.
    pub fn is_watched(&self) -> bool {
        self.extend_at.is_some()
    }

    /// The end of the validity.
    pub fn valid_until(&self) -> Moment {
        self.valid_until
    }

    /// How long the holder may still rely on the lock; zero once it is lost or ended.
    pub fn remaining(&self, now: Moment) -> Duration {
        if self.lost.is_some() || self.ended {
            Duration::ZERO
        } else {
            now.until(self.valid_until)
        }
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        self.lost
    }

    /// Whether the holder has let go.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The TTL and drift under which the lock was acquired.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// When loss is said: a few milliseconds before the end, less for the shortest TTLs.
    fn lose_at(&self) -> Moment {
        self.valid_until.minus(MOST_LEAD.min(self.lease.ttl() / 20))
    }

    fn expiry_reason(&self, now: Moment) -> Loss {
        match self.extend_no_more_at {
            Some(end) if now >= end => Loss::HeldTooLong,
            Some(_) | None => Loss::Expired,
        }
    }

    fn reschedule(&mut self, due: Moment) {
        if self.extend_at.is_some() {
            self.extend_at = Some(due);
        }
    }
}

/// A third of the TTL after the round was sent that proved this validity (R17).
fn third_after_send(lease: &Lease, valid_until: Moment) -> Moment {
    valid_until
        .minus(lease.most_validity())
        .plus(lease.ttl() / 3)
}

#[cfg(test)]
mod tests {
    use super::super::{Drift, LONGEST_TTL};
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO.plus(Duration::from_millis(ms))
    }

    fn hold(watchdog: bool, longest_ms: Option<u64>) -> Hold {
        let lease = Lease::new(Duration::from_millis(300), Drift::default(), LONGEST_TTL).unwrap();
        Hold::begin(
            lease,
            at(295),
            watchdog,
            longest_ms.map(Duration::from_millis),
            at(0),
        )
    }

    #[test]
    fn extends_at_a_third_and_starts_anew_from_each_success() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(0)), HoldAction::WaitUntil(at(100)));
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        assert_eq!(
            hold.poll(at(101)),
            HoldAction::WaitUntil(at(290)),
            "one at a time"
        );
        hold.handle_extension(
            ExtendOutcome::Extended {
                valid_until: at(395),
            },
            at(102),
        );
        assert_eq!(hold.poll(at(102)), HoldAction::WaitUntil(at(200)));
        assert_eq!(hold.valid_until(), at(395));
    }

    #[test]
    fn a_failed_extension_is_tried_again_within_the_validity() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.handle_extension(ExtendOutcome::Unsure, at(150));
        assert_eq!(hold.valid_until(), at(295), "nothing has changed");
        assert_eq!(hold.poll(at(150)), HoldAction::WaitUntil(at(165)));
        assert_eq!(hold.poll(at(165)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.handle_extension(
            ExtendOutcome::Extended {
                valid_until: at(460),
            },
            at(166),
        );
        assert!(hold.is_held(at(300)));
    }

    #[test]
    fn lost_before_the_validity_ends_once_and_for_ever() {
        let mut hold = hold(false, None);
        assert!(hold.is_held(at(289)));
        assert_eq!(hold.poll(at(290)), HoldAction::Lose(Loss::Expired));
        assert_eq!(hold.poll(at(290)), HoldAction::Over);
        hold.handle_extension(
            ExtendOutcome::Extended {
                valid_until: at(900),
            },
            at(291),
        );
        assert!(!hold.is_held(at(291)) && hold.remaining(at(291)).is_zero());
        assert_eq!(hold.poll(at(292)), HoldAction::Over);
    }

    #[test]
    fn an_extension_that_succeeds_too_late_is_not_believed() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.handle_extension(
            ExtendOutcome::Extended {
                valid_until: at(395),
            },
            at(293),
        );
        assert_eq!(hold.poll(at(293)), HoldAction::Lose(Loss::Expired));
    }

    #[test]
    fn proved_loss_is_told_at_once_with_its_reason() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.handle_extension(
            ExtendOutcome::NotOurs {
                missing: 0,
                foreign: 2,
            },
            at(101),
        );
        assert!(!hold.is_held(at(101)));
        assert_eq!(
            hold.poll(at(101)),
            HoldAction::Lose(Loss::NotOurs {
                missing: 0,
                foreign: 2
            })
        );
    }

    #[test]
    fn an_extension_never_brings_the_end_nearer() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.handle_extension(
            ExtendOutcome::Extended {
                valid_until: at(120),
            },
            at(102),
        );
        assert_eq!(hold.valid_until(), at(295));
    }

    #[test]
    fn past_the_longest_hold_nothing_is_extended_and_it_is_lost_in_time() {
        let mut hold = hold(true, Some(50));
        assert_eq!(hold.poll(at(100)), HoldAction::WaitUntil(at(290)));
        assert_eq!(hold.poll(at(290)), HoldAction::Lose(Loss::HeldTooLong));
    }

    #[test]
    fn after_the_end_nothing_happens() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(100)), HoldAction::Extend);
        hold.handle_extension_begun();
        hold.end();
        hold.handle_extension(
            ExtendOutcome::NotOurs {
                missing: 3,
                foreign: 0,
            },
            at(101),
        );
        assert_eq!(hold.poll(at(400)), HoldAction::Over);
        assert_eq!(hold.loss(), None);
    }

    #[test]
    fn after_a_suspension_the_first_look_says_lost() {
        let mut hold = hold(true, None);
        assert_eq!(hold.poll(at(3_600_000)), HoldAction::Lose(Loss::Expired));
    }
}
