//! A lane: one connection to one master, on which commands keep the order of their decision.
//!
//! Futures of redis-rs race for a place in its queue, and one that is dropped before it was
//! written is never sent. A lane therefore queues each command by a first poll before it
//! returns, and keeps what must still be sent (undos) until it is answered.
//!
//! It decides nothing about locks, and reconnects nothing: a supervisor brings lanes up.
//!
//! Invariants:
//! 1. A command is queued when [`Lane::send`] returns: the queue of redis-rs has more places
//!    than a lane admits requests, so the first poll always queues. What one caller sends after
//!    another, ordered by a lock or an await between them, is written after it.
//! 2. Creating a key (`SET`) is admitted only together with room for its undo (R9); an undo is
//!    always admitted while the connection is up.
//! 3. An undo is forgotten only when it was answered, or its key must have expired (see
//!    `debts.rs`). What is owed goes out on a new connection before anything else.
//! 4. Dropping a [`Reply`] whose command was not yet written withdraws the command. That is what
//!    keeps a SET from being sent after its attempt has ended; undos are never dropped so.

use super::debts::Debts;
use super::link::{Link, State, Unsent};
use super::stall::Stall;
use super::{Abilities, Fault, FaultKind, Reply, Undo, delete};
use crate::quorum::Moment;
use redis::Cmd;
use redis::aio::MultiplexedConnection;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::Waker;
use tokio::sync::Notify;

/// Requests outstanding on one lane. A hung master costs this many small commands of memory.
const MOST_OUTSTANDING: usize = 8_192;
/// What a command needs of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It can create a key: room for itself and for its undo.
    Create,
    /// It asks or changes: room for itself.
    Change,
    /// It undoes: always admitted.
    Undo,
}

/// One connection to one master.
pub(crate) struct Lane {
    state: RwLock<State>,
    debts: Mutex<Debts>,
    /// Whether the state is [`Link::Up`], to be seen without the lock.
    up: AtomicBool,
    /// Whether nothing is answered any more.
    stall: Stall,
    outstanding: AtomicUsize,
    /// Counts answers: whether the connection, and the runtime it lives in, still move.
    answered: AtomicU64,
    /// Whether anything may be unanswered or owed, to be seen without the lock.
    indebted: AtomicBool,
    /// Tells the supervisor that the lane went down, or is wanted.
    pub(crate) wake: Notify,
}

/// What a look at a lane found.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Undos still unanswered or owed.
    pub(crate) left: usize,
    /// Whether anything was answered since the last look.
    pub(crate) moved: bool,
}

impl Lane {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: RwLock::new(State {
                link: Link::Starting,
                epoch: 0,
                ended_early: None,
            }),
            debts: Mutex::default(),
            up: AtomicBool::new(false),
            stall: Stall::default(),
            outstanding: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            indebted: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    /// Queues a command; an error means that nothing was sent.
    ///
    /// The command is built for what the server can do. The waker is told of the answer, so that
    /// a reply that was just sent need not be polled once more.
    pub(crate) fn send(
        self: &Arc<Self>,
        need: Need,
        waker: &Waker,
        build: impl FnOnce(Abilities) -> Arc<Cmd>,
    ) -> Result<Reply, Fault> {
        let state = self.read();
        let room = match need {
            Need::Create => 2,
            Need::Change => 1,
            Need::Undo => 0,
        };
        if need != Need::Undo && state.is_up() && !self.has_room(room) {
            return Err(Fault::new(FaultKind::Unresponsive));
        }
        let epoch = state.epoch;
        match state.queue(waker, build) {
            Ok(answer) => {
                self.outstanding.fetch_add(1, Ordering::Relaxed);
                Ok(Reply::new(answer, Arc::clone(self), epoch))
            }
            Err(Unsent::Fault(fault)) => Err(fault),
            Err(Unsent::Ended(fault)) => {
                drop(state);
                // Undos that were unanswered are due at once on the next connection.
                self.end(epoch, fault.clone(), Moment::ZERO);
                Err(fault)
            }
        }
    }

