//! The side of `quorumlock run`: starts the warden, tells it of new deadlines, hears what becomes of COMMAND.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};

use super::family::{self, Family};
use super::wire::{self, Message, Wire};
use super::{End, Program, WARDEN};
use crate::clock::Instant;

/// What the warden reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// COMMAND's process group exists and waits for [`Handle::go`].
    Ready(Pid),
    /// COMMAND was stopped by this signal.
    Stopped(i32),
    /// COMMAND goes on.
    Continued,
    /// The warden ends everything by itself: nobody had told it a later deadline in time.
    TimeHasCome,
    /// COMMAND ended; what it left is being ended.
    Ended(End),
    /// COMMAND could not be executed, for this errno.
    NotExecuted(i32),
    /// Nothing of COMMAND is left, and the warden has gone.
    Over,
    /// The warden has gone before its time: see [`Handle::bury`].
    Vanished,
}

/// A running warden.
#[derive(Debug)]
pub(crate) struct Handle {
    warden: Child,
    wire: Wire,
    command: Option<Pid>,
    /// Taken so that it is not ignored: the ends of ignored children are not told.
    _children: tokio::signal::unix::Signal,
    /// When the warden was born: everything of COMMAND's is younger.
    born: u64,
}

impl Handle {
    /// Starts a warden with a first deadline. COMMAND waits for [`Handle::go`].
    pub(crate) fn start<'a>(
        program: &Program,
        grace: Duration,
        deadline: Instant,
        environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
    ) -> io::Result<Self> {
        family::adopt_orphans();
        let children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = family::this_binary();
        command
            .arg(WARDEN)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(grace.as_nanos().to_string());
        command
            .arg(&program.path)
            .args(&program.argv)
            .envs(environment);
        command.process_group(0).stdin(OwnedFd::from(theirs));
        let warden = command.spawn()?;
        // The command holds a copy of the warden's end, and would keep the socket open.
        drop(command);
        wire::say_with_file(&ours, Message::Deadline(deadline), io::stdin())?;
        let born = family::birth(Pid::from_child(&warden));
        Ok(Handle {
            warden,
            wire: Wire::new(ours)?,
            command: None,
            _children: children,
            born,
        })
    }

    /// Executes COMMAND.
    pub(crate) fn go(&mut self) {
        self.wire.say(Message::Go);
    }

    /// The lock's validity now ends then.
    pub(crate) fn extend(&mut self, deadline: Instant) {
        self.wire.say(Message::Deadline(deadline));
    }

    /// Passes a signal to COMMAND's process group.
    pub(crate) fn forward(&mut self, signal: i32) {
        self.wire.say(Message::Forward(signal));
    }

    /// Ends everything: TERM now, KILL after the grace or at the deadline.
    pub(crate) fn end(&mut self) {
        self.wire.say(Message::End);
    }

    /// The next report.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(crate) async fn next(&mut self) -> Report {
        loop {
            let report = match self.wire.next().await {
                Some(Message::Ready(pid)) => {
                    self.command = Pid::from_raw(pid);
                    self.command.map(Report::Ready)
                }
                Some(Message::Stopped(signal)) => Some(Report::Stopped(signal)),
                Some(Message::Continued) => Some(Report::Continued),
                Some(Message::Ending(0)) => Some(Report::TimeHasCome),
                Some(Message::Exited(status)) => Some(Report::Ended(End::Status(
                    u8::try_from(status).unwrap_or(u8::MAX),
                ))),
                Some(Message::Killed(signal)) => Some(Report::Ended(End::Signal(signal))),
                Some(Message::NotExecuted(errno)) => Some(Report::NotExecuted(errno)),
                // What was told or has ended is known here already; the rest is never said by a warden.
                Some(_) => None,
                None => Some(self.gone()),
            };
            if let Some(report) = report {
                return report;
            }
        }
    }

    /// The socket has ended: has the warden done its work?
    fn gone(&mut self) -> Report {
        match self.warden.wait() {
            Ok(status) if status.success() => Report::Over,
            Ok(_) | Err(_) => Report::Vanished,
        }
    }

    /// Kills a warden that does not do its work, so that it vanishes.
    pub(crate) fn kill(&mut self) {
        drop(self.warden.kill());
    }

    /// Does the work of a warden that vanished: kills everything, waits until nobody is left, says how COMMAND ended.
    pub(crate) async fn bury(&mut self) -> Option<End> {
        let mut family = Family {
            group: self.command,
            ancestor: getpid(),
            born_since: self.born,
        };
        let (mut end, mut pause) = (None, Duration::from_millis(10));
        loop {
            family.signal(Signal::KILL);
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if Some(pid) == self.command {
                    let returned = status
                        .exit_status()
                        .map(|status| End::Status(u8::try_from(status).unwrap_or(u8::MAX)));
                    end = status.terminating_signal().map(End::Signal).or(returned);
                    family.group = family.group.filter(|_| cfg!(not(target_os = "linux")));
                }
            }
            if !family.lives() {
                return end;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::from_secs(1));
        }
    }
}
