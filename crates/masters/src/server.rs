//! One real server of the test's own, to look into and to break.
//!
//! It knows nothing of quorums. All methods take `&self`, so that a server can be broken while others use it.
//! Its folder, its log and its process go when it is dropped; the log is printed first if the test is failing.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::clock::poll;
use crate::monitor::Monitor;
use crate::process::Process;
use crate::resp::Reply;
use crate::start::{Recipe, ServerBuilder, StartError, tail};
use crate::wire::CommandError;
use crate::{fail, lock};

/// How long a command of the harness waits for its answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A running server process on loopback, gone when dropped.
#[derive(Debug)]
pub struct Server {
    recipe: Recipe,
    process: Mutex<Process>,
    folder: TempDir,
}

impl Server {
    /// Starts a default server: no persistence, a free port, no password.
    ///
    /// # Panics
    /// It does not start; [`ServerBuilder::start`] gives the error instead.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder()
            .start()
            .unwrap_or_else(|error| fail(&error.to_string()))
    }

    /// A server with other settings.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub(crate) fn new(recipe: Recipe, process: Process, folder: TempDir) -> Self {
        Self {
            recipe,
            process: Mutex::new(process),
            folder,
        }
    }

    /// The port, the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.recipe.port
    }

    /// The address on loopback.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// `redis://127.0.0.1:PORT`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self
            .recipe
            .password
            .as_ref()
            .map(|password| format!(":{password}@"))
            .unwrap_or_default();
        format!("redis://{password}{}", self.address())
    }

    /// `rediss://localhost:PORT` of the TLS port, if it was asked for.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        self.recipe
            .tls_port
            .map(|port| format!("rediss://localhost:{port}"))
    }

    /// The Unix socket, if it was asked for.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.recipe.socket.as_deref()
    }

    /// The folder with its log and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process number of the server itself.
    #[must_use]
    pub fn pid(&self) -> u32 {
        lock(&self.process).id()
    }

    /// Whether the process lives; a paused one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.process).is_running()
    }

    /// All it has logged, over restarts too.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.recipe.log).unwrap_or_default()).into_owned()
    }

    /// Stops the process (SIGSTOP): connections stay, nothing is answered. Returns once it has stopped.
    ///
    /// # Panics
    /// It is not running.
    #[track_caller]
    pub fn pause(&self) {
        if let Err(error) = lock(&self.process).pause() {
            fail(&format!("pausing {}: {error}", self.address()));
        }
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Panics
    /// It is not running.
    #[track_caller]
    pub fn resume(&self) {
        if let Err(error) = lock(&self.process).signal(Signal::CONT) {
            fail(&format!("resuming {}: {error}", self.address()));
        }
    }

    /// Kills the process (SIGKILL) and waits for its end; harmless when it has ended.
    pub fn kill(&self) {
        lock(&self.process).kill();
    }

    /// Asks the process to end (SIGTERM) and waits; after 5 s it is killed.
    pub fn shutdown(&self) {
        let mut process = lock(&self.process);
        drop(process.signal(Signal::CONT));
        process.terminate(ANSWER);
    }

    /// Kills it if it runs, and starts it again: same port, same folder, empty unless persistent.
    ///
    /// # Panics
    /// It does not come up again; [`Server::try_restart`] gives the error instead.
    #[track_caller]
    pub fn restart(&self) {
        self.try_restart()
            .unwrap_or_else(|error| fail(&error.to_string()));
    }

    /// As [`Server::restart`], with an error instead of a panic.
    ///
    /// # Errors
    /// As [`ServerBuilder::start`]; a taken port is tried again for 5 s.
    pub fn try_restart(&self) -> Result<(), StartError> {
        let mut process = lock(&self.process);
        process.kill();
        let launched = poll(ANSWER, || match self.recipe.launch() {
            Err(StartError::PortTaken(_)) => None,
            done => Some(done),
        });
        *process = launched.unwrap_or(Err(StartError::PortTaken(self.port())))?;
        Ok(())
    }

    /// Runs one command on a connection of its own, with at most 5 s for the answer.
    ///
    /// The arguments are text or bytes: `&["GET", "k"]`, `&[b"GET".as_slice(), key]`.
    ///
    /// # Errors
    /// * the server is down, paused or slow;
    /// * it answered with an error line.
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, CommandError> {
        self.recipe.wire(ANSWER)?.call(args)
    }

    /// The value of a key.
    ///
    /// # Panics
    /// The server does not answer, or the key holds no string.
    #[must_use]
    #[track_caller]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.expect_answer(&[b"GET", key.as_ref()])
            .as_bytes()
            .map(<[u8]>::to_vec)
    }

    /// Whether the key exists.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    #[track_caller]
    pub fn exists(&self, key: impl AsRef<[u8]>) -> bool {
        self.expect_answer(&[b"EXISTS", key.as_ref()]) == Reply::Int(1)
    }

    /// The time the key has left; none for a missing key and for one that never expires.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    #[track_caller]
    pub fn pttl(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        let left = self.expect_answer(&[b"PTTL", key.as_ref()]).as_int();
        left.and_then(|millis| u64::try_from(millis).ok())
            .map(Duration::from_millis)
    }

    /// Every key, sorted.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    #[track_caller]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let Reply::Array(found) = self.expect_answer(&[b"KEYS", b"*"]) else {
            return Vec::new();
        };
        let mut keys: Vec<_> = found
            .iter()
            .filter_map(Reply::as_bytes)
            .map(<[u8]>::to_vec)
            .collect();
        keys.sort();
        keys
    }

    /// Watches every command the server is sent from now on.
    ///
    /// # Errors
    /// The server does not answer, or forbids MONITOR.
    pub fn monitor(&self) -> Result<Monitor, CommandError> {
        Monitor::start(self.recipe.wire(ANSWER)?, self.recipe.wire(ANSWER)?)
    }

    #[track_caller]
    fn expect_answer(&self, args: &[&[u8]]) -> Reply {
        self.command(args).unwrap_or_else(|error| {
            fail(&format!(
                "{} at {}: {error}",
                args[0].escape_ascii(),
                self.address()
            ))
        })
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "a failing test shows what the server said"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- log of the server at {} ---\n{}",
                self.address(),
                tail(&self.log())
            );
        }
        lock(&self.process).kill();
    }
}
