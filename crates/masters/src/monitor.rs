//! Collects what a real server is sent, by its MONITOR command.
//!
//! It sees commands as the server runs them, those inside scripts included (marked `lua` by the server); it sees
//! nothing of commands that were refused before they ran, such as those without authentication.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::eventually;
use crate::lock;
use crate::resp::Reply;
use crate::wire::{CommandError, Wire};

const MARK: &str = "quorumlock-monitor-mark";
const SYNC: Duration = Duration::from_secs(5);

static MARKS: AtomicU64 = AtomicU64::new(0);

/// Every command of one server from a moment on, in the server's own notation.
#[derive(Debug)]
pub struct Monitor {
    socket: TcpStream,
    /// A second connection, on which marks are sent so that a reader knows how far the lines reach.
    side: Mutex<Wire>,
    lines: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    pub(crate) fn start(mut feed: Wire, side: Wire) -> Result<Self, CommandError> {
        feed.call(&["MONITOR"])?;
        feed.wait_for_ever()?;
        let socket = feed.socket()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || {
                while let Ok(Reply::Simple(line)) = feed.receive() {
                    lock(&kept).push(line);
                }
            })?;
        Ok(Self {
            socket,
            side: Mutex::new(side),
            lines,
            thread: Some(thread),
        })
    }

    /// The lines so far; whatever the server ran before this call is among them, if it still answers.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.catch_up();
        lock(&self.lines)
            .iter()
            .filter(|line| !line.contains(MARK))
            .cloned()
            .collect()
    }

    /// The lines that name this command, in any spelling of its case.
    #[must_use]
    pub fn lines_of(&self, command: &str) -> Vec<String> {
        let quoted = format!("\"{}\"", command.to_ascii_uppercase());
        self.lines()
            .into_iter()
            .filter(|line| line.to_ascii_uppercase().contains(&format!("] {quoted}")))
            .collect()
    }

    /// Forgets the lines so far.
    pub fn clear(&self) {
        self.catch_up();
        lock(&self.lines).clear();
    }

    /// Ends it, and gives the lines.
    #[must_use]
    pub fn stop(self) -> Vec<String> {
        self.lines()
    }

    fn catch_up(&self) {
        let mark = format!("{MARK}-{}", MARKS.fetch_add(1, Ordering::Relaxed));
        if lock(&self.side).call(&["ECHO", &mark]).is_ok() {
            // Where the mark does not come, the server is gone: the lines are all there will be.
            let _came = eventually(SYNC, || {
                lock(&self.lines)
                    .iter()
                    .rev()
                    .any(|line| line.contains(&mark))
            });
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.socket.shutdown(Shutdown::Both));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
