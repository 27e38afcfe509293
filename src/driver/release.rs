//! Compare-and-delete on all masters, awaited or in the background (R21, R22).
//!
//! The deletes are queued before the first await, and handed to the lanes when nobody waits for
//! their answers any more: a dropped future neither stops nor loses one.

use super::clock;
use super::pool::{Answer, Answers, Pool, Route, answers};
use crate::master::{Deletes, Fault, FaultKind, Heard, Lane, Need, Reply, Undo, parse};
use crate::quorum::{Deletion, Members, ReleaseOutcome, ReleaseRound};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What is known of a lock's keys when it is let go.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) undo: Undo,
    pub(crate) ttl: Duration,
    /// The lanes on which its SETs were sent.
    pub(crate) route: Route,
    /// The masters that may have received a SET: they are owed a delete if it cannot be sent.
    pub(crate) sent: Members,
    /// The masters whose SET was unanswered: its delete must follow it on its own lane.
    pub(crate) unanswered: Members,
    /// The masters whose heal (on the service lane) was unanswered.
    pub(crate) healing: Members,
    /// Where the answers to the deletes of an earlier release of this lock are noted.
    pub(crate) earlier: Vec<(usize, Heard)>,
}

/// How a release ended, with every master's answer: granted is deleted, denied is not ours.
#[derive(Debug)]
pub(crate) struct ReleaseReport {
    pub(crate) outcome: ReleaseOutcome,
    pub(crate) answers: Answers,
}

/// Sends the deletes and waits until a quorum has answered, at most the per-master timeout.
///
/// # Cancel safety
/// The deletes are sent whatever becomes of the future.
pub(crate) async fn release(pool: &Arc<Pool>, held: Held) -> ReleaseReport {
    let mut releasing = Releasing::begin(pool, held).await;
    let outcome = releasing.decide().await;
    ReleaseReport {
        outcome,
        answers: releasing.answers(outcome),
    }
}

/// Sends the deletes and waits for nothing. Callable anywhere, also outside a runtime.
pub(crate) fn in_background(pool: &Arc<Pool>, held: Held) {
    let route = pool.route();
    drop(Releasing::send(pool, route, held, Waker::noop()));
}

/// A release that was sent.
///
/// Dropping it hands the deletes that are still unanswered to their lanes.
pub(crate) struct Releasing {
    pool: Arc<Pool>,
    undo: Undo,
    round: ReleaseRound,
    /// Deletes of an earlier call, or owed by this one: who finds nothing may find them the cause.
    earlier: Vec<(usize, Heard)>,
    replies: Vec<(usize, Reply)>,
    faults: Vec<(usize, Fault)>,
}

impl Releasing {
    /// Sends the deletes, as soon as there are connections to send them on.
    ///
    /// # Cancel safety
    /// A future dropped before its first return sends them too.
    pub(crate) async fn begin(pool: &Arc<Pool>, held: Held) -> Self {
        let route = pool.route();
        if !pool.is_ready(route) {
            let mut pending = Pending {
                pool,
                held: Some(held),
            };
            pool.wait_for(pool.connect_timeout, |pool| pool.is_ready(route))
                .await;
            let held = pending.held.take();
            return match held {
                Some(held) => Self::send_woken(pool, route, held).await,
                None => unreachable!("only this function takes it"),
            };
        }
        Self::send_woken(pool, route, held).await
    }

    /// Sends with the waker of whoever waits, which spares a second poll of each reply.
    async fn send_woken(pool: &Arc<Pool>, route: Route, held: Held) -> Self {
        let mut held = Some(held);
        poll_fn(|cx| match held.take() {
            Some(held) => Poll::Ready(Self::send(pool, route, held, cx.waker())),
            None => Poll::Pending,
        })
        .await
    }

    fn send(pool: &Arc<Pool>, route: Route, held: Held, waker: &Waker) -> Self {
        let now = clock::now();
        let mut releasing = Self {
            pool: Arc::clone(pool),
            earlier: held.earlier,
            round: ReleaseRound::begin(&pool.terms, held.ttl, now),
            undo: held.undo,
            replies: Vec::with_capacity(pool.masters.len()),
            faults: Vec::new(),
        };
        for (index, heard) in &releasing.earlier {
            if heard.load(Ordering::Acquire) {
                releasing.round.handle_answer(*index, Deletion::Deleted);
            }
        }
        let undo = releasing.undo.clone();
        let mut deletes = Deletes::new(&undo.key, &undo.token);
        for (index, master) in pool.masters.iter().enumerate() {
            if held.healing.contains(index) {
                master.lane(Route::Service).undo(undo.clone(), now);
            }
            let own = if held.unanswered.contains(index) {
                held.route
            } else {
                route
            };
            let lane = master.lane(own);
            // A master that got no SET of this lock is asked only while it answers at all.
            let need = if held.sent.contains(index) {
                Need::Undo
            } else {
                Need::Change
            };
            match lane.send(need, waker, |server| deletes.for_server(server)) {
                Ok(reply) => releasing.replies.push((index, reply)),
                Err(fault) => {
                    if held.sent.contains(index) {
                        releasing.owe(index, lane);
                    }
                    releasing.hear(index, Err(fault));
                }
            }
        }
        releasing
    }

