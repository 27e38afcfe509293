//! What one lane still owes its master: undos that were sent and not answered, or not sent yet.
//!
//! Invariants:
//! 1. An undo is forgotten only when the server answered it, or its key must have expired.
//! 2. What is owed is bounded; beyond the bound the oldest are left to their TTL.

use super::reply::{Answer, ends_connection};
use super::{Fault, FaultKind, Key, parse};
use crate::quorum::{Deletion, Mending, Moment, Token};
use redis::{RedisResult, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Undos remembered for a master that is away.
const MOST_OWED: usize = 16_384;
/// The first pause before an undo that the server refused (busy, loading) is sent again.
const REFUSED_AGAIN: Duration = Duration::from_millis(50);
/// The longest such pause, and the only one where waiting alone mends nothing (no rights).
const REFUSED_LONG: Duration = Duration::from_secs(2);

/// A compare-and-delete that is owed to a master until `until`.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// When the key must have expired by itself.
    pub(crate) until: Moment,
    /// Where it is noted that the key was there, for whoever may ask later.
    pub(crate) heard: Option<Heard>,
    /// How often a server has refused it.
    pub(crate) refused: u32,
}

/// Whether any delete of this token has deleted: noted for whoever asks later.
///
/// Only that is noted: that nothing was found may be another delete's doing.
pub(crate) type Heard = Arc<AtomicBool>;

/// An undo that was sent and whose sender no longer waits.
struct Stray {
    answer: Answer,
    undo: Undo,
    since: Moment,
    /// A copy was sent elsewhere, in case this lane's runtime is no longer run.
    backed_up: bool,
}

struct Owed {
    undo: Undo,
    not_before: Moment,
    /// A copy was sent on the master's other lane; this one stays for the next connection here,
    /// behind a SET that may still stand in the server's old input.
    copied: bool,
}

/// Undos unanswered and owed.
#[derive(Default)]
pub(super) struct Debts {
    strays: VecDeque<Stray>,
    owed: VecDeque<Owed>,
    /// How many undos of each key are unanswered or owed, those backed up elsewhere left out.
    keys: BTreeMap<Key, u32>,
}

/// What came of settling.
#[derive(Default)]
pub(super) struct Settled {
    /// How many were answered.
    pub(super) answered: usize,
    /// The connection turned out to be broken.
    pub(super) broken: Option<Fault>,
}

impl Debts {
    /// Keeps an answer nobody waits for any more.
    pub(super) fn strand(&mut self, answer: Answer, undo: Undo, now: Moment) {
        self.count(&undo.key);
        self.strays.push_back(Stray {
            answer,
            undo,
            since: now,
            backed_up: false,
        });
    }

    /// Remembers an undo for later.
    pub(super) fn owe(&mut self, undo: Undo, not_before: Moment) {
        self.owe_as(undo, not_before, false);
    }

    fn owe_as(&mut self, undo: Undo, not_before: Moment, copied: bool) {
        let same = |owed: &Owed| owed.undo.token == undo.token && owed.undo.key == undo.key;
        if self.has(&undo.key) && self.owed.iter().any(same) {
            return;
        }
        if self.owed.len() >= MOST_OWED
            && let Some(oldest) = self.owed.pop_front()
        {
            self.uncount(&oldest.undo.key);
        }
        self.count(&undo.key);
        self.owed.push_back(Owed {
            undo,
            not_before,
            copied,
        });
    }

    /// Drops answered strays from the front, where the oldest are; says how many.
    pub(super) fn settle_front(&mut self) -> usize {
        let mut answered = 0;
        while let Some(mut stray) = self.strays.pop_front() {
            match stray.poll() {
                Poll::Ready(Ok(value)) => {
                    stray.note(value);
                    self.forget(&stray);
                    answered += 1;
                }
                // Left to `settle`, which knows what time it is.
                Poll::Ready(Err(error)) => {
                    stray.answer = Box::pin(std::future::ready(Err(error)));
                    self.strays.push_front(stray);
                    break;
                }
                Poll::Pending => {
                    self.strays.push_front(stray);
                    break;
                }
            }
        }
        answered
    }

    /// Drops all answered strays; refused ones are owed.
    pub(super) fn settle(&mut self, now: Moment) -> Settled {
        let mut settled = Settled::default();
        for _ in 0..self.strays.len() {
            let Some(mut stray) = self.strays.pop_front() else {
                break;
            };
            match stray.poll() {
                Poll::Pending => self.strays.push_back(stray),
                Poll::Ready(Ok(value)) => {
                    stray.note(value);
                    self.forget(&stray);
                    settled.answered += 1;
                }
                Poll::Ready(Err(error)) => {
                    self.forget(&stray);
                    settled.answered += 1;
                    let lost = ends_connection(&error);
                    let fault = Fault::from_redis(error);
                    // A key of another type is not our lock: there is nothing to undo.
                    if fault.kind() != FaultKind::WrongType {
                        let pause = refused_pause(&fault, stray.undo.refused);
                        let mut undo = stray.undo;
                        undo.refused = undo.refused.saturating_add(1);
                        self.owe(undo, now.plus(pause));
                    }
                    if lost {
                        settled.broken = Some(fault);
                    }
                }
            }
        }
        settled
    }

