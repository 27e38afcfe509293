//! A lane: one connection to one master, on which commands keep the order of their decision.
//!
//! Futures of redis-rs race for a place in its queue, and one that is dropped before it was
//! written is never sent. A lane therefore queues each command under its own lock by a first
//! poll, and keeps what must still be sent (undos) until it is answered.
//!
//! It decides nothing about locks, and reconnects nothing: a supervisor brings lanes up.
//!
//! Invariants:
//! 1. Commands are written in the order of the calls to [`Lane::send`]: the queue of redis-rs has
//!    more places than a lane admits requests, so the first poll always queues.
//! 2. Creating a key (`SET`) is admitted only together with room for its undo (R9); an undo is
//!    always admitted while the connection is up.
//! 3. An undo is forgotten only when it was answered, or its key must have expired: until then
//!    it is a *stray* (sent, unanswered) or *owed* (to be sent on the next connection).
//! 4. Dropping a [`Reply`] whose command was not yet written withdraws the command. That is what
//!    keeps a SET from being sent after its attempt has ended; undos are never dropped so.

use super::{Abilities, Fault, FaultKind, Key, delete};
use crate::quorum::{Moment, Token};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// Requests outstanding on one lane. A hung master costs this many small commands of memory.
const MOST_OUTSTANDING: usize = 8_192;
/// Undos remembered for a master that is away; beyond it the oldest are left to their TTL.
const MOST_OWED: usize = 16_384;
/// A lane whose oldest undo is unanswered for so long gets no new SET.
const STALLED_AFTER: Duration = Duration::from_millis(500);
/// A lane that has been stalled for so long is given up, and connected anew.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);
/// The pause before an undo that the server refused (busy, loading) is sent again.
const REFUSED_AGAIN: Duration = Duration::from_millis(50);

type Answer = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

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

/// A compare-and-delete that is owed to a master until `until`.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// When the key must have expired by itself.
    pub(crate) until: Moment,
}

/// One connection to one master.
pub(crate) struct Lane {
    inner: Mutex<Inner>,
    outstanding: AtomicUsize,
    /// Counts answers: whether the connection, and the runtime it lives in, still move.
    answered: AtomicU64,
    /// Tells the supervisor that the lane went down, or is wanted.
    pub(crate) wake: Notify,
}

struct Inner {
    state: State,
    /// Counts connections, so that news of an old one do not end its successor.
    epoch: u64,
    strays: VecDeque<Stray>,
    owed: VecDeque<Owed>,
    stalled_since: Option<Moment>,
    /// The count of answers at the last sweep.
    seen: u64,
}

enum State {
    /// Not tried yet since it is wanted.
    Starting,
    Up {
        connection: MultiplexedConnection,
        abilities: Abilities,
    },
    Down(Fault),
}

/// A command that was sent and whose sender no longer waits.
struct Stray {
    answer: Answer,
    undo: Undo,
    since: Moment,
    /// A copy sent elsewhere in case this lane's runtime is no longer run.
    backed_up: bool,
}

