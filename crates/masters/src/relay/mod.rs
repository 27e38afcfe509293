//! A TCP proxy in front of one master, whose network can be spoilt at run time.
//!
//! It runs on a thread and a runtime of its own, so it works for blocking and async tests alike, also while the runtime
//! of the test is stuck. It delays, holds, loses and cuts bytes; it never changes or reorders them, and knows nothing
//! of what the commands mean.
//!
//! Invariants
//! 1. Bytes of one direction of one connection leave in the order in which they came, whatever the rules were.
//! 2. A direction that has lost bytes delivers nothing any more on that connection, as TCP would not.
//! 3. A closed client does not take back what it sent: requests under way are still delivered.

mod accept;
mod pipe;
mod rules;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;

pub use self::rules::{Close, Connections, Rule};
use self::rules::{Rules, Shared};
use crate::clock::{eventually, poll};
use crate::log::Request;
use crate::ports::free_listener;
use crate::{fail, lock};

/// Bounds the waits for the relay's own thread, which has nothing else to do.
const OBEY: Duration = Duration::from_secs(10);

/// A proxy on a port of its own; faults are switched while it runs.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    rules: watch::Sender<Rules>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay that passes everything on to this address.
    ///
    /// # Panics
    /// There is no free port or no thread; [`Relay::try_to`] gives the error instead.
    #[must_use]
    #[track_caller]
    pub fn to(target: SocketAddr) -> Self {
        Self::try_to(target).unwrap_or_else(|error| fail(&format!("starting a relay: {error}")))
    }

    /// As [`Relay::to`], with an error instead of a panic.
    ///
    /// # Errors
    /// There is no free port, or no thread or runtime could be made.
    pub fn try_to(target: SocketAddr) -> io::Result<Self> {
        let (listener, port) = free_listener().ok_or_else(|| io::Error::other("no free port"))?;
        listener.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let shared = Arc::new(Shared::new(target));
        let (rules, watched) = watch::channel(Rules::default());
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("relay-{port}"))
            .spawn(move || runtime.block_on(accept::serve(listener, served, watched)))?;
        Ok(Self {
            port,
            shared,
            rules,
            thread: Some(thread),
        })
    }

    /// Rules what the client sends from now on.
    pub fn requests(&self, rule: Rule) {
        self.rules.send_modify(|rules| rules.requests = rule);
    }

    /// Rules what the master answers from now on.
    pub fn answers(&self, rule: Rule) {
        self.rules.send_modify(|rules| rules.answers = rule);
    }

    /// Rules both directions.
    pub fn both(&self, rule: Rule) {
        self.rules
            .send_modify(|rules| (rules.requests, rules.answers) = (rule, rule));
    }

    /// Passes both directions on again and accepts connections; bytes that were held are released in order.
    pub fn heal(&self) {
        self.both(Rule::Pass);
        self.refuse(false);
    }

    /// Closes every present connection on both sides, with all that is delayed or held there.
    pub fn cut(&self, how: Close) {
        let through = lock(&self.shared.connections).total;
        self.rules
            .send_modify(|rules| (rules.cut_through, rules.cut_how) = (through, how));
        self.await_thread("closing connections", || {
            lock(&self.shared.connections)
                .live
                .range(..=through)
                .next()
                .is_none()
        });
    }

    /// Lets this many further bytes of answers through, then closes the connection that carried them (once).
    ///
    /// Zero closes it in place of the next answer: the effect is done and the answer is lost.
    pub fn cut_mid_answer(&self, bytes: usize) {
        *lock(&self.shared.answer_budget) = Some(bytes);
    }

    /// Whether new connections are refused, as by a closed port; present ones stay.
    pub fn refuse(&self, refuse: bool) {
        self.rules.send_modify(|rules| rules.refuse = refuse);
        self.await_thread("opening or closing the port", || {
            *lock(&self.shared.listening) != refuse
        });
    }

    /// Forgets the requests so far; their numbers go on.
    pub fn clear_log(&self) {
        lock(&self.shared.log).requests.clear();
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Every request so far, in the order of arrival, whether it was passed on or not.
    #[must_use]
    pub fn log(&self) -> Vec<Request> {
        lock(&self.shared.log).requests.clone()
    }

    /// The requests of one command, its name in any case.
    #[must_use]
    pub fn log_of(&self, command: &str) -> Vec<Request> {
        self.log()
            .into_iter()
            .filter(|request| request.name().eq_ignore_ascii_case(command))
            .collect()
    }

    /// Waits for a request like this, and gives the first; also one that came before.
    #[must_use]
    pub fn wait_for(&self, within: Duration, like: impl Fn(&Request) -> bool) -> Option<Request> {
        poll(within, || {
            lock(&self.shared.log)
                .requests
                .iter()
                .find(|request| like(request))
                .cloned()
        })
    }

    /// The time on the clock of the log.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        lock(&self.shared.log).elapsed()
    }

    /// How many connections clients have open, and have made in all.
    #[must_use]
    pub fn connections(&self) -> Connections {
        let connections = lock(&self.shared.connections);
        Connections {
            open: connections.open,
            total: connections.total,
        }
    }

    fn await_thread(&self, what: &str, done: impl Fn() -> bool) {
        if !eventually(OBEY, done) && !std::thread::panicking() {
            fail(&format!(
                "the relay on port {} is stuck in {what}",
                self.port
            ));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.rules.send_modify(|rules| rules.end = true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
