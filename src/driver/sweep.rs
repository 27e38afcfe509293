//! The sweeper: looks after undos whose sender no longer waits.
//!
//! It sleeps while nothing is unanswered. While it is awake it settles what was answered, sends
//! again what was refused, hands what a dead lane owes to the living one, and sends a second
//! copy on the service lane where the application's runtime seems not to run any more (a guard
//! dropped at the end of `block_on` leaves its deletes in a queue that nobody drives).

use super::clock;
use super::pool::{Master, Pool, Route};
use crate::quorum::Moment;
use std::sync::Arc;
use std::time::Duration;

/// How often the sweeper looks while something is unanswered.
const PERIOD: Duration = Duration::from_millis(20);
/// How long a home lane may leave undos unanswered, and answer nothing else, before a copy goes
/// out on the service lane.
const BACK_UP_AFTER: Duration = Duration::from_millis(50);
/// How often while a drain waits for it.
const DRAIN_PERIOD: Duration = Duration::from_millis(2);

/// Sweeps for as long as the future is polled.
pub(crate) async fn sweep(pool: Arc<Pool>) {
    let mut quiet = 0;
    loop {
        quiet = if look_through(&pool, BACK_UP_AFTER) == 0 {
            quiet + 1
        } else {
            0
        };
        // Two quiet looks, so that a busy handle does not wake its sweeper for every release.
        if quiet >= 2 {
            pool.sweeper_sleeps();
            // What came between the look and the sleep is seen now; what comes later wakes.
            if look_through(&pool, BACK_UP_AFTER) == 0 {
                pool.sweep.notified().await;
            } else {
                pool.wake_sweeper();
            }
            quiet = 0;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// One look at every lane; says how many undos are left.
fn look_through(pool: &Pool, backup_after: Duration) -> usize {
    let now = clock::now();
    let mut left = 0;
    let mut home_moves = false;
    for master in &pool.masters {
        for route in [Route::Home, Route::Service] {
            let swept = master.lane(route).sweep(now);
            left += swept.left;
            home_moves |= route == Route::Home && swept.moved;
        }
        hand_over_owed(pool, master, now);
    }
    if home_moves {
        pool.note_home_moved(now);
    } else if left > 0 && now.since(pool.home_moved()) >= backup_after {
        back_up(pool, now.minus(backup_after), now);
    }
    left
}

/// What a lane that is down owes goes to the other, if that is up.
fn hand_over_owed(pool: &Pool, master: &Master, now: Moment) {
    let (home, service) = (master.lane(Route::Home), master.lane(Route::Service));
    match (home.is_up(), service.is_up()) {
        (false, true) => home
            .copy_owed()
            .into_iter()
            .for_each(|undo| service.undo(undo, now)),
        (true, false) => service
            .copy_owed()
            .into_iter()
            .for_each(|undo| home.undo(undo, now)),
        (false, false) if home.owes() => pool.want_service(),
        (false, false) | (true, true) => {}
    }
}

/// Undos that a home lane has not answered go out a second time on the service lane.
fn back_up(pool: &Pool, before: Moment, now: Moment) {
    for master in &pool.masters {
        let (home, service) = (master.lane(Route::Home), master.lane(Route::Service));
        if !home.has_backups(before) {
            continue;
        }
        pool.want_service();
        // Until that lane is up they stay where they are: owed there, they would come back.
        if service.is_up() && !service.is_stalled() {
            for undo in home.take_backups(before) {
                service.undo(undo, now);
            }
        }
    }
}

/// How many undos are unanswered or owed.
pub(crate) fn left(pool: &Pool) -> usize {
    let now = clock::now();
    let lanes = pool.masters.iter().flat_map(|master| {
        [Route::Home, Route::Service].map(|route| master.lane(route).sweep(now).left)
    });
    lanes.sum()
}

/// Waits until nothing is unanswered or owed, at most so long; says how many undos are left.
///
/// Undos are sent again on the service lanes without waiting for the home lanes' answers.
pub(crate) async fn drain(pool: &Pool, at_most: Duration) -> usize {
    let end = clock::now().plus(at_most);
    let mut backup_after = DRAIN_PERIOD;
    loop {
        let left = look_through(pool, backup_after);
        if left == 0 || clock::now() >= end {
            return left;
        }
        backup_after = Duration::ZERO;
        tokio::time::sleep(DRAIN_PERIOD).await;
    }
}