struct Owed {
    undo: Undo,
    not_before: Moment,
    /// A copy was sent on the master's other lane; this one stays for the next connection here,
    /// behind a SET that may still stand in the server's old input.
    copied: bool,
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
            inner: Mutex::new(Inner {
                state: State::Starting,
                epoch: 0,
                strays: VecDeque::new(),
                owed: VecDeque::new(),
                stalled_since: None,
                seen: 0,
            }),
            outstanding: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            wake: Notify::new(),
        })
    }

    /// Queues a command, in the order of the calls.
    ///
    /// The command is built for what the server can do. An error means that nothing was sent.
    pub(crate) fn send(
        self: &Arc<Self>,
        need: Need,
        build: impl FnOnce(Abilities) -> Cmd,
    ) -> Result<Reply, Fault> {
        let mut inner = self.lock();
        inner.settle_front(&self.outstanding, &self.answered);
        let room = match need {
            Need::Create => 2,
            Need::Change => 1,
            Need::Undo => 0,
        };
        let full = self.outstanding.load(Ordering::Relaxed) + room > MOST_OUTSTANDING;
        if need != Need::Undo && (full || inner.stalled_since.is_some()) && inner.is_up() {
            return Err(Fault::new(FaultKind::Unresponsive));
        }
        let epoch = inner.epoch;
        let answer = inner.queue(build)?;
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Ok(Reply {
            answer: Some(answer),
            lane: Arc::clone(self),
            epoch,
        })
    }

    /// Sends an undo nobody waits for; if that is not possible now, it is owed.
    pub(crate) fn undo(self: &Arc<Self>, undo: Undo, now: Moment) {
        match self.send(Need::Undo, |abilities| {
            delete(abilities, &undo.key, &undo.token)
        }) {
            Ok(reply) => self.strand(reply, undo, now),
            Err(_) => self.owe(undo, now),
        }
    }

    /// Keeps the answer to an undo whose sender no longer waits.
    pub(crate) fn strand(&self, mut reply: Reply, undo: Undo, now: Moment) {
        let mut inner = self.lock();
        if reply.epoch != inner.epoch || !inner.is_up() {
            drop(inner);
            drop(reply);
            return self.owe(undo, now);
        }
        if let Some(answer) = reply.answer.take() {
            inner.strays.push_back(Stray {
                answer,
                undo,
                since: now,
                backed_up: false,
            });
        }
    }

    /// Remembers an undo for the next connection.
    pub(crate) fn owe(&self, undo: Undo, now: Moment) {
        self.lock().owe(undo, now);
    }

    /// The lane has a connection: what is owed goes first.
    ///
    /// A connection that was begun before the lane was restarted is dropped.
    pub(crate) fn bring_up(
        &self,
        epoch: u64,
        connection: MultiplexedConnection,
        abilities: Abilities,
        now: Moment,
    ) {
        let mut inner = self.lock();
        if inner.epoch != epoch {
            return;
        }
        inner.state = State::Up {
            connection,
            abilities,
        };
        inner.stalled_since = None;
        inner.resend(now, &self.outstanding, true);
    }

    /// Whatever connection the lane has is given up, for this reason.
    pub(crate) fn bring_down(&self, fault: Fault, now: Moment) {
        self.lock().end(fault, now, &self.outstanding);
        self.wake.notify_one();
    }

    /// Connecting failed; the supervisor that says so tries again by itself.
    pub(crate) fn fail(&self, epoch: u64, fault: Fault) {
        let mut inner = self.lock();
        if inner.epoch == epoch && !inner.is_up() {
            inner.state = State::Down(fault);
        }
    }

    /// The connection of this epoch ended.
    pub(crate) fn end(&self, epoch: u64, fault: Fault, now: Moment) {
        let mut inner = self.lock();
        if inner.epoch != epoch || !inner.is_up() {
            return;
        }
        inner.end(fault, now, &self.outstanding);
        drop(inner);
        self.wake.notify_one();
    }

    /// Forgets the connection and starts afresh, for another runtime.
    pub(crate) fn restart(&self, now: Moment) {
        let mut inner = self.lock();
        inner.end(Fault::new(FaultKind::NotConnected), now, &self.outstanding);
        inner.state = State::Starting;
        drop(inner);
        self.wake.notify_one();
    }

    /// The number of the connection that comes next, for its own end to name.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Whether undos wait here for a connection.
    pub(crate) fn owes(&self) -> bool {
        !self.lock().owed.is_empty()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.lock().is_up()
    }

    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.lock().state, State::Starting)
    }

    /// Whether an undo for this key is unanswered here: a SET elsewhere could be refused by it.
    pub(crate) fn has_unanswered(&self, key: &[u8]) -> bool {
        let mut inner = self.lock();
        if inner.strays.is_empty() && inner.owed.is_empty() {
            return false;
        }
        inner.settle(Moment::ZERO, &self.outstanding);
        inner
            .strays
            .iter()
            .any(|stray| *stray.undo.key == *key && !stray.backed_up)
            || inner.owed.iter().any(|owed| *owed.undo.key == *key)
    }

    /// Looks through what is unanswered or owed: settles, sends again, forgets, notices a stall.
    pub(crate) fn sweep(&self, now: Moment) -> Swept {
        let mut inner = self.lock();
        let before = inner.strays.len();
        let broken = inner.settle(now, &self.outstanding);
        let answered = self.answered.load(Ordering::Relaxed);
        let moved = inner.strays.len() < before || answered != inner.seen;
        inner.seen = answered;
        if let Some(fault) = broken {
            inner.end(fault, now, &self.outstanding);
            self.wake.notify_one();
        }
        if inner.note_stall(now, moved) {
            let fault = Fault::new(FaultKind::Unresponsive);
            inner.end(fault, now, &self.outstanding);
            self.wake.notify_one();
        }
        inner.owed.retain(|owed| owed.undo.until > now);
        if inner.stalled_since.is_none() {
            inner.resend(now, &self.outstanding, false);
        }
        let owed = inner.owed.iter().filter(|owed| !owed.copied).count();
        Swept {
            left: inner.strays.len() + owed,
            moved,
        }
    }

    /// Undos that were sent before `before` and not answered, each handed out once.
    pub(crate) fn take_backups(&self, before: Moment) -> Vec<Undo> {
        let mut inner = self.lock();
        inner
            .strays
            .iter_mut()
            .filter(|stray| !stray.backed_up && stray.since <= before)
            .map(|stray| {
                stray.backed_up = true;
                stray.undo.clone()
            })
            .collect()
    }

    /// Copies of what is owed here, each handed out once, for the master's other lane.
    pub(crate) fn copy_owed(&self) -> Vec<Undo> {
        let mut inner = self.lock();
        inner
            .owed
            .iter_mut()
            .filter(|owed| !owed.copied)
            .map(|owed| {
                owed.copied = true;
                owed.undo.clone()
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of ours inside cannot leave the lane half changed in a way that matters more
        // than going on with the undos.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Builds the command and puts it into the connection's queue by a first poll.
    fn queue(&mut self, build: impl FnOnce(Abilities) -> Cmd) -> Result<Answer, Fault> {
        let (connection, abilities) = match &self.state {
            State::Up {
                connection,
                abilities,
            } => (connection.clone(), *abilities),
            State::Starting => return Err(Fault::new(FaultKind::NotConnected)),
            State::Down(fault) => return Err(fault.clone()),
        };
        let cmd = build(abilities);
        let mut connection = connection;
        // Unconstrained: tokio's budget could make the first poll return before it has queued.
        let mut answer: Answer = Box::pin(tokio::task::unconstrained(async move {
            connection
                .send_packed_command(&cmd)
                .await
                .and_then(Value::extract_error)
        }));
        match answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Pending => Ok(answer),
            Poll::Ready(result) => Ok(Box::pin(std::future::ready(result))),
        }
    }

    /// Drops answered strays from the front: replies come in order.
    fn settle_front(&mut self, outstanding: &AtomicUsize, answered: &AtomicU64) {
        while let Some(stray) = self.strays.front_mut() {
            match stray.poll() {
                Poll::Ready(Ok(_)) => {
                    self.strays.pop_front();
                    outstanding.fetch_sub(1, Ordering::Relaxed);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                // Left to `settle`, which knows what time it is.
                Poll::Ready(Err(error)) => {
                    stray.answer = Box::pin(std::future::ready(Err(error)));
                    return;
                }
                Poll::Pending => return,
            }
        }
    }

    /// Drops answered strays; refused ones are owed. Says if the connection turned out broken.
    fn settle(&mut self, now: Moment, outstanding: &AtomicUsize) -> Option<Fault> {
        let mut broken = None;
        for _ in 0..self.strays.len() {
            let Some(mut stray) = self.strays.pop_front() else {
                break;
            };
            match stray.poll() {
                Poll::Pending => self.strays.push_back(stray),
                Poll::Ready(result) => {
                    outstanding.fetch_sub(1, Ordering::Relaxed);
                    if let Err(error) = result {
                        let lost = ends_connection(&error);
                        let fault = Fault::from_redis(error);
                        if fault.kind() != FaultKind::WrongType {
                            self.owe(stray.undo, now.plus(REFUSED_AGAIN));
                        }
                        if lost {
                            broken = Some(fault);
                        }
                    }
                }
            }
        }
        broken
    }

    fn owe(&mut self, undo: Undo, not_before: Moment) {
        if self.owed.len() >= MOST_OWED {
            self.owed.pop_front();
        }
        self.owed.push_back(Owed {
            undo,
            not_before,
            copied: false,
        });
    }

    /// Sends what is owed; `all` also what was to wait a little.
    fn resend(&mut self, now: Moment, outstanding: &AtomicUsize, all: bool) {
        for _ in 0..self.owed.len() {
            let Some(owed) = self.owed.pop_front() else {
                return;
            };
            if owed.undo.until <= now {
                continue;
            }
            let due = all || owed.not_before <= now;
            let Undo { key, token, .. } = &owed.undo;
            match if due {
                self.queue(|abilities| delete(abilities, key, token)).ok()
            } else {
                None
            } {
                Some(answer) => {
                    outstanding.fetch_add(1, Ordering::Relaxed);
                    self.strays.push_back(Stray {
                        answer,
                        undo: owed.undo,
                        since: now,
                        backed_up: false,
                    });
                }
                None => self.owed.push_back(owed),
            }
        }
    }

    /// The connection is over: what was unanswered is owed.
    fn end(&mut self, fault: Fault, now: Moment, outstanding: &AtomicUsize) {
        self.epoch += 1;
        self.state = State::Down(fault);
        self.stalled_since = None;
        for stray in std::mem::take(&mut self.strays) {
            outstanding.fetch_sub(1, Ordering::Relaxed);
            self.owe(stray.undo, now);
        }
    }

    /// Notices that nothing is answered any more, and that it is again. True: give it up.
    fn note_stall(&mut self, now: Moment, moved: bool) -> bool {
        let waiting = self.strays.front().map(|stray| now.since(stray.since));
        if moved || waiting.is_none_or(|span| span < STALLED_AFTER) {
            self.stalled_since = None;
            return false;
        }
        let since = *self.stalled_since.get_or_insert(now);
        now.since(since) >= GIVEN_UP_AFTER
    }
}

impl Stray {
    fn poll(&mut self) -> Poll<RedisResult<Value>> {
        self.answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Whether the connection on which this came is of no more use.
fn ends_connection(error: &redis::RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_connection_dropped()
}

/// The answer to one command that was queued.
///
/// Dropping it withdraws the command if it was not yet written, and forgets the answer if it was.
pub(crate) struct Reply {
    answer: Option<Answer>,
    lane: Arc<Lane>,
    epoch: u64,
}

impl Reply {
    /// Polls for the answer; `now` is asked only if the connection turns out to have ended.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: impl FnOnce() -> Moment,
    ) -> Poll<Result<Value, Fault>> {
        let Some(answer) = self.answer.as_mut() else {
            return Poll::Pending;
        };
        match answer.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.forget();
                self.lane.answered.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(result.map_err(|error| {
                    let lost = ends_connection(&error);
                    let fault = Fault::from_redis(error);
                    if lost {
                        self.lane.end(self.epoch, fault.clone(), now());
                    }
                    fault
                }))
            }
        }
    }

    /// The lane it was sent on.
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    fn forget(&mut self) {
        if self.answer.take().is_some() {
            self.lane.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.forget();
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("answered", &self.answer.is_none())
            .finish()
    }
}