    /// Sends an undo nobody waits for; if that is not possible now, it is owed.
    pub(crate) fn undo(self: &Arc<Self>, undo: Undo, now: Moment) {
        let build = |abilities| Arc::new(delete(abilities, &undo.key, &undo.token));
        match self.send(Need::Undo, Waker::noop(), build) {
            Ok(reply) => self.strand(reply, undo, now),
            Err(_) => self.owe(undo, now),
        }
    }

    /// Keeps the answer to an undo whose sender no longer waits.
    pub(crate) fn strand(&self, reply: Reply, undo: Undo, now: Moment) {
        // Held to the end, so that the connection does not end between the look and the keeping.
        let state = self.read();
        let current = reply.epoch() == state.epoch && state.is_up();
        match if current { reply.take() } else { None } {
            Some(answer) => {
                let mut debts = self.debts();
                let answered = debts.settle_front();
                self.indebted.store(true, Ordering::Release);
                debts.strand(answer, undo, now);
                drop(debts);
                self.note_answers(answered);
            }
            None => self.owe(undo, now),
        }
    }

    /// Remembers an undo for the next connection.
    pub(crate) fn owe(&self, undo: Undo, now: Moment) {
        let mut debts = self.debts();
        self.indebted.store(true, Ordering::Release);
        debts.owe(undo, now);
    }

    /// The lane has a connection: what is owed goes first.
    ///
    /// A connection that was begun before the lane was restarted, or that has ended, is dropped;
    /// says whether the lane is up with it.
    pub(crate) fn bring_up(
        &self,
        epoch: u64,
        connection: MultiplexedConnection,
        abilities: Abilities,
        now: Moment,
    ) -> bool {
        let mut state = self.write();
        if state.epoch != epoch || state.ended_early == Some(epoch) {
            return false;
        }
        state.link = Link::Up {
            connection,
            abilities,
        };
        self.stall.clear();
        if let Some(fault) = self.resend(&state, now, true) {
            self.take_down(&mut state, Link::Down(fault), now);
            return false;
        }
        self.up.store(true, Ordering::Release);
        true
    }

