//! One attempt on the wire: SETs to all masters, their votes to the machine, its rollback.
//!
//! The attempt owns what it has sent. Whatever becomes of the caller (a dropped future, a panic,
//! an aborted task) drops the attempt, and an attempt that was not handed over undoes itself on
//! its lanes, which outlive it (R9).

use super::pool::{Answer, Answers, Pool, Route, answers};
use super::{clock, random};
use crate::master::{Fault, FaultKind, Key, Need, Reply, Undo, parse, set};
use crate::quorum::{
    AcquireOutcome, AcquireRound, Lease, Members, Moment, SHORTEST_TIMEOUT, Token, Vote,
};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How much longer than its TTL an undo is remembered: a SET may arrive late, and servers'
/// clocks may run late.
pub(crate) const AFTERLIFE: Duration = Duration::from_secs(1);

/// What is to be acquired.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) key: Key,
    pub(crate) lease: Lease,
    /// The least validity that makes a lock.
    pub(crate) least: Duration,
    /// When the caller's own wait ends.
    pub(crate) give_up_at: Option<Moment>,
}

/// An attempt that was granted, and the answers that still come.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) token: Token,
    pub(crate) valid_until: Moment,
    pub(crate) route: Route,
    /// The masters that may have received the SET.
    pub(crate) sent: Members,
    pub(crate) grants: Members,
    /// SETs still unanswered; dropping one that is not yet written withdraws it.
    pub(crate) stragglers: Vec<(usize, Reply)>,
}

/// An attempt that was not granted: its rollback is on its way.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) outcome: AcquireOutcome,
    pub(crate) answers: Answers,
    pub(crate) denied: Members,
    /// Failures alone put a quorum out of reach.
    pub(crate) unreachable: bool,
    /// Failures that waiting cannot mend put a quorum out of reach.
    pub(crate) hopeless: bool,
    /// So many masters answered that the key is of another type.
    pub(crate) not_a_lock: bool,
    /// How long a caller may still look at the key of those that denied.
    pub(crate) timeout: Duration,
}

impl Refusal {
    /// A quorum granted, but the hand-over came too late; the guard that was made rolls back.
    pub(crate) fn too_slow(pool: &Pool, grants: Members) -> Self {
        let answer = |index| {
            if grants.contains(index) {
                Answer::Granted
            } else {
                Answer::Unanswered
            }
        };
        Self {
            outcome: AcquireOutcome::TooSlow,
            answers: (0..pool.masters.len()).map(answer).collect(),
            denied: Members::NONE,
            unreachable: false,
            hopeless: false,
            not_a_lock: false,
            timeout: Duration::ZERO,
        }
    }

    /// The same refusal once more, for reporting.
    pub(crate) fn again(&self) -> Self {
        Self {
            answers: self.answers.clone(),
            ..*self
        }
    }
}

/// One attempt, from before its first byte until it is decided.
pub(crate) struct Attempt {
    pool: Arc<Pool>,
    route: Route,
    undo: Undo,
    began: Moment,
    round: AcquireRound,
    replies: Vec<(usize, Reply)>,
    faults: Vec<(usize, Fault)>,
    /// Handed over to a holder, who undoes it from now on.
    handed_over: bool,
    timeout: Duration,
}

