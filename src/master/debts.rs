//! What one lane still owes its master: undos that were sent and not answered, or not sent yet.
//!
//! Invariants:
//! 1. An undo is forgotten only when the server answered it, or its key must have expired.
//! 2. What is owed is bounded; beyond the bound the oldest are left to their TTL.

use super::reply::{Answer, ends_connection};
use super::{Fault, FaultKind, Key, parse};
use crate::quorum::{Deletion, Moment, Token};
use redis::{RedisResult, Value};
use std::collections::VecDeque;
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
        self.strays.push_back(Stray {
            answer,
            undo,
            since: now,
            backed_up: false,
        });
    }

    /// Remembers an undo for later.
    pub(super) fn owe(&mut self, undo: Undo, not_before: Moment) {
        if self.owed.len() >= MOST_OWED {
            self.owed.pop_front();
        }
        self.owed.push_back(Owed {
            undo,
            not_before,
            copied: false,
        });
    }

    /// Drops answered strays from the front, where the oldest are; says how many.
    pub(super) fn settle_front(&mut self) -> usize {
        let mut answered = 0;
        while let Some(stray) = self.strays.front_mut() {
            match stray.poll() {
                Poll::Ready(Ok(value)) => {
                    stray.note(value);
                    self.strays.pop_front();
                    answered += 1;
                }
                // Left to `settle`, which knows what time it is.
                Poll::Ready(Err(error)) => {
                    stray.answer = Box::pin(std::future::ready(Err(error)));
                    break;
                }
                Poll::Pending => break,
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
                    settled.answered += 1;
                }
                Poll::Ready(Err(error)) => {
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
                continue;
            }
            let due = all || owed.not_before <= now;
            match if due { send(&owed.undo) } else { None } {
                Some(answer) => {
                    sent += 1;
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
            self.owe(stray.undo, now);
        }
        count
    }

    /// Forgets what must have expired.
    pub(super) fn forget_expired(&mut self, now: Moment) {
        self.owed.retain(|owed| owed.undo.until > now);
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
        let stray = |stray: &Stray| *stray.undo.key == *key && !stray.backed_up;
        self.strays.iter().any(stray) || self.owed.iter().any(|owed| *owed.undo.key == *key)
    }

    /// Copies of undos sent before `before` and not answered, each handed out once.
    pub(super) fn backups(&mut self, before: Moment) -> Vec<Undo> {
        let late = |stray: &&mut Stray| !stray.backed_up && stray.since <= before;
        let copy = |stray: &mut Stray| {
            stray.backed_up = true;
            stray.undo.clone()
        };
        self.strays.iter_mut().filter(late).map(copy).collect()
    }

    /// Takes out all that is owed here.
    pub(super) fn take_owed(&mut self) -> Vec<Undo> {
        self.owed.drain(..).map(|owed| owed.undo).collect()
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
