//! The terminal: COMMAND gets it while it runs, and we take it back.
//!
//! COMMAND runs in a process group of its own, and a terminal answers only the group in its foreground. It is handed over
//! at the start if we have it, standard input is a terminal, and standard output is no pipe (the other end may be a pager
//! that needs the terminal too); otherwise as soon as COMMAND is stopped for wanting it.

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal, and who should have it.
#[derive(Debug)]
pub(super) struct Terminal {
    file: Option<File>,
    /// It is in COMMAND's hands.
    given: bool,
    /// COMMAND had it before, and gets it again when the job comes back to the foreground.
    wanted: bool,
}

impl Terminal {
    /// Looks for a controlling terminal.
    pub(super) fn find() -> Self {
        Terminal {
            file: File::options().read(true).write(true).open("/dev/tty").ok(),
            given: false,
            wanted: false,
        }
    }

    /// Gives the terminal to COMMAND's group before it starts, if it should have it from the start.
    pub(super) fn give_at_start(&mut self, group: Pid) {
        let piped = fstat(stdout())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        if stdin().is_terminal() && !piped {
            self.give(group);
        }
    }

    /// Gives the terminal to COMMAND's group if it is in our hands; whether it was.
    pub(super) fn give(&mut self, group: Pid) -> bool {
        let given = self.file.as_ref().is_some_and(|file| {
            tcgetpgrp(file).is_ok_and(|foreground| foreground == getpgrp())
                && tcsetpgrp(file, group).is_ok()
        });
        self.given |= given;
        self.wanted |= given;
        given
    }

    /// Gives the terminal back to COMMAND's group after the job was continued, if it had it before.
    pub(super) fn give_again(&mut self, group: Pid) {
        if self.wanted {
            self.give(group);
        } else {
            self.give_at_start(group);
        }
    }

    /// Takes the terminal back, if it was given.
    pub(super) fn take_back(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.given) else {
            return;
        };
        self.given = false;
        // A background group that sets the foreground is stopped by SIGTTOU, unless it blocks it.
        let mut stop = SigSet::empty();
        stop.add(NixSignal::SIGTTOU);
        if stop.thread_block().is_ok() {
            let _ = tcsetpgrp(file, getpgrp());
            let _ = stop.thread_unblock();
        }
    }

    /// Whether a job-control shell could continue us once we stopped: there is a terminal, and our process group has a
    /// parent in another group of the same session.
    pub(super) fn can_stop(&self) -> bool {
        self.file.is_some() && !group_is_orphaned()
    }
}

/// As POSIX defines it, for the ancestors of this process.
fn group_is_orphaned() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        if getsid(Some(pid)) != session {
            return true;
        }
        if getpgid(Some(pid)).is_ok_and(|its| its != group) {
            return false;
        }
        ancestor = parent_of(pid);
    }
    true
}

/// The parent of a process, where /proc tells it.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    Pid::from_raw(after_name.split_whitespace().nth(1)?.parse().ok()?)
}