impl Attempt {
    /// Sends the SET to every master, and says what came of it.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub(crate) async fn run(pool: &Arc<Pool>, order: &Order) -> Result<Granted, Refusal> {
        let route = pool.route();
        if !pool.is_ready(route) {
            let patience = order.give_up_at.map_or(pool.connect_timeout, |end| {
                clock::now().until(end).min(pool.connect_timeout)
            });
            pool.wait_for(patience, |pool| pool.is_ready(route)).await;
        }
        let patience = |now: Moment| {
            let timeout = pool.terms.timeout_for(order.lease.ttl());
            let rest = order.give_up_at.map_or(timeout, |end| now.until(end));
            rest.min(timeout)
        };
        let barred = pool.wait_for_own_undos(route, &order.key, patience).await;
        // Sent with the waker of whoever waits, which spares a second poll of each reply.
        let mut attempt =
            poll_fn(|cx| Poll::Ready(Self::send(pool, route, order, barred, cx.waker()))).await;
        let outcome = attempt.decide().await;
        attempt.finish(outcome)
    }

    fn send(pool: &Arc<Pool>, route: Route, order: &Order, barred: Members, waker: &Waker) -> Self {
        let token = random::token();
        let began = clock::now();
        let mut attempt = Self {
            pool: Arc::clone(pool),
            route,
            began,
            round: AcquireRound::begin(
                &pool.terms,
                &order.lease,
                order.least,
                order.give_up_at,
                began,
            ),
            undo: Undo {
                key: Arc::clone(&order.key),
                token,
                until: began.plus(order.lease.ttl()).plus(AFTERLIFE),
                heard: None,
                refused: 0,
            },
            replies: Vec::with_capacity(pool.masters.len()),
            faults: Vec::new(),
            handed_over: false,
            timeout: pool.terms.timeout_for(order.lease.ttl()),
        };
        let cmd = Arc::new(set(&order.key, &attempt.undo.token, order.lease.ttl_ms()));
        for index in 0..pool.masters.len() {
            let lane = pool.masters[index].lane(route);
            let sent = if barred.contains(index) {
                Err(Fault::new(FaultKind::BehindOwnUndo))
            } else {
                lane.send(Need::Create, waker, |_| Arc::clone(&cmd))
            };
            match sent {
                Ok(reply) => {
                    attempt.round.handle_sent(index);
                    attempt.replies.push((index, reply));
                }
                Err(fault) => {
                    attempt.round.handle_vote(index, fault.vote(), began);
                    attempt.faults.push((index, fault));
                }
            }
        }
        attempt
    }

    async fn decide(&mut self) -> AcquireOutcome {
        let mut timer = pin!(tokio::time::sleep(
            clock::now().until(self.round.deadline())
        ));
        let mut just_sent = true;
        poll_fn(|cx| {
            if !std::mem::take(&mut just_sent) {
                self.poll_replies(cx);
            }
            loop {
                if let Some(outcome) = self.round.outcome() {
                    return Poll::Ready(outcome);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let now = clock::now();
                self.round.handle_time(now);
                if self.round.outcome().is_none() {
                    // The timer's clock and ours differ by less than its granularity.
                    let rest = now.until(self.round.deadline());
                    timer.set(tokio::time::sleep(rest.max(Duration::from_millis(1))));
                }
            }
        })
        .await
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>) {
        let mut place = 0;
        // Read once for what came together, after the first of it was seen to be there.
        let mut now = None;
        while let Some((index, reply)) = self.replies.get_mut(place) {
            let index = *index;
            match reply.poll(cx, clock::now) {
                Poll::Pending => place += 1,
                Poll::Ready(answer) => {
                    drop(self.replies.swap_remove(place));
                    self.hear(index, &answer, *now.get_or_insert_with(clock::now));
                }
            }
        }
    }

    fn hear(&mut self, index: usize, answer: &Result<redis::Value, Fault>, now: Moment) {
        match parse::set(answer) {
            Ok(vote) => self.round.handle_vote(index, vote, now),
            Err(fault) => {
                if fault.is_server_answer() {
                    self.round.handle_error(index, fault.vote(), now);
                } else {
                    self.round.handle_vote(index, fault.vote(), now);
                }
                self.faults.push((index, fault));
            }
        }
    }

    fn finish(mut self, outcome: AcquireOutcome) -> Result<Granted, Refusal> {
        if let AcquireOutcome::Granted { valid_until } = outcome {
            self.handed_over = true;
            return Ok(Granted {
                token: self.undo.token.clone(),
                valid_until,
                route: self.route,
                sent: self.round.to_undo(),
                grants: self.round.tally().granted(),
                stragglers: std::mem::take(&mut self.replies),
            });
        }
        let tally = self.round.tally();
        // A wait that our own deadline cut short blames nobody for a silence that was no longer
        // than any master may need.
        let silent = clock::now().since(self.began) >= SHORTEST_TIMEOUT;
        let timed_out = match outcome {
            AcquireOutcome::TimedOut | AcquireOutcome::TooSlow => true,
            AcquireOutcome::CutShort => silent,
            AcquireOutcome::Granted { .. } | AcquireOutcome::Refused => false,
        };
        Err(Refusal {
            outcome,
            answers: self.answers(timed_out),
            denied: tally.denied(),
            unreachable: if timed_out {
                tally.is_unreachable_at_timeout()
            } else {
                tally.is_unreachable()
            },
            hopeless: tally.is_hopeless(),
            not_a_lock: self.wrong_types() > self.pool.terms.masters - self.pool.terms.quorum(),
            timeout: self.timeout,
        })
        // Dropping self rolls back.
    }

    fn wrong_types(&self) -> usize {
        let wrong = |(_, fault): &&(usize, Fault)| fault.kind() == FaultKind::WrongType;
        self.faults.iter().filter(wrong).count()
    }

    fn answers(&self, timed_out: bool) -> Answers {
        answers(self.round.tally(), &self.faults, timed_out)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        // Unwritten SETs are withdrawn first; the undo is queued behind those that were written.
        self.replies.clear();
        let undone = self.round.to_undo();
        if !undone.is_empty() {
            self.pool.undo(self.route, undone, &self.undo, clock::now());
        }
    }
}

/// Reads a late vote of a granted attempt: whether this master granted after all (R10).
pub(crate) fn late_grant(reply: &mut Reply) -> Poll<bool> {
    let mut cx = Context::from_waker(Waker::noop());
    reply
        .poll(&mut cx, clock::now)
        .map(|answer| matches!(parse::set(&answer), Ok(Vote::Granted)))
}
