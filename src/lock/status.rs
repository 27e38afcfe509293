//! Who holds a resource, master by master, and what that amounts to.

use crate::driver::{KeyFound, Pool};
use crate::master::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What one master has under a resource's key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyState {
    /// Nothing.
    Free,
    /// A token, and the time until the server lets it expire.
    Held {
        /// The value as it stands there.
        token: Vec<u8>,
        /// The time left to it on this master.
        ttl_left: Duration,
    },
    /// Something that is no lock: another type, or a value that never expires.
    NotALock,
    /// No usable answer.
    Failed(Fault),
}

/// One master's part of a [`Status`].
#[derive(Clone, Debug)]
pub struct MasterStatus {
    index: usize,
    address: Arc<str>,
    state: KeyState,
}

impl MasterStatus {
    /// The master's place in the list, from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The master's address, without user or password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it has under the key.
    pub fn state(&self) -> &KeyState {
        &self.state
    }
}

/// What the masters' states amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// A quorum has no lock there, so that one can be acquired.
    Free,
    /// A quorum has this token.
    Held {
        /// The holder's token.
        token: Vec<u8>,
        /// How many masters have it.
        masters: usize,
    },
    /// A quorum answered, but no token has a quorum, nor is a quorum free.
    Split,
    /// No quorum answered.
    Unknown,
}

/// Who holds a resource, as the masters said when they were asked.
#[derive(Clone, Debug)]
pub struct Status {
    masters: Vec<MasterStatus>,
    quorum: usize,
}

impl Status {
    pub(crate) fn of(pool: &Pool, found: Vec<KeyFound>) -> Self {
        let addresses = pool
            .masters
            .iter()
            .map(|master| Arc::clone(&master.address));
        let masters = found
            .into_iter()
            .zip(addresses)
            .enumerate()
            .map(|(index, (found, address))| MasterStatus {
                index,
                address,
                state: match found {
                    KeyFound::Free => KeyState::Free,
                    KeyFound::Value(token, Some(ttl_left)) => KeyState::Held { token, ttl_left },
                    KeyFound::Value(_, None) | KeyFound::OtherType => KeyState::NotALock,
                    KeyFound::Failed(fault) => KeyState::Failed(fault),
                },
            })
            .collect();
        Self {
            masters,
            quorum: pool.terms.quorum(),
        }
    }

    /// Every master's part, in the order of the list.
    pub fn masters(&self) -> &[MasterStatus] {
        &self.masters
    }

    /// How many masters make a quorum.
    pub fn quorum(&self) -> usize {
        self.quorum
    }

    /// How many masters answered.
    pub fn answered(&self) -> usize {
        self.masters
            .iter()
            .filter(|master| !matches!(master.state, KeyState::Failed(_)))
            .count()
    }

    /// What the masters' states amount to.
    pub fn verdict(&self) -> Verdict {
        let mut tokens: BTreeMap<&[u8], usize> = BTreeMap::new();
        let mut free = 0;
        for master in &self.masters {
            match &master.state {
                KeyState::Held { token, .. } => *tokens.entry(token).or_default() += 1,
                KeyState::Free => free += 1,
                KeyState::NotALock | KeyState::Failed(_) => {}
            }
        }
        if let Some((token, count)) = tokens.iter().find(|(_, count)| **count >= self.quorum) {
            return Verdict::Held {
                token: token.to_vec(),
                masters: *count,
            };
        }
        if free >= self.quorum {
            Verdict::Free
        } else if self.answered() >= self.quorum {
            Verdict::Split
        } else {
            Verdict::Unknown
        }
    }
}
