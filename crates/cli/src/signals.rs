//! The signals that this process takes, as one stream.
//!
//! A signal that was ignored when the process started stays ignored (that is how nohup(1) works), where that can be found out.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that end a process unless it says otherwise, and can be sent to ask for something.
const ENDING: [Number; 7] = [
    Number::HUP,
    Number::INT,
    Number::QUIT,
    Number::USR1,
    Number::USR2,
    Number::ALARM,
    Number::TERM,
];
/// Those that are about the terminal and job control; they end nothing.
const TERMINAL: [Number; 3] = [Number::TSTP, Number::CONT, Number::WINCH];

/// A set of signals, waited for together.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(i32, Signal)>,
}

impl Signals {
    /// Everything that `run` passes on to COMMAND.
    pub(crate) fn all() -> io::Result<Self> {
        Self::of(&[&ENDING[..], &TERMINAL[..]].concat())
    }

    /// What ends a verb that starts no command.
    pub(crate) fn ending() -> io::Result<Self> {
        Self::of(&ENDING)
    }

    /// These.
    pub(crate) fn of(numbers: &[Number]) -> io::Result<Self> {
        // A child's end is no signal that anybody meant to be ignored, and without it no child can be waited for.
        let ignored = ignored_at_start() & !(1 << (Number::CHILD.as_raw() - 1));
        let mut streams = Vec::new();
        for raw in numbers
            .iter()
            .map(|number| number.as_raw())
            .filter(|raw| !contains(ignored, *raw))
        {
            streams.push((raw, signal(SignalKind::from_raw(raw))?));
        }
        Ok(Signals { streams })
    }

    /// The next one; several of one kind may come as one.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (raw, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*raw);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that ends a process; the others do what they do without us: a stop stops us.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(crate) async fn next_ending(&mut self) -> i32 {
        loop {
            let raw = self.next().await;
            if ENDING.iter().any(|ending| ending.as_raw() == raw) {
                return raw;
            }
            if raw == Number::TSTP.as_raw() {
                stop_this_process();
            }
        }
    }
}

/// Stops this process as SIGTSTP would have, had it not been caught; returns when it is continued.
pub(crate) fn stop_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Number::STOP);
}

/// The mask of ignored signals, from /proc; empty where there is none.
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn contains(mask: u64, raw: i32) -> bool {
    u32::try_from(raw).is_ok_and(|raw| (1..=64).contains(&raw) && mask >> (raw - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_counts_signals_from_one() {
        assert!(contains(0b1, 1));
        assert!(!contains(0b1, 2));
        assert!(contains(1 << 63, 64));
        assert!(!contains(u64::MAX, 0));
        assert!(!contains(u64::MAX, 65));
    }
}
