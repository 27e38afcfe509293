//! What a relay is told to do, and what it has seen.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use crate::lock;
use crate::log::Journal;

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// They go on at once.
    #[default]
    Pass,
    /// They go on this much later; the delays of successive bytes overlap, their order stays.
    Delay(Duration),
    /// They are kept, in order, until another rule comes.
    Hold,
    /// They are swallowed; the connection then never delivers anything again in this direction.
    Drop,
}

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Close {
    /// In order, by FIN.
    #[default]
    Finish,
    /// By RST; the other side may lose what it has not read yet.
    Reset,
}

/// How many connections there are and have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Those that the client has not closed and that were not cut.
    pub open: usize,
    /// All that were ever accepted.
    pub total: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    pub(super) requests: Rule,
    pub(super) answers: Rule,
    pub(super) refuse: bool,
    /// Connections up to this number are to close.
    pub(super) cut_through: u64,
    pub(super) cut_how: Close,
    pub(super) end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Requests,
    Answers,
}

impl Rules {
    pub(super) fn of(&self, way: Way) -> Rule {
        match way {
            Way::Requests => self.requests,
            Way::Answers => self.answers,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) total: u64,
    pub(super) open: usize,
    /// Those whose sockets exist, on either side; a client that left may have requests under way.
    pub(super) live: BTreeSet<u64>,
}

/// What the thread of the relay and its handle share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: SocketAddr,
    pub(super) log: Mutex<Journal>,
    pub(super) connections: Mutex<Known>,
    pub(super) answer_budget: Mutex<Option<usize>>,
    pub(super) listening: Mutex<bool>,
}

impl Shared {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            log: Mutex::new(Journal::start()),
            connections: Mutex::default(),
            answer_budget: Mutex::default(),
            listening: Mutex::new(true),
        }
    }

    pub(super) fn opened(&self) -> u64 {
        let mut known = lock(&self.connections);
        known.total += 1;
        known.open += 1;
        let id = known.total;
        known.live.insert(id);
        id
    }
}
