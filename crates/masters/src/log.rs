//! Requests as they were seen on their way to a master, and the journal that numbers them.

use std::time::Duration;

use crate::clock::Stopwatch;

/// One request, as the relay or the scripted master received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Grows by one with every request, over all connections.
    pub seq: u64,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// When its last byte arrived, since the relay or the master started.
    pub at: Duration,
    /// The command name and its arguments.
    pub args: Vec<Vec<u8>>,
}

impl Request {
    /// The command's name in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        self.args
            .first()
            .map(|name| String::from_utf8_lossy(name).to_ascii_uppercase())
            .unwrap_or_default()
    }

    /// Whether any argument contains these bytes.
    #[must_use]
    pub fn mentions(&self, bytes: impl AsRef<[u8]>) -> bool {
        let wanted = bytes.as_ref();
        self.args
            .iter()
            .any(|arg| arg.windows(wanted.len().max(1)).any(|part| part == wanted))
    }

    /// The arguments as readable text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        self.args
            .iter()
            .map(|arg| arg.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Numbers and keeps requests.
#[derive(Debug)]
pub(crate) struct Journal {
    watch: Stopwatch,
    next: u64,
    pub(crate) requests: Vec<Request>,
}

impl Journal {
    pub(crate) fn start() -> Self {
        Self {
            watch: Stopwatch::start(),
            next: 0,
            requests: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, connection: u64, args: Vec<Vec<u8>>) {
        let (seq, at) = (self.next, self.elapsed());
        self.next += 1;
        self.requests.push(Request {
            seq,
            connection,
            at,
            args,
        });
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.watch.elapsed()
    }
}