    /// A connection the lane has is given up, for this reason; a lane that is down stays as it is.
    pub(crate) fn bring_down(&self, fault: Fault, now: Moment) {
        let mut state = self.write();
        if state.is_up() {
            self.take_down(&mut state, Link::Down(fault), now);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Connecting failed; the supervisor that says so tries again by itself.
    pub(crate) fn fail(&self, epoch: u64, fault: Fault) {
        let mut state = self.write();
        if state.epoch == epoch && !state.is_up() {
            state.link = Link::Down(fault);
        }
    }

    /// The connection of this epoch ended.
    pub(crate) fn end(&self, epoch: u64, fault: Fault, now: Moment) {
        let mut state = self.write();
        if state.epoch != epoch {
            return;
        }
        if state.is_up() {
            self.take_down(&mut state, Link::Down(fault), now);
            drop(state);
            self.wake.notify_one();
        } else {
            state.ended_early = Some(epoch);
        }
    }

    /// Forgets the connection and starts afresh, for another runtime.
    pub(crate) fn restart(&self, now: Moment) {
        self.take_down(&mut self.write(), Link::Starting, now);
        self.wake.notify_one();
    }

    /// Another connection is tried: its number, for its own end to name.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.write();
        if !state.is_up() {
            state.epoch += 1;
        }
        state.epoch
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether nothing is answered here any more.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stall.is_stalled()
    }

    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.read().link, Link::Starting)
    }

    /// Whether undos wait here for a connection.
    pub(crate) fn owes(&self) -> bool {
        self.debts().owes()
    }

    /// Whether an undo for this key is unanswered here: a SET elsewhere could be refused by it.
    pub(crate) fn has_unanswered(&self, key: &[u8], now: Moment) -> bool {
        if !self.indebted.load(Ordering::Acquire) {
            return false;
        }
        let mut debts = self.debts();
        if !debts.has(key) {
            return false;
        }
        let settled = debts.settle(now);
        let found = debts.has(key);
        drop(debts);
        self.note_answers(settled.answered);
        found
    }

    /// Looks through what is unanswered or owed: settles, sends again, forgets, notices a stall.
    pub(crate) fn sweep(&self, now: Moment) -> Swept {
        let (epoch, settled, oldest) = {
            let state = self.read();
            let mut debts = self.debts();
            let settled = debts.settle(now);
            debts.forget_expired(now);
            (state.epoch, settled, debts.oldest(now))
        };
        self.note_answers(settled.answered);
        let (moved, given_up) = self
            .stall
            .note(now, self.answered.load(Ordering::Relaxed), oldest);
        let fault = settled
            .broken
            .or_else(|| given_up.then(|| Fault::new(FaultKind::Unresponsive)));
        if let Some(fault) = fault {
            self.end(epoch, fault, now);
        }
        if !self.stall.is_stalled() {
            let ended = self.resend(&self.read(), now, false);
            if let Some(fault) = ended {
                self.end(epoch, fault, now);
            }
        }
        let debts = self.debts();
        if debts.is_empty() {
            self.indebted.store(false, Ordering::Release);
        }
        Swept {
            left: debts.left(),
            moved,
        }
    }

    /// Whether any undo was sent before `before` and is not answered or copied elsewhere.
    pub(crate) fn has_backups(&self, before: Moment) -> bool {
        self.debts().has_backups(before)
    }

    /// Undos that were sent before `before` and not answered, each handed out once.
    pub(crate) fn take_backups(&self, before: Moment) -> Vec<Undo> {
        self.debts().backups(before)
    }

    /// Looks whether answers to earlier deletes are there.
    pub(crate) fn settle(&self, now: Moment) {
        let settled = self.debts().settle(now);
        self.note_answers(settled.answered);
    }

    /// Takes out all that is owed, for whoever can send it on a connection of its own.
    pub(crate) fn take_owed(&self) -> Vec<Undo> {
        self.debts().take_owed()
    }

    /// Copies of what is owed here, each handed out once, for the master's other lane.
    pub(crate) fn copy_owed(&self) -> Vec<Undo> {
        self.debts().copies()
    }

    pub(super) fn note_answer(&self) {
        self.note_answers(1);
    }

    pub(super) fn note_withdrawn(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    fn note_answers(&self, count: usize) {
        if count > 0 {
            self.outstanding.fetch_sub(count, Ordering::Relaxed);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_room(&self, room: usize) -> bool {
        if self.stall.is_stalled() {
            return false;
        }
        if self.outstanding.load(Ordering::Relaxed) + room <= MOST_OUTSTANDING {
            return true;
        }
        let answered = self.debts().settle_front();
        self.note_answers(answered);
        self.outstanding.load(Ordering::Relaxed) + room <= MOST_OUTSTANDING
    }

    /// Sends what is owed and due; says if the connection turned out to have ended.
    fn resend(&self, state: &State, now: Moment, all: bool) -> Option<Fault> {
        let mut ended = None;
        let send = |undo: &Undo| {
            let build = |abilities| Arc::new(delete(abilities, &undo.key, &undo.token));
            match state.queue(Waker::noop(), build) {
                Ok(answer) => {
                    self.outstanding.fetch_add(1, Ordering::Relaxed);
                    Some(answer)
                }
                Err(Unsent::Ended(fault)) => {
                    ended = Some(fault);
                    None
                }
                Err(Unsent::Fault(_)) => None,
            }
        };
        self.debts().resend(now, all, send);
        ended
    }

    fn take_down(&self, state: &mut State, link: Link, now: Moment) {
        state.epoch += 1;
        state.link = link;
        self.up.store(false, Ordering::Release);
        self.stall.clear();
        let ended = self.debts().end(now);
        self.outstanding.fetch_sub(ended, Ordering::Relaxed);
    }

    // A panic of ours under a lock cannot leave a lane half changed in a way that matters more
    // than going on with its undos.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn debts(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