    /// Sends what is owed and due; `all` also what was to wait a little. Says how many it sent.
    pub(super) fn resend(
        &mut self,
        now: Moment,
        all: bool,
        mut send: impl FnMut(&Undo) -> Option<Answer>,
    ) -> usize {
        let mut sent = 0;
        for _ in 0..self.owed.len() {
            let Some(owed) = self.owed.pop_front() else {
                break;
            };
            if owed.undo.until <= now {
                self.uncount(&owed.undo.key);
                continue;
            }
            let due = all || owed.not_before <= now;
            match if due { send(&owed.undo) } else { None } {
                Some(answer) => {
                    sent += 1;
                    self.uncount(&owed.undo.key);
                    self.strand(answer, owed.undo, now);
                }
                None => self.owed.push_back(owed),
            }
        }
        sent
    }

    /// The connection is over: what was unanswered is owed. Says how many that were.
    pub(super) fn end(&mut self, now: Moment) -> usize {
        let strays = std::mem::take(&mut self.strays);
        let count = strays.len();
        for stray in strays {
            self.forget(&stray);
            self.owe_as(stray.undo, now, stray.backed_up);
        }
        count
    }

    /// Forgets what must have expired.
    pub(super) fn forget_expired(&mut self, now: Moment) {
        if self.owed.iter().all(|owed| owed.undo.until > now) {
            return;
        }
        for owed in std::mem::take(&mut self.owed) {
            if owed.undo.until > now {
                self.owed.push_back(owed);
            } else {
                self.uncount(&owed.undo.key);
            }
        }
    }

    /// How many undos are left to be answered here; copies sent elsewhere do not count.
    pub(super) fn left(&self) -> usize {
        let strays = self.strays.iter().filter(|stray| !stray.backed_up).count();
        strays + self.owed.iter().filter(|owed| !owed.copied).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.strays.is_empty() && self.owed.is_empty()
    }

    pub(super) fn owes(&self) -> bool {
        self.owed.iter().any(|owed| !owed.copied)
    }

    /// How long the oldest stray has been waiting.
    pub(super) fn oldest(&self, now: Moment) -> Option<Duration> {
        self.strays.front().map(|stray| now.since(stray.since))
    }

    /// Whether an undo for this key is unanswered or owed here.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether there is anything for [`backups`](Self::backups) to hand out.
    pub(super) fn has_backups(&self, before: Moment) -> bool {
        let late = |stray: &Stray| !stray.backed_up && stray.since <= before;
        self.strays.iter().any(late)
    }

    /// Copies of undos sent before `before` and not answered, each handed out once.
    pub(super) fn backups(&mut self, before: Moment) -> Vec<Undo> {
        let late = |stray: &&mut Stray| !stray.backed_up && stray.since <= before;
        let copy = |stray: &mut Stray| {
            stray.backed_up = true;
            stray.undo.clone()
        };
        let undos: Vec<Undo> = self.strays.iter_mut().filter(late).map(copy).collect();
        for undo in &undos {
            self.uncount(&undo.key);
        }
        undos
    }

    /// Takes out all that is owed here.
    pub(super) fn take_owed(&mut self) -> Vec<Undo> {
        let undos: Vec<Undo> = self.owed.drain(..).map(|owed| owed.undo).collect();
        for undo in &undos {
            self.uncount(&undo.key);
        }
        undos
    }

    /// Copies of what is owed here, each handed out once, for the master's other lane.
    pub(super) fn copies(&mut self) -> Vec<Undo> {
        let copy = |owed: &mut Owed| {
            owed.copied = true;
            owed.undo.clone()
        };
        self.owed
            .iter_mut()
            .filter(|owed| !owed.copied)
            .map(copy)
            .collect()
    }
}

impl Debts {
    fn forget(&mut self, stray: &Stray) {
        if !stray.backed_up {
            self.uncount(&stray.undo.key);
        }
    }

    fn count(&mut self, key: &Key) {
        *self.keys.entry(Arc::clone(key)).or_default() += 1;
    }

    fn uncount(&mut self, key: &Key) {
        if let Some(count) = self.keys.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(key);
            }
        }
    }
}

/// The pause after a refusal: doubling, and long at once where it stays refused.
fn refused_pause(fault: &Fault, before: u32) -> Duration {
    match fault.kind().mending() {
        Mending::Passing => REFUSED_AGAIN
            .saturating_mul(1 << before.min(10))
            .min(REFUSED_LONG),
        Mending::Lasting => REFUSED_LONG,
    }
}

impl Stray {
    /// Notes what the delete found, where somebody may ask.
    fn note(&self, value: Value) {
        if let Some(heard) = &self.undo.heard
            && parse::delete(&Ok(value)).is_ok_and(|found| found == Deletion::Deleted)
        {
            heard.store(true, Ordering::Release);
        }
    }

    fn poll(&mut self) -> Poll<RedisResult<Value>> {
        self.answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }
}

#[cfg(test)]
mod tests;
