//! The watchdog: extends held locks, says in time when one is lost, drains undos (R15, R17).
//!
//! One thread of its own for all locks of a handle, with connections of its own, so that it goes
//! on while every worker of the application's runtime is blocked. It calls no code of the
//! application: it wakes tasks, and nothing else.
//!
//! Invariants:
//! 1. Every hold that is neither lost nor ended has a place in the timetable.
//! 2. While anything is held it looks at the clock at least every [`SLICE`], since timers do not
//!    count suspended time.
//! 3. If the thread ends for another reason than the end of the handle, every hold is lost and
//!    every new acquisition fails.

use super::cell::{By, Cell};
use super::core::Core;
use crate::driver::{Route, clock, drain, supervise, sweep};
use crate::quorum::{HoldAction, Loss, Moment};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// The longest the watchdog sleeps: a resumed host learns of its losses within this time.
const SLICE: Duration = Duration::from_millis(100);

/// The longest sleep while nothing is held; any hold that comes wakes.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// How long the thread goes on with undos after the last handle was dropped: long enough to
/// connect once more and be answered.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What the service thread is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Wait until nothing is unanswered, at most so long, and say how many undos are left.
    Drain {
        at_most: Duration,
        left: oneshot::Sender<usize>,
    },
    /// Drain, say so at the latest after this time, then end the thread.
    End {
        at_most: Duration,
        done: mpsc::SyncSender<()>,
    },
    /// Panic, to show what follows.
    #[cfg(test)]
    Die,
}

/// The timetable of all held locks.
pub(crate) struct Registry {
    timetable: Mutex<Timetable>,
    /// Tells the watchdog that something is due before it meant to look.
    earlier: Notify,
    dead: AtomicBool,
}

struct Timetable {
    holds: BTreeMap<(Moment, u64), Arc<Cell>>,
    next_id: u64,
    /// When the watchdog looks next.
    looks_at: Moment,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            timetable: Mutex::new(Timetable {
                holds: BTreeMap::new(),
                next_id: 0,
                looks_at: Moment::MAX,
            }),
            earlier: Notify::new(),
            dead: AtomicBool::new(false),
        }
    }

    /// Whether the watchdog has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Gives a hold its place in the timetable, or a new one.
    ///
    /// Asked and placed under one lock, so that of two who do it at once the later answer stays.
    pub(crate) fn reschedule(&self, cell: &Arc<Cell>, now: Moment) {
        let mut timetable = self.lock();
        let due = match cell.poll(now) {
            HoldAction::WaitUntil(due) => Some(due),
            // Due at once: the watchdog polls again and acts on it.
            HoldAction::Extend => Some(now),
            HoldAction::Lose(_) | HoldAction::Over => None,
        };
        self.place(&mut timetable, cell, due);
        drop(timetable);
        if due.is_none() {
            cell.tell();
        }
        if self.is_dead() {
            cell.lose(Loss::WatchdogDied);
        }
    }

    /// Takes a hold out of the timetable.
    pub(crate) fn remove(&self, cell: &Arc<Cell>) {
        self.place(&mut self.lock(), cell, None);
    }

    fn place(&self, timetable: &mut Timetable, cell: &Arc<Cell>, due: Option<Moment>) {
        if let Some(old) = cell.slot() {
            timetable.holds.remove(&old);
        }
        let Some(due) = due else {
            return cell.set_slot(None);
        };
        let slot = (due, timetable.next_id);
        timetable.next_id += 1;
        timetable.holds.insert(slot, Arc::clone(cell));
        cell.set_slot(Some(slot));
        if due < timetable.looks_at {
            timetable.looks_at = due;
            self.earlier.notify_one();
        }
    }

    /// The first hold, if it is due; otherwise when to look again.
    fn first_due(&self, now: Moment) -> Result<Arc<Cell>, Moment> {
        let mut timetable = self.lock();
        let first = timetable.holds.first_key_value();
        match first {
            Some(((due, _), cell)) if *due <= now => Ok(Arc::clone(cell)),
            _ => {
                // Without a hold there is nothing to be late for: the next one wakes.
                let next = first.map_or(Moment::MAX, |((due, _), _)| now.plus(SLICE).min(*due));
                timetable.looks_at = next;
                Err(next)
            }
        }
    }

    fn die(&self) {
        self.dead.store(true, Ordering::Release);
        let holds: Vec<_> = self.lock().holds.values().cloned().collect();
        for cell in holds {
            cell.lose(Loss::WatchdogDied);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Timetable> {
        self.timetable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the service thread of a handle.
pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<(UnboundedSender<Command>, ThreadId)> {
    let (commands, asked) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let core = Arc::clone(core);
    let thread = thread::Builder::new()
        .name("quorumlock".to_owned())
        .spawn(move || {
            let served = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serve(&core, asked))));
            match served {
                Ok(Some(done)) => {
                    // The sockets close with the runtime, before whoever waits goes on.
                    drop(runtime);
                    done.try_send(()).unwrap_or_default();
                }
                Ok(None) | Err(_) => core.registry.die(),
            }
        })?;
    Ok((commands, thread.thread().id()))
}

