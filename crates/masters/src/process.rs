//! One child process that cannot outlive its parent.
//!
//! Beside each child stands a watcher, a shell that waits for the end of a pipe whose other end this process holds.
//! When this process ends, however it ends, the pipe closes and the watcher kills the child and removes its folder. (A parent-death signal
//! would need code between fork and exec, which is unsafe.) Child and watcher are in process groups of their own, so
//! that an interrupt from the terminal reaches neither.
//!
//! Invariant: a signal goes only to a child that has not been waited for, so it cannot meet a process that was given
//! the same number later; the watcher is ended before the child is waited for.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::clock::eventually;

const WATCH: &str = r#"read line; kill -9 "$1"; rm -rf "$2""#;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watcher: Child,
    ended: bool,
}

impl Process {
    /// Starts it; the watcher also removes the folder, which nobody else is left to do.
    pub(crate) fn spawn(command: &mut Command, folder: &Path) -> io::Result<Self> {
        let mut child = command.process_group(0).stdin(Stdio::null()).spawn()?;
        let watcher = Command::new("sh")
            .args(["-c", WATCH, "quorumlock-watcher", &child.id().to_string()])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match watcher {
            Ok(watcher) => Ok(Self {
                child,
                watcher,
                ended: false,
            }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let exited = waitid(
            WaitId::Pid(self.pid()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
        );
        if matches!(exited, Ok(None)) {
            return true;
        }
        self.reap();
        false
    }

    /// Sends SIGSTOP, and returns once the process has stopped.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), stopped)?;
        Ok(())
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if !self.is_running() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the server is not running",
            ));
        }
        Ok(kill_process(self.pid(), signal)?)
    }

    /// Kills at once and waits for the end; harmless when it has ended.
    pub(crate) fn kill(&mut self) {
        if self.is_running() {
            // An error can only mean that it ended in between; the wait below is right then, too.
            let _ended_meanwhile = kill_process(self.pid(), Signal::KILL);
            self.reap();
        }
    }

    /// Asks it to end, and kills it when it has not done so in time.
    pub(crate) fn terminate(&mut self, within: Duration) {
        drop(self.signal(Signal::TERM));
        if !eventually(within, || !self.is_running()) {
            self.kill();
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn reap(&mut self) {
        drop(self.watcher.kill());
        drop(self.watcher.wait());
        drop(self.child.wait());
        self.ended = true;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
