//! The time in which COMMAND runs: extensions go to the warden, signals to COMMAND, and loss ends both.
//!
//! Invariants
//! 1. COMMAND is let go only while the lock is held and no signal has asked us to end.
//! 2. The warden is told each later end of the validity, computed from a clock reading before the guard was asked.
//! 3. Loss is final here: what comes after it changes neither the order to end nor the status.
//! 4. A warden that does not end COMMAND by the end of the validity is killed, and its work is done here.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use quorumlock::{Guard, Held};
use rustix::process::{Pid, Signal, kill_current_process_group};

use super::MARGIN;
use super::terminal::Terminal;
use crate::clock::{self, Instant};
use crate::signals::{Signals, stop_this_process};
use crate::warden::{End, Handle, Program, Report};

/// If the warden has not ended everything this long before the validity ends, its work is done here.
const KILL_OURSELVES: Duration = Duration::from_millis(25);

/// How the time ended.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Whether COMMAND was let go.
    pub(super) started: bool,
    pub(super) end: Option<End>,
    /// The errno with which COMMAND could not be executed.
    pub(super) refused: Option<i32>,
    /// Why the lock was lost.
    pub(super) loss: Option<String>,
    /// A signal that came before COMMAND was let go.
    pub(super) interrupted: Option<i32>,
    pub(super) warden_died: bool,
}

struct Supervisor {
    held: Held,
    warden: Handle,
    grace: Duration,
    /// The end of the validity, as the warden knows it.
    deadline: Instant,
    terminal: Terminal,
    group: Option<Pid>,
    /// We were asked to stop, and do so once COMMAND has stopped.
    stopping: bool,
    /// COMMAND is stopped.
    stopped: bool,
    warden_killed: bool,
    ending: Ending,
}

/// Runs COMMAND until nothing of it is left.
pub(super) async fn supervise<'a>(
    guard: &Guard,
    program: &Program,
    grace: Duration,
    environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
    signals: &mut Signals,
) -> io::Result<Ending> {
    let held = guard.held();
    let deadline = deadline_of(&held);
    let mut supervisor = Supervisor {
        warden: Handle::start(program, grace, deadline, environment)?,
        held,
        grace,
        deadline,
        terminal: Terminal::find(),
        group: None,
        stopping: false,
        stopped: false,
        warden_killed: false,
        ending: Ending::default(),
    };
    while supervisor.step(signals).await {}
    supervisor.terminal.take_back();
    Ok(supervisor.ending)
}

/// The end of the validity. The clock is read first, so that a pause in between makes it earlier, not later.
fn deadline_of(held: &Held) -> Instant {
    Instant::now().after(held.remaining())
}

impl Supervisor {
    /// One thing that happens; whether anything can still happen.
    async fn step(&mut self, signals: &mut Signals) -> bool {
        let tell_by = self.deadline.before(self.grace).before(MARGIN);
        let (holding, deadline, held) =
            (self.ending.loss.is_none(), self.deadline, self.held.clone());
        tokio::select! {
            biased;
            report = self.warden.next() => return self.take_report(report).await,
            number = signals.next() => self.take_signal(number),
            reason = held.lost(), if holding => self.lose(reason.to_string()),
            () = held.changed(), if holding => self.pass_on_deadline(),
            () = clock::until(tell_by), if holding => {
                self.pass_on_deadline();
                if self.deadline.before(self.grace).before(MARGIN).has_come() {
                    self.lose("it could not be extended in time".to_owned());
                }
            }
            () = clock::until(deadline.before(KILL_OURSELVES)), if !holding && !self.warden_killed => {
                self.warden_killed = true;
                self.warden.kill();
            }
        }
        true
    }

    fn pass_on_deadline(&mut self) {
        let deadline = deadline_of(&self.held);
        if deadline > self.deadline {
            self.deadline = deadline;
            self.warden.extend(deadline);
        }
    }

    fn lose(&mut self, reason: String) {
        self.ending.loss = Some(reason);
        self.warden.end();
    }

    async fn take_report(&mut self, report: Report) -> bool {
        match report {
            Report::Ready(group) => self.let_go(group),
            Report::Stopped(signal) => self.command_stopped(signal),
            Report::Continued => self.stopped = false,
            Report::TimeHasCome => {
                self.ending
                    .loss
                    .get_or_insert_with(|| "it was not extended in time".to_owned());
            }
            Report::Ended(end) => {
                self.ending.end = Some(end);
                self.terminal.take_back();
            }
            Report::NotExecuted(errno) => self.ending.refused = Some(errno),
            Report::Over => return false,
            Report::Vanished => {
                self.ending.warden_died = true;
                self.ending.end = self.ending.end.or(self.warden.bury().await);
                return false;
            }
        }
        true
    }

    fn let_go(&mut self, group: Pid) {
        self.group = Some(group);
        if self.ending.loss.is_none() && !self.held.is_held() {
            self.ending.loss = Some("its validity had ended".to_owned());
        }
        if self.ending.interrupted.is_some() || self.ending.loss.is_some() {
            self.warden.end();
            return;
        }
        self.terminal.give_at_start(group);
        self.ending.started = true;
        self.warden.go();
    }

    fn take_signal(&mut self, number: i32) {
        let is = |signal: Signal| signal.as_raw() == number;
        if is(Signal::CONT) {
            self.resume();
        } else if is(Signal::TSTP) {
            self.stopping = true;
            if self.stopped || self.group.is_none() {
                stop_this_process();
            } else {
                self.warden.forward(number);
            }
        } else if self.ending.started {
            self.warden.forward(number);
        } else if !is(Signal::WINCH) {
            self.ending.interrupted = Some(number);
        }
    }

    fn resume(&mut self) {
        self.stopping = false;
        // Stopped for a while, we may have missed the end of the validity; the warden has not.
        self.pass_on_deadline();
        if let Some(group) = self.group.filter(|_| self.ending.started) {
            self.terminal.give_again(group);
            self.warden.forward(Signal::CONT.as_raw());
        }
    }

    /// COMMAND was stopped: for want of the terminal, which it gets, or by the user, and then the whole job stops.
    fn command_stopped(&mut self, signal: i32) {
        let is = |wanted: Signal| wanted.as_raw() == signal;
        let for_the_terminal = is(Signal::TTIN) || is(Signal::TTOU);
        if !for_the_terminal && !is(Signal::TSTP) {
            return;
        }
        if for_the_terminal && self.group.is_some_and(|group| self.terminal.give(group)) {
            self.warden.forward(Signal::CONT.as_raw());
            return;
        }
        self.stopped = true;
        if self.stopping {
            self.terminal.take_back();
            stop_this_process();
        } else if self.terminal.can_stop() {
            self.terminal.take_back();
            // The rest of our job (`quorumlock run … | tee log`) stops too; we get the signal ourselves, and stop then.
            let _ = kill_current_process_group(Signal::TSTP);
        } else if is(Signal::TSTP) {
            // Nobody could continue us: as for any orphaned job, Ctrl-Z does nothing.
            self.warden.forward(Signal::CONT.as_raw());
        }
    }
}