/// Serves until the handle ends, and says whom to tell; `None` if a part of it has died.
async fn serve(
    core: &Arc<Core>,
    mut asked: UnboundedReceiver<Command>,
) -> Option<mpsc::SyncSender<()>> {
    let mut parts = JoinSet::new();
    parts.spawn(watch(Arc::clone(core)));
    parts.spawn(sweep(Arc::clone(&core.pool)));
    for index in 0..core.pool.masters.len() {
        for route in [Route::Home, Route::Service] {
            parts.spawn(supervise(Arc::clone(&core.pool), index, route));
        }
    }
    loop {
        let command = tokio::select! {
            command = asked.recv() => command?,
            _ = parts.join_next() => return None,
        };
        match command {
            Command::Drain { at_most, left } => {
                let pool = Arc::clone(&core.pool);
                // Nobody may wait any more; the draining itself was what mattered.
                tokio::spawn(
                    async move { left.send(drain(&pool, at_most).await).unwrap_or_default() },
                );
            }
            Command::End { at_most, done } => {
                if drain(&core.pool, at_most).await > 0 {
                    // Whoever drops the handle waits no longer; the undos go on.
                    done.try_send(()).unwrap_or_default();
                    drain(&core.pool, LAST_WORDS).await;
                }
                return Some(done);
            }
            #[cfg(test)]
            Command::Die => panic!("asked to"),
        }
    }
}

/// Does what is due for every hold, for as long as the future is polled.
async fn watch(core: Arc<Core>) {
    loop {
        let now = clock::now();
        match core.registry.first_due(now) {
            Ok(cell) => attend(&core, &cell, now),
            Err(next) => {
                let sleep = now.until(next).min(LONGEST_SLEEP);
                // Woken early or not: the timetable says what is due.
                tokio::time::timeout(sleep, core.registry.earlier.notified())
                    .await
                    .unwrap_or_default();
            }
        }
    }
}

/// Does what is due for one hold.
fn attend(core: &Arc<Core>, cell: &Arc<Cell>, now: Moment) {
    if cell.poll(now) != HoldAction::Extend {
        // Not due yet, or over; a loss is told.
        cell.tell();
        return core.registry.reschedule(cell, now);
    }
    core.pool.want_service();
    let cell = Arc::clone(cell);
    let sent = cell.send_extension(Route::Service, cell.lease(), By::Watchdog);
    core.registry.reschedule(&cell, clock::now());
    if let Some(mut extending) = sent {
        tokio::spawn(async move {
            let outcome = extending.outcome().await;
            cell.handle_extension(outcome, By::Watchdog);
            extending.heal(&*cell).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Redlock};
    use quorumlock_masters::Fleet;

    #[tokio::test]
    async fn if_the_watchdog_dies_every_guard_says_lost_and_nothing_more_is_acquired() {
        let fleet = Fleet::start(3);
        let redlock = Redlock::connect(fleet.urls()).await.unwrap();
        let guard = redlock.lock("a").acquire().await.unwrap();
        assert!(redlock.life().ask(Command::Die));
        assert_eq!(guard.lost().await, Loss::WatchdogDied);
        assert!(!guard.is_held());
        let error = redlock.lock("b").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(guard.release().await.is_ok());
        fleet.assert_no_key("a", Duration::from_secs(2));
    }
}
