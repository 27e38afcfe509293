//! What one lane still owes its master: undos that were sent and not answered, or not sent yet.
//!
//! Invariants:
//! 1. An undo is forgotten only when the server answered it, or its key must have expired.
//! 2. What is owed is bounded; beyond the bound the oldest are left to their TTL.

use super::reply::{Answer, ends_connection};
use super::{Fault, FaultKind, Key, parse};
use crate::quorum::{Deletion, Moment, Token};
use redis::{RedisResult, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Undos remembered for a master that is away.
const MOST_OWED: usize = 16_384;
/// The pause before an undo that the server refused (busy, loading) is sent again.
const REFUSED_AGAIN: Duration = Duration::from_millis(50);

/// A compare-and-delete that is owed to a master until `until`.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// When the key must have expired by itself.
    pub(crate) until: Moment,
    /// Where the answer is noted, for whoever may ask for it later.
    pub(crate) heard: Option<Heard>,
}

/// Where the answer to a delete is noted that nobody waits for any more.
pub(crate) type Heard = Arc<OnceLock<Deletion>>;

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
        if self.owed.len() >= MOST_OWED
            && let Some(oldest) = self.owed.pop_front()
        {
            self.uncount(&oldest.undo.key);
        }
        self.count(&undo.key);
        self.owed.push_back(Owed {
            undo,
            not_before,
            copied: false,
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
                        self.owe(stray.undo, now.plus(REFUSED_AGAIN));
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
        send: impl Fn(&Undo) -> Option<Answer>,
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
            let backed_up = stray.backed_up;
            self.owe(stray.undo, now);
            if let Some(owed) = self.owed.back_mut() {
                owed.copied = backed_up;
            }
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

impl Stray {
    /// Notes what the delete found, where somebody may ask.
    fn note(&self, value: Value) {
        if let Some(heard) = &self.undo.heard
            && let Ok(deletion) = parse::delete(&Ok(value))
        {
            // An earlier answer is the one that saw the key.
            heard.get_or_init(|| deletion);
        }
    }

    fn poll(&mut self) -> Poll<RedisResult<Value>> {
        self.answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo() -> Undo {
        Undo {
            key: Arc::from(&b"k"[..]),
            token: Token::from_text("t"),
            until: Moment::from_nanos(1_000),
            heard: None,
        }
    }

    fn silence() -> Answer {
        Box::pin(std::future::pending())
    }

    #[test]
    fn a_key_is_known_for_as_long_as_an_undo_of_it_is_open() {
        let now = Moment::from_nanos(10);
        let mut debts = Debts::default();
        debts.owe(undo(), now);
        assert!(debts.has(b"k") && !debts.has(b"other"));
        assert_eq!(debts.take_owed().len(), 1);
        assert!(!debts.has(b"k"));

        debts.strand(silence(), undo(), now);
        debts.strand(Box::pin(std::future::ready(Ok(Value::Int(1)))), undo(), now);
        assert_eq!(debts.settle(now).answered, 1);
        assert!(debts.has(b"k"), "one is still silent");
        assert_eq!(debts.backups(now).len(), 1);
        assert!(
            !debts.has(b"k") && debts.left() == 0,
            "its copy counts elsewhere"
        );

        assert_eq!(debts.end(now), 1);
        assert!(debts.has(b"k"), "owed to the next connection");
        assert_eq!(debts.resend(now, true, |_| Some(silence())), 1);
        assert!(debts.has(b"k"));
        debts.end(now);
        debts.forget_expired(Moment::from_nanos(1_000));
        assert!(!debts.has(b"k") && debts.is_empty());
    }

    #[test]
    fn what_a_delete_found_is_noted_where_somebody_may_ask() {
        let heard = Heard::default();
        let mut debts = Debts::default();
        let noted = Undo {
            heard: Some(Arc::clone(&heard)),
            ..undo()
        };
        debts.strand(
            Box::pin(std::future::ready(Ok(Value::Int(1)))),
            noted,
            Moment::ZERO,
        );
        assert_eq!(debts.settle_front(), 1);
        assert_eq!(heard.get(), Some(&Deletion::Deleted));
    }
}
