//! The life of a held lock as a machine (R15–R17), through virtual time in any order of calls.

use crate::drawn::{gap, lease, more, ordinary_moment};
use proptest::prelude::*;
use quorumlock::quorum::{
    Drift, ExtendOutcome, Hold, HoldAction, LONGEST_TTL, Lease, Loss, Moment,
};
use std::time::Duration;

/// Loss is said at most so long before the validity ends.
const MOST_LEAD: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
enum Call {
    /// If an extension is asked for, it is sent or not.
    Poll {
        sends: bool,
    },
    PollLoss,
    /// An extension by hand is sent, if the lock is held.
    ByHand,
    /// One that is under way ends. What it proves may lie before the validity that is known.
    Answer(Answer),
    Lose(Loss),
    End,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    /// So many hundredths of the most that an extension can prove, from now on.
    Extended {
        share: u32,
    },
    NotOurs,
    Unsure,
}

fn calls() -> impl Strategy<Value = Vec<(u32, Call)>> {
    let answer = prop_oneof![
        6 => (0_u32..=100).prop_map(|share| Answer::Extended { share }),
        1 => Just(Answer::NotOurs),
        2 => Just(Answer::Unsure),
    ];
    let call = prop_oneof![
        20 => (0_u32..10).prop_map(|draw| Call::Poll { sends: draw > 0 }),
        4 => Just(Call::PollLoss),
        4 => Just(Call::ByHand),
        12 => answer.prop_map(Call::Answer),
        1 => prop_oneof![Just(Loss::WatchdogDied), Just(Loss::Forked)].prop_map(Call::Lose),
        1 => Just(Call::End),
    ];
    // Hundredths of the TTL; now and then the process was suspended.
    let step = prop_oneof![6 => 0_u32..=12, 1 => 0_u32..=40, 1 => 0_u32..500];
    prop::collection::vec((step, call), 0..80)
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    lease: Lease,
    elapsed: Duration,
    watchdog: bool,
    longest: Option<Duration>,
    began: Moment,
}

fn setting() -> impl Strategy<Value = Setting> {
    let longest = prop_oneof![2 => Just(None), 1 => gap().prop_map(Some)];
    (
        lease(),
        0_u32..100,
        any::<bool>(),
        longest,
        ordinary_moment(),
    )
        .prop_map(|(lease, share, watchdog, longest, began)| Setting {
            elapsed: lease.most_validity() * share / 200,
            lease,
            watchdog,
            longest,
            began,
        })
}

/// The machine, and what a holder has seen of it.
struct World {
    setting: Setting,
    hold: Hold,
    now: Moment,
    /// When the hold began, after the acquisition.
    since: Moment,
    under_way: u32,
    /// Whether the present call was the end of one that was under way.
    answered: bool,
    loss: Option<Loss>,
    told: bool,
    ended: bool,
    valid_until: Moment,
}

impl World {
    fn new(setting: Setting) -> Self {
        let Setting {
            lease,
            elapsed,
            watchdog,
            longest,
            began,
        } = setting;
        let (valid_until, now) = (lease.valid_until(began), began.plus(elapsed));
        Self {
            setting,
            hold: Hold::begin(lease, valid_until, watchdog, longest, now),
            now,
            since: now,
            under_way: 0,
            answered: false,
            loss: None,
            told: false,
            ended: false,
            valid_until,
        }
    }

    fn play(&mut self, after: u32, call: Call) -> Result<(), TestCaseError> {
        self.now = self.now.plus(self.setting.lease.ttl() * after / 100);
        let mut most = self.valid_until;
        self.answered = matches!(call, Call::Answer(_)) && self.under_way > 0;
        match call {
            Call::Poll { sends } => self.poll(sends)?,
            Call::PollLoss => {
                let loss = self.hold.poll_loss(self.now);
                prop_assert_eq!(loss, self.hold.loss());
            }
            Call::ByHand if self.hold.is_held(self.now) => {
                self.hold.handle_extension_begun();
                self.under_way += 1;
            }
            Call::Answer(answer) if self.under_way > 0 => {
                self.under_way -= 1;
                let outcome = match answer {
                    Answer::Extended { share } => ExtendOutcome::Extended {
                        valid_until: self
                            .now
                            .plus(self.setting.lease.most_validity() * share / 100),
                    },
                    Answer::NotOurs => ExtendOutcome::NotOurs {
                        missing: 1,
                        foreign: 2,
                    },
                    Answer::Unsure => ExtendOutcome::Unsure,
                };
                if let ExtendOutcome::Extended { valid_until } = outcome {
                    most = most.max(valid_until);
                }
                self.hold.handle_extension(outcome, self.now);
            }
            Call::Lose(reason) => self.hold.lose(reason),
            Call::End => {
                self.hold.end();
                self.ended = true;
            }
            Call::ByHand | Call::Answer(_) => {}
        }
        self.check(call, most)
    }

