//! The wait between attempts (R11, R14): pauses in bounds, the deadline kept, one last try.

use crate::drawn::{config, gap, ordinary_moment};
use proptest::prelude::*;
use quorumlock::quorum::{Moment, Next, Patience, Retry, Waiting};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// The last attempt begins so long before the deadline, or half-way of what is left.
const MARGIN: Duration = Duration::from_millis(10);

fn bound() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0_u64..3_000_000).prop_map(Duration::from_nanos),
        (0_u64..2_000).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn draws() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>()]
}

/// One attempt after another until the wait is over: how long each took, and what was drawn.
fn attempts() -> impl Strategy<Value = Vec<(Duration, u64)>> {
    prop::collection::vec((gap(), draws()), 1..40)
}

/// One refusal and what the machine said to it.
#[derive(Clone, Copy, Debug)]
struct Step {
    refused: Moment,
    next: Next,
}

/// Plays attempts that are all refused; the last one of the list is repeated until the end.
fn play(waiting: &mut Waiting, began: Moment, attempts: &[(Duration, u64)]) -> Vec<Step> {
    let mut now = began;
    let mut steps = Vec::new();
    for (took, draw) in attempts {
        now = now.plus(*took);
        let next = waiting.handle_refusal(now, *draw);
        steps.push(Step { refused: now, next });
        match next {
            Next::PauseUntil(wake) => now = wake,
            Next::GiveUp => break,
        }
    }
    steps
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_pause_is_at_least_a_millisecond_and_at_most_its_bound(
        first in bound(), cap in bound(), refusals in prop_oneof![0_u32..80, any::<u32>()], draw in draws(),
    ) {
        let (low, high) = (first.max(MS), cap.max(first).max(MS));
        let retry = Retry::new(first, cap);
        let pause = retry.pause(refusals, draw);
        prop_assert!(pause >= MS && pause <= high, "{:?}", pause);
        let doubled = 1_u32.checked_shl(refusals.saturating_sub(1)).map(|factor| low.saturating_mul(factor));
        prop_assert!(doubled.is_none_or(|most| pause <= most), "grows too soon: {:?}", pause);
        prop_assert!(retry.pause(refusals, 0) <= pause && pause <= retry.pause(refusals, u64::MAX));
    }

    /// Full jitter: over the draws a pause reaches both ends of its range, up to a nanosecond.
    #[test]
    fn pauses_are_spread_over_the_whole_range(first in 2_u64..1_000, refusals in 1_u32..8) {
        let bound = Duration::from_millis(first << (refusals - 1));
        let retry = Retry::new(Duration::from_millis(first), Duration::from_secs(3_600));
        prop_assert_eq!(retry.pause(refusals, 0), MS);
        let top = retry.pause(refusals, u64::MAX);
        prop_assert!(top <= bound && bound.abs_diff(top) <= Duration::from_nanos(1), "{:?} of {:?}", top, bound);
        let middle = retry.pause(refusals, u64::MAX / 2);
        let half = bound.abs_diff(MS) / 2 + MS;
        prop_assert!(middle.abs_diff(half) <= Duration::from_nanos(2), "{:?} of {:?}", middle, bound);
    }

    #[test]
    fn once_never_pauses_and_for_ever_never_gives_up(
        first in 0_u64..2_000, cap in 0_u64..2_000, began in ordinary_moment(), attempts in attempts(),
    ) {
        let retry = Retry::new(Duration::from_millis(first), Duration::from_millis(cap));
        let mut once = Waiting::begin(retry, Patience::Once, began);
        prop_assert_eq!(once.deadline(), None);
        prop_assert_eq!(play(&mut once, began, &attempts).len(), 1);
        let mut for_ever = Waiting::begin(retry, Patience::Forever, began);
        let steps = play(&mut for_ever, began, &attempts);
        prop_assert_eq!(steps.len(), attempts.len());
        prop_assert_eq!(usize::try_from(for_ever.refusals()).unwrap(), attempts.len());
        for step in steps {
            let Next::PauseUntil(wake) = step.next else {
                return Err(TestCaseError::fail("gave up"));
            };
            let pause = wake.since(step.refused);
            prop_assert!(pause >= MS && pause <= Duration::from_millis(first.max(cap).max(1)));
        }
    }

    #[test]
    fn case_25_the_deadline_is_kept_with_exactly_one_last_try(
        first in 0_u64..1_500, cap in 0_u64..3_000, at_most in gap(), began in ordinary_moment(),
        attempts in attempts(),
    ) {
        let retry = Retry::new(Duration::from_millis(first), Duration::from_millis(cap));
        let mut waiting = Waiting::begin(retry, Patience::AtMost(at_most), began);
        let end = began.plus(at_most);
        prop_assert_eq!(waiting.deadline(), Some(end));
        let steps = play(&mut waiting, began, &attempts);
        // A pause that reaches the margin is the last one: the next refusal ends the wait.
        let is_last = |step: &Step| matches!(step.next, Next::PauseUntil(wake)
            if wake == end.minus(MARGIN.min(step.refused.until(end) / 2)));
        for (place, step) in steps.iter().enumerate() {
            match step.next {
                Next::PauseUntil(wake) => {
                    prop_assert!(wake > step.refused, "a pause of nothing");
                    prop_assert!(wake <= end, "a pause beyond the deadline");
                    let margin = MARGIN.min(step.refused.until(end) / 2);
                    prop_assert!(wake <= end.minus(margin), "no time for the last answer");
                    let cap = Duration::from_millis(first.max(cap).max(1));
                    prop_assert!(wake.since(step.refused) <= cap);
                    prop_assert!(step.refused < end, "a pause after the deadline");
                    prop_assert!(place == 0 || !is_last(&steps[place - 1]), "a pause after the last try");
                }
                Next::GiveUp => {
                    let tried_last = place > 0 && is_last(&steps[place - 1]);
                    prop_assert!(tried_last || step.refused >= end, "gave up with time left");
                }
            }
        }
    }

    /// With attempts that take no time a bounded wait ends before its deadline, after a last try.
    #[test]
    fn a_bounded_wait_ends(
        first in 0_u64..500, cap in 0_u64..500, at_most in 1_u64..2_000, began in ordinary_moment(),
        draws in prop::collection::vec(draws(), 8),
    ) {
        let retry = Retry::new(Duration::from_millis(first), Duration::from_millis(cap));
        let mut waiting = Waiting::begin(retry, Patience::AtMost(Duration::from_millis(at_most)), began);
        let attempts: Vec<_> = draws.into_iter().cycle().take(2_100).map(|draw| (Duration::ZERO, draw)).collect();
        let steps = play(&mut waiting, began, &attempts);
        let last = steps.last().unwrap();
        prop_assert_eq!(last.next, Next::GiveUp);
        prop_assert!(last.refused <= began.plus(Duration::from_millis(at_most)));
        prop_assert!(last.refused.until(began.plus(Duration::from_millis(at_most))) <= MARGIN);
        prop_assert!(steps.len() >= 2, "no try after the first");
    }
}
