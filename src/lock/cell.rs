//! What a guard, its clones of `Held` and the watchdog share of one held lock.
//!
//! Invariant: every SET and extension of a hold is sent under this cell's lock, after a look at
//! whether the hold has ended; so none follows its end (R21).

use super::core::{Core, fork_loss};
use crate::driver::{self, AFTERLIFE, Extending, Granted, HealGate, Route, clock, late_grant};
use crate::master::{Heard, Key, Reply, Undo};
use crate::quorum::{ExtendOutcome, Hold, HoldAction, Lease, Loss, Members, Moment, Token};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// One held lock.
pub(crate) struct Cell {
    pub(crate) core: Arc<Core>,
    pub(crate) resource: Arc<[u8]>,
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// The lanes on which its SETs were sent.
    route: Route,
    state: Mutex<State>,
    /// Told when the lock is lost, and when its validity moves.
    changed: Notify,
}

struct State {
    hold: Hold,
    grants: Members,
    /// The masters that may have received a SET of this token.
    sent: Members,
    /// The masters that have a heal under way.
    healing: Members,
    /// SETs of the acquisition that are still unanswered.
    stragglers: Vec<(usize, Reply)>,
    /// The masters whose SET was unanswered when it was withdrawn.
    unanswered: Members,
    /// Where the answers to the deletes of earlier releases are noted.
    deletes: Vec<(usize, Heard)>,
    /// When every key of this token must have expired.
    expired_at: Moment,
    /// Where the watchdog's timetable has this hold.
    slot: Option<(Moment, u64)>,
}

/// Who asked for an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Watchdog,
    Hand,
}