    fn poll(&mut self, sends: bool) -> Result<(), TestCaseError> {
        let action = self.hold.poll(self.now);
        if self.ended {
            prop_assert_eq!(action, HoldAction::Over, "something after the end");
            return Ok(());
        }
        match action {
            HoldAction::WaitUntil(next) => {
                prop_assert!(self.loss.is_none() && next > self.now, "a hot loop");
                prop_assert!(
                    next < self.valid_until,
                    "asked again only after the validity"
                );
            }
            HoldAction::Extend => {
                prop_assert!(self.setting.watchdog, "nobody asked for a watchdog");
                prop_assert!(self.loss.is_none() && self.now < self.valid_until);
                prop_assert_eq!(self.under_way, 0, "a second extension beside the first");
                let end = self.setting.longest.map(|longest| self.since.plus(longest));
                prop_assert!(
                    end.is_none_or(|end| self.now < end),
                    "past the longest hold"
                );
                if sends {
                    self.hold.handle_extension_begun();
                    self.under_way += 1;
                }
            }
            HoldAction::Lose(reason) => {
                prop_assert!(!self.told, "told twice");
                prop_assert_eq!(self.hold.loss(), Some(reason));
                self.told = true;
            }
            HoldAction::Over => prop_assert!(self.told, "over without a word"),
        }
        Ok(())
    }

    fn check(&mut self, call: Call, most: Moment) -> Result<(), TestCaseError> {
        let (hold, now) = (&self.hold, self.now);
        let valid_until = hold.valid_until();
        prop_assert!(valid_until >= self.valid_until, "the validity shrank");
        prop_assert!(valid_until <= most, "more validity than was proved");
        let moved = valid_until > self.valid_until;
        prop_assert!(
            !moved || self.loss.is_none() && !self.ended,
            "moved after the end"
        );
        prop_assert!(
            !moved || now < self.valid_until,
            "revived after it had expired"
        );
        prop_assert_eq!(hold.is_ended(), self.ended);
        if let Some(before) = self.loss {
            prop_assert_eq!(hold.loss(), Some(before), "lost is final");
        } else if let (Some(loss), false) = (hold.loss(), self.ended) {
            let told = match call {
                Call::Lose(reason) => loss == reason,
                Call::Answer(Answer::NotOurs) if matches!(loss, Loss::NotOurs { .. }) => true,
                _ => self.expired(loss),
            };
            prop_assert!(told, "lost by {:?} for {:?}", call, loss);
        } else if self.ended {
            prop_assert_eq!(hold.loss(), None, "lost after the end");
        }
        let not_ours = matches!(call, Call::Answer(Answer::NotOurs)) && self.answered;
        prop_assert!(
            !not_ours || hold.loss().is_some() || self.ended,
            "proved lost, and kept"
        );
        let over = hold.loss().is_some() || self.ended;
        prop_assert!(!over || !hold.is_held(now) && hold.remaining(now).is_zero());
        prop_assert!(over || hold.remaining(now) == now.until(valid_until));
        prop_assert!(
            !hold.is_held(now) || now < valid_until,
            "held without validity"
        );
        let polled = matches!(call, Call::Poll { .. } | Call::PollLoss);
        prop_assert!(
            !(polled && !over && now >= valid_until),
            "expired, and nobody is told"
        );
        (self.loss, self.valid_until) = (hold.loss(), valid_until);
        Ok(())
    }

    /// Whether it may be lost by its expiry: not earlier than needed, and for the right reason.
    fn expired(&self, loss: Loss) -> bool {
        let past = self
            .setting
            .longest
            .is_some_and(|longest| self.now >= self.since.plus(longest));
        let reason = if past {
            Loss::HeldTooLong
        } else {
            Loss::Expired
        };
        loss == reason && self.now >= self.valid_until.minus(MOST_LEAD)
    }
}

