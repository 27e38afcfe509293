//! Compare-and-delete on all masters, awaited or in the background (R21, R22).
//!
//! The deletes are queued before the first await, and handed to the lanes when nobody waits for
//! their answers any more: a dropped future neither stops nor loses one.

use super::clock;
use super::pool::{Answer, Answers, Pool, Route};
use crate::master::{Fault, FaultKind, Need, Reply, Undo, delete, parse};
use crate::quorum::{Deletion, Members, ReleaseOutcome, ReleaseRound};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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
    /// Deletes of an earlier release of this lock that nobody has heard the answers of.
    pub(crate) earlier: Vec<(usize, Reply)>,
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
    drop(Releasing::send(pool, route, held));
}

/// A release that was sent.
///
/// Dropping it hands the deletes that are still unanswered to their lanes.
pub(crate) struct Releasing {
    pool: Arc<Pool>,
    undo: Undo,
    round: ReleaseRound,
    /// Deletes of an earlier call; in order before those of this one on the same lane.
    earlier: Vec<(usize, Reply)>,
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
                Some(held) => Self::send(pool, route, held),
                None => unreachable!("only this function takes it"),
            };
        }
        Self::send(pool, route, held)
    }

    fn send(pool: &Arc<Pool>, route: Route, held: Held) -> Self {
        let now = clock::now();
        let mut releasing = Self {
            pool: Arc::clone(pool),
            earlier: held.earlier,
            round: ReleaseRound::begin(&pool.terms, held.ttl, now),
            undo: held.undo,
            replies: Vec::with_capacity(pool.masters.len()),
            faults: Vec::new(),
        };
        for (index, master) in pool.masters.iter().enumerate() {
            if held.healing.contains(index) {
                master
                    .lane(Route::Service)
                    .undo(releasing.undo.clone(), now);
            }
            let own = if held.unanswered.contains(index) {
                held.route
            } else {
                route
            };
            let lane = master.lane(own);
            let Undo { key, token, .. } = &releasing.undo;
            match lane.send(Need::Undo, |abilities| delete(abilities, key, token)) {
                Ok(reply) => releasing.replies.push((index, reply)),
                Err(fault) => {
                    if held.sent.contains(index) {
                        lane.owe(releasing.undo.clone(), now);
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
        poll_fn(|cx| {
            self.poll_replies(cx);
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
        let mut heard = Vec::new();
        self.earlier
            .retain_mut(|(index, reply)| match reply.poll(cx, clock::now) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    heard.extend(
                        parse::delete(&answer)
                            .ok()
                            .map(|deletion| (*index, deletion)),
                    );
                    false
                }
            });
        for (index, deletion) in heard {
            self.hear(index, Ok(deletion));
        }
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
                        reply.lane().owe(self.undo.clone(), clock::now());
                    }
                    self.hear(index, answer);
                }
            }
        }
    }

    fn hear(&mut self, index: usize, answer: Result<Deletion, Fault>) {
        match answer {
            Ok(deletion) => self.round.handle_answer(index, deletion),
            Err(fault) => {
                self.round.handle_answer(index, Deletion::Failed);
                self.faults.push((index, fault));
            }
        }
    }

    /// Takes the answers that are still to come out, for a later call to hear.
    pub(crate) fn take_replies(&mut self) -> Vec<(usize, Reply)> {
        self.faults.clear();
        self.earlier
            .drain(..)
            .chain(self.replies.drain(..))
            .collect()
    }

    /// Every master's answer: granted is deleted, denied is not ours.
    pub(crate) fn answers(&self, outcome: ReleaseOutcome) -> Answers {
        let tally = self.round.tally();
        (0..self.pool.masters.len())
            .map(|index| {
                if tally.granted().contains(index) {
                    Answer::Granted
                } else if tally.denied().contains(index) {
                    Answer::Denied
                } else if let Some((_, fault)) = self.faults.iter().find(|(at, _)| *at == index) {
                    Answer::Failed(fault.clone())
                } else if outcome == ReleaseOutcome::Unconfirmed {
                    Answer::Failed(Fault::new(FaultKind::Timeout))
                } else {
                    Answer::Unanswered
                }
            })
            .collect()
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if self.earlier.is_empty() && self.replies.is_empty() && self.faults.is_empty() {
            return;
        }
        let now = clock::now();
        for (_, reply) in self.earlier.drain(..).chain(self.replies.drain(..)) {
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
