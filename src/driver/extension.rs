//! One extension on the wire: compare-and-extend on all masters, and healing (R16).

use super::clock;
use super::pool::{Answers, Pool, Route, answers};
use crate::master::{Fault, Key, Need, Reply, extend, parse, set};
use crate::quorum::{ExtendOutcome, ExtendRound, Extension, Lease, Token};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Whoever holds the lock lets a heal through, or bars it once the hold has ended (R21).
pub(crate) trait HealGate: Sync {
    /// Calls `send` while the end of the hold is kept out, if the lock is still held.
    ///
    /// If it says that it has sent, the holder knows from then on that this master may have the
    /// key. Says whether the hold still lasts.
    fn let_through(&self, master: usize, send: &mut dyn FnMut() -> bool) -> bool;

    /// A heal was answered: nothing of it is under way any more.
    fn healed(&self, master: usize);
}

/// An extension that was sent.
pub(crate) struct Extending {
    pool: Arc<Pool>,
    key: Key,
    token: Token,
    lease: Lease,
    round: ExtendRound,
    replies: Vec<(usize, Reply)>,
    heals: Vec<(usize, Reply)>,
    faults: Vec<(usize, Fault)>,
}

impl Extending {
    /// Sends the extension to every master.
    pub(crate) fn send(
        pool: &Arc<Pool>,
        route: Route,
        key: &Key,
        token: &Token,
        lease: Lease,
    ) -> Self {
        let began = clock::now();
        let mut extending = Self {
            pool: Arc::clone(pool),
            key: Arc::clone(key),
            token: token.clone(),
            lease,
            round: ExtendRound::begin(&pool.terms, &lease, began),
            replies: Vec::with_capacity(pool.masters.len()),
            heals: Vec::new(),
            faults: Vec::new(),
        };
        let cmd = Arc::new(extend(key, token, lease.ttl_ms()));
        for (index, master) in pool.masters.iter().enumerate() {
            let sent = master
                .lane(route)
                .send(Need::Change, Waker::noop(), |_| Arc::clone(&cmd));
            match sent {
                Ok(reply) => extending.replies.push((index, reply)),
                Err(fault) => extending.hear(index, Err(fault)),
            }
        }
        extending
    }

    /// Waits until the extension is decided.
    ///
    /// # Cancel safety
    /// Nothing is lost: what was sent compares the token and can only extend.
    pub(crate) async fn outcome(&mut self) -> ExtendOutcome {
        self.wait(|extending| extending.round.outcome().is_some(), None)
            .await;
        self.round.outcome().unwrap_or(ExtendOutcome::Unsure)
    }

    /// Gives the key again to masters that lack it, until all have answered or time is up.
    ///
    /// Heals take the service lane: a release that meets one follows it there.
    pub(crate) async fn heal(&mut self, gate: &dyn HealGate) {
        if matches!(self.round.outcome(), Some(ExtendOutcome::Extended { .. })) {
            self.wait(Self::nothing_to_heal, Some(gate)).await;
        }
    }

    fn nothing_to_heal(&self) -> bool {
        let due = self.round.due_for_heal(clock::now());
        self.round.is_complete() && self.heals.is_empty() && due.is_empty()
    }

    /// Every master's answer: granted is extended, denied is missing or somebody else's.
    pub(crate) fn answers(&self) -> Answers {
        let timed_out = clock::now() >= self.round.deadline();
        answers(self.round.tally(), &self.faults, timed_out)
    }

    async fn wait(&mut self, done: impl Fn(&Self) -> bool, gate: Option<&dyn HealGate>) {
        let rest = clock::now().until(self.round.deadline());
        let mut timer = pin!(tokio::time::sleep(rest));
        let pool = Arc::clone(&self.pool);
        let mut changed = pin!(pool.changed.notified());
        poll_fn(|cx| {
            self.poll_replies(cx);
            if let Some(gate) = gate {
                // A lane that comes up may have a heal waiting for it.
                while changed.as_mut().poll(cx).is_ready() {
                    changed.set(pool.changed.notified());
                }
                self.send_heals(gate);
                self.poll_heals(cx, gate);
            }
            if done(self) {
                return Poll::Ready(());
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.round
                .handle_time(clock::now().max(self.round.deadline()));
            Poll::Ready(())
        })
        .await;
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>) {
        let mut place = 0;
        while let Some((index, reply)) = self.replies.get_mut(place) {
            let index = *index;
            match reply.poll(cx, clock::now) {
                Poll::Pending => place += 1,
                Poll::Ready(answer) => {
                    drop(self.replies.swap_remove(place));
                    self.hear(index, parse::extend(&answer));
                }
            }
        }
    }

    fn poll_heals(&mut self, cx: &mut Context<'_>, gate: &dyn HealGate) {
        self.heals
            .retain_mut(|(index, reply)| match reply.poll(cx, clock::now) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    // A broken connection leaves it open whether the key was set.
                    if answer.is_ok() || answer.is_err_and(|fault| fault.is_server_answer()) {
                        gate.healed(*index);
                    }
                    false
                }
            });
    }

    fn send_heals(&mut self, gate: &dyn HealGate) {
        let due = self.round.due_for_heal(clock::now());
        if !due.is_empty() {
            // A hold without a watchdog may not have wanted the service lanes yet.
            self.pool.want_service();
        }
        for index in due.iter() {
            let Self {
                pool,
                key,
                token,
                lease,
                heals,
                ..
            } = self;
            let lane = pool.masters[index].lane(Route::Service);
            let mut sent = false;
            let mut send = || {
                // A lane that is not up yet is tried again when it is.
                let build = |_| Arc::new(set(key, token, lease.ttl_ms()));
                if let Ok(reply) = lane.send(Need::Create, Waker::noop(), build) {
                    heals.push((index, reply));
                    sent = true;
                }
                sent
            };
            let held = gate.let_through(index, &mut send);
            if sent || !held {
                self.round.handle_heal_sent(index);
            }
        }
    }

    fn hear(&mut self, index: usize, answer: Result<Extension, Fault>) {
        let now = clock::now();
        let answer = answer.unwrap_or_else(|fault| {
            let mending = fault.kind().mending();
            self.faults.push((index, fault));
            Extension::Failed(mending)
        });
        self.round.handle_answer(index, answer, now);
    }
}