    /// Waits until the release is decided, at most the per-master timeout.
    pub(crate) async fn decide(&mut self) -> ReleaseOutcome {
        let mut timer = pin!(tokio::time::sleep(
            clock::now().until(self.round.deadline())
        ));
        let mut just_sent = true;
        poll_fn(|cx| {
            if !std::mem::take(&mut just_sent) {
                self.poll_replies(cx);
            }
            if let Some(outcome) = self.round.outcome() {
                return Poll::Ready(outcome);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.round.handle_time(self.round.deadline());
            Poll::Ready(self.round.outcome().unwrap_or(ReleaseOutcome::Unconfirmed))
        })
        .await
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>) {
        let mut place = 0;
        while let Some((index, reply)) = self.replies.get_mut(place) {
            let index = *index;
            match reply.poll(cx, clock::now) {
                Poll::Pending => place += 1,
                Poll::Ready(answer) => {
                    let (_, reply) = self.replies.swap_remove(place);
                    let answer = parse::delete(&answer);
                    if answer.is_err() {
                        // Refused or lost: owed, since the key may still be there.
                        self.owe(index, reply.lane());
                    }
                    self.hear(index, answer);
                }
            }
        }
    }

    fn hear(&mut self, index: usize, answer: Result<Deletion, Fault>) {
        match answer {
            Ok(Deletion::NotOurs) if self.deleted_earlier(index) => {
                self.round.handle_answer(index, Deletion::Deleted);
            }
            Ok(deletion) => self.round.handle_answer(index, deletion),
            Err(fault) => {
                self.round.handle_answer(index, Deletion::Failed);
                self.faults.push((index, fault));
            }
        }
    }

    /// Whether a delete of an earlier call was what left nothing to delete.
    ///
    /// On one lane it was answered before; it only has to be looked at.
    fn deleted_earlier(&self, index: usize) -> bool {
        let mut own = self
            .earlier
            .iter()
            .filter(|(at, _)| *at == index)
            .peekable();
        if own.peek().is_some() {
            let (now, master) = (clock::now(), &self.pool.masters[index]);
            master.lane(Route::Home).settle(now);
            master.lane(Route::Service).settle(now);
        }
        own.any(|(_, heard)| heard.load(Ordering::Acquire))
    }

    fn owe(&mut self, index: usize, lane: &Lane) {
        let undo = self.noted(index);
        lane.owe(undo, clock::now());
    }

    /// The undo for this master, whose answer a later call can ask for.
    fn noted(&mut self, index: usize) -> Undo {
        let heard = Heard::default();
        self.earlier.push((index, Arc::clone(&heard)));
        Undo {
            heard: Some(heard),
            ..self.undo.clone()
        }
    }

    /// Hands the deletes to their lanes, and says where their answers will be noted.
    pub(crate) fn cancel(mut self) -> Vec<(usize, Heard)> {
        let now = clock::now();
        for (index, reply) in std::mem::take(&mut self.replies) {
            let lane = Arc::clone(reply.lane());
            let undo = self.noted(index);
            lane.strand(reply, undo, now);
        }
        self.pool.wake_sweeper();
        // What this call heard is true for the next one too, which finds nothing there.
        for index in self.round.tally().granted().iter() {
            self.earlier.push((index, Arc::new(AtomicBool::new(true))));
        }
        std::mem::take(&mut self.earlier)
    }

    /// Every master's answer: granted is deleted, denied is not ours.
    pub(crate) fn answers(&self, outcome: ReleaseOutcome) -> Answers {
        answers(
            self.round.tally(),
            &self.faults,
            outcome == ReleaseOutcome::Unconfirmed,
        )
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if self.replies.is_empty() && self.faults.is_empty() {
            return;
        }
        let now = clock::now();
        for (_, reply) in self.replies.drain(..) {
            let lane = Arc::clone(reply.lane());
            lane.strand(reply, self.undo.clone(), now);
        }
        self.pool.wake_sweeper();
    }
}

/// A release that waits for its connections; dropped, it goes to the background.
struct Pending<'a> {
    pool: &'a Arc<Pool>,
    held: Option<Held>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            in_background(self.pool, held);
        }
    }
}

/// Deletes the key whoever holds it, on every master that can be reached.
pub(crate) async fn force(pool: &Arc<Pool>, key: &[u8], timeout: Duration) -> Answers {
    let route = pool.route();
    pool.wait_for(pool.connect_timeout, |pool| pool.is_settled(route))
        .await;
    let words: [&[u8]; 2] = [b"DEL", key];
    super::inspect::ask_all(pool, route, &words, timeout)
        .await
        .into_iter()
        .map(|answer| match answer {
            Ok(redis::Value::Int(0)) => Answer::Denied,
            Ok(redis::Value::Int(_)) => Answer::Granted,
            Ok(_) => Answer::Failed(Fault::with_detail(
                FaultKind::Protocol,
                "no answer to a delete",
            )),
            Err(fault) => Answer::Failed(fault),
        })
        .collect()
}