/// What a hold is begun with.
pub(crate) struct Beginning {
    pub(crate) resource: Arc<[u8]>,
    pub(crate) key: Key,
    pub(crate) lease: Lease,
    pub(crate) watchdog: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl Cell {
    pub(crate) fn new(core: &Arc<Core>, beginning: Beginning, granted: Granted) -> Arc<Self> {
        let Beginning {
            resource,
            key,
            lease,
            watchdog,
            max_hold,
        } = beginning;
        let now = clock::now();
        Arc::new(Self {
            core: Arc::clone(core),
            resource,
            key,
            token: granted.token,
            route: granted.route,
            state: Mutex::new(State {
                hold: Hold::begin(lease, granted.valid_until, watchdog, max_hold, now),
                grants: granted.grants,
                sent: granted.sent,
                healing: Members::NONE,
                stragglers: granted.stragglers,
                unanswered: Members::NONE,
                deletes: Vec::new(),
                expired_at: now.plus(lease.ttl()).plus(AFTERLIFE),
                slot: None,
            }),
            changed: Notify::new(),
        })
    }

    pub(crate) fn is_held(&self) -> bool {
        fork_loss(&self.core).is_none() && self.lock().hold.is_held(clock::now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        if fork_loss(&self.core).is_some() {
            return Duration::ZERO;
        }
        self.lock().hold.remaining(clock::now())
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.lock().hold.valid_until()
    }

    /// Why the lock is lost, if it is; looks at the clock itself.
    pub(crate) fn loss(&self) -> Option<Loss> {
        fork_loss(&self.core).or_else(|| {
            // The watchdog may be late; what is past its validity is lost whoever looks.
            let mut state = self.lock();
            let loss = state.hold.poll_loss(clock::now());
            state.withdraw_if_lost();
            loss
        })
    }

    /// How many masters are known to have granted, late ones included (R10).
    pub(crate) fn grants(&self) -> usize {
        if fork_loss(&self.core).is_some() {
            return 0;
        }
        let mut state = self.lock();
        let State {
            stragglers, grants, ..
        } = &mut *state;
        stragglers.retain_mut(|(index, reply)| match late_grant(reply) {
            Poll::Pending => true,
            Poll::Ready(granted) => {
                if granted {
                    grants.insert(*index);
                }
                false
            }
        });
        state.grants.len()
    }

    /// Waits until the lock is lost; for ever if it is released before.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            if fork_loss(&self.core).is_none() {
                changed.as_mut().enable();
            }
            if let Some(loss) = self.loss() {
                return loss;
            }
            changed.await;
        }
    }

    /// Waits until the validity has moved beyond `seen`, or the lock is lost or let go.
    pub(crate) async fn moved(&self, seen: Moment) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.loss().is_some() || self.valid_until() > seen || self.lock().hold.is_ended() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the watchdog extends this hold.
    pub(crate) fn is_watched(&self) -> bool {
        self.lock().hold.is_watched()
    }

    /// Whether the longest time to hold leaves room for an extension.
    pub(crate) fn may_extend(&self) -> bool {
        self.lock().hold.may_extend(clock::now())
    }

    /// What the watchdog has to do for this hold now.
    pub(crate) fn poll(&self, now: Moment) -> HoldAction {
        let mut state = self.lock();
        let action = state.hold.poll(now);
        state.withdraw_if_lost();
        action
    }

    /// Makes the lock lost for a reason outside the protocol.
    pub(crate) fn lose(&self, loss: Loss) {
        self.lock().hold.lose(loss);
        self.tell();
    }

    /// Tells all who wait that the lock is lost or its validity has moved.
    pub(crate) fn tell(&self) {
        self.changed.notify_waiters();
    }

    pub(crate) fn slot(&self) -> Option<(Moment, u64)> {
        self.lock().slot
    }

    pub(crate) fn set_slot(&self, slot: Option<(Moment, u64)>) {
        self.lock().slot = slot;
    }

    /// Sends an extension, unless the hold has ended or is lost.
    pub(crate) fn send_extension(&self, route: Route, lease: Lease, by: By) -> Option<Extending> {
        let mut state = self.lock();
        if !state.hold.is_held(clock::now()) {
            return None;
        }
        if by == By::Watchdog {
            state.hold.handle_extension_begun();
        }
        let expired_at = clock::now().plus(lease.ttl()).plus(AFTERLIFE);
        state.expired_at = state.expired_at.max(expired_at);
        Some(Extending::send(
            &self.core.pool,
            route,
            &self.key,
            &self.token,
            lease,
        ))
    }

    /// An extension has ended: the machine hears of it, and the watchdog of the machine.
    pub(crate) fn handle_extension(self: &Arc<Self>, outcome: ExtendOutcome, by: By) {
        let now = clock::now();
        match by {
            By::Watchdog => self.lock().hold.handle_extension(outcome, now),
            By::Hand => self.lock().hold.handle_extension_by_hand(outcome, now),
        }
        self.core.registry.reschedule(self, now);
        self.tell();
    }

    /// The TTL and drift of the acquisition.
    pub(crate) fn lease(&self) -> Lease {
        *self.lock().hold.lease()
    }

    /// Ends the hold: no extension and no heal follows. Says what must be deleted.
    pub(crate) fn end(self: &Arc<Self>) -> driver::Held {
        let held = {
            let mut state = self.lock();
            state.hold.end();
            state.withdraw();
            driver::Held {
                undo: Undo {
                    key: Arc::clone(&self.key),
                    token: self.token.clone(),
                    until: state.expired_at,
                    heard: None,
                    refused: 0,
                },
                ttl: state.hold.lease().ttl(),
                route: self.route,
                sent: state.sent,
                unanswered: state.unanswered,
                healing: state.healing,
                earlier: std::mem::take(&mut state.deletes),
            }
        };
        self.core.registry.remove(self);
        self.tell();
        held
    }

    /// Ends the hold without deleting anything: it lives on elsewhere.
    pub(crate) fn give_up(self: &Arc<Self>) {
        self.lock().hold.end();
        self.core.registry.remove(self);
        self.tell();
    }

    /// Keeps where the answers to deletes are noted that nobody waits for at the moment.
    pub(crate) fn keep_deletes(&self, deletes: Vec<(usize, Heard)>) {
        self.lock().deletes.extend(deletes);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Once lost, nothing is sent but deletes (R22).
    fn withdraw_if_lost(&mut self) {
        if self.hold.loss().is_some() && !self.stragglers.is_empty() {
            self.withdraw();
        }
    }

    /// Dropping an unanswered SET withdraws it if it was not yet written.
    fn withdraw(&mut self) {
        for (index, _) in self.stragglers.drain(..) {
            self.unanswered.insert(index);
        }
    }
}

impl HealGate for Cell {
    fn let_through(&self, master: usize, send: &mut dyn FnMut() -> bool) -> bool {
        let mut state = self.lock();
        let held = state.hold.is_held(clock::now());
        if held && send() {
            state.sent.insert(master);
            state.healing.insert(master);
        }
        held
    }

    fn healed(&self, master: usize) {
        self.lock().healing.remove(master);
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