proptest! {
    #![proptest_config(more())]

    #[test]
    fn a_hold_keeps_its_rules_in_any_order(setting in setting(), calls in calls()) {
        let mut world = World::new(setting);
        for (after, call) in calls {
            world.play(after, call)?;
        }
    }

    /// Asked at the moments that it names, a lock that nobody extends is lost in time: before
    /// its validity ends, and told once.
    #[test]
    fn loss_is_told_before_the_validity_ends(setting in setting(), unsure in any::<bool>()) {
        let mut world = World::new(setting);
        for _ in 0..1_000 {
            world.play(0, Call::Poll { sends: true })?;
            if world.told {
                break;
            }
            if world.under_way > 0 && unsure {
                world.play(0, Call::Answer(Answer::Unsure))?;
            }
            if let HoldAction::WaitUntil(next) = world.hold.clone().poll(world.now) {
                world.now = next;
            }
        }
        prop_assert!(world.told && world.now < world.valid_until);
        world.play(40, Call::Answer(Answer::Extended { share: 100 }))?;
        world.play(0, Call::Poll { sends: true })?;
    }

    /// R17: an extension is asked for a third of the TTL after the send that proved the validity,
    /// of the acquisition and then of each extension, however long its answer took.
    #[test]
    fn a_watchdog_extends_at_a_third_of_the_ttl(
        ttl_ms in 60_u64..60_000, took in 0_u32..30, began in ordinary_moment(),
    ) {
        let lease = Lease::new(Duration::from_millis(ttl_ms), Drift::default(), LONGEST_TTL).unwrap();
        let (mut sent, took) = (began, lease.ttl() * took / 100);
        let mut hold = Hold::begin(lease, lease.valid_until(began), true, None, began.plus(took));
        prop_assert!(hold.is_watched());
        for _ in 0..3 {
            let due = sent.plus(lease.ttl() / 3);
            prop_assert_eq!(hold.poll(sent.plus(took)), HoldAction::WaitUntil(due));
            prop_assert_eq!(hold.poll(due), HoldAction::Extend);
            hold.handle_extension_begun();
            sent = due;
            let valid_until = lease.valid_until(sent);
            hold.handle_extension(ExtendOutcome::Extended { valid_until }, sent.plus(took));
        }
    }

    /// A watchdog whose rounds succeed keeps the lock, whatever is extended by hand beside it.
    #[test]
    fn a_watchdog_whose_rounds_succeed_keeps_the_lock(
        ttl_ms in 50_u64..60_000, acquired in 0_u32..20, rounds in prop::collection::vec(0_u32..20, 60),
        by_hand in prop::collection::vec((0_u32..60, 1_u32..=100), 0..20), began in ordinary_moment(),
    ) {
        let lease = Lease::new(Duration::from_millis(ttl_ms), Drift::default(), LONGEST_TTL).unwrap();
        let mut now = began.plus(lease.ttl() * acquired / 100);
        let mut hold = Hold::begin(lease, lease.valid_until(began), true, None, now);
        let mut hands = by_hand.into_iter();
        let mut hand = None;
        for took in rounds {
            let took = lease.ttl() * took / 100;
            hand = hand.or_else(|| hands.next().map(|(wait, part)| (now.plus(lease.ttl() * wait / 100), part)));
            let sent = now;
            let proved = match (hold.poll(now), hand) {
                (HoldAction::Extend, _) => {
                    hold.handle_extension_begun();
                    lease.most_validity()
                }
                (HoldAction::WaitUntil(next), Some((at, part))) if at <= next => {
                    now = now.max(at);
                    hold.handle_extension_begun();
                    hand = None;
                    lease.most_validity() * part / 100
                }
                (HoldAction::WaitUntil(next), _) => {
                    now = next;
                    continue;
                }
                (HoldAction::Lose(loss), _) => return Err(TestCaseError::fail(format!("lost: {loss}"))),
                (HoldAction::Over, _) => return Err(TestCaseError::fail("over")),
            };
            let sent = sent.max(now);
            now = now.plus(took);
            let valid_until = sent.plus(proved);
            let outcome = if now < valid_until { ExtendOutcome::Extended { valid_until } } else { ExtendOutcome::Unsure };
            hold.handle_extension(outcome, now);
        }
    }
}
