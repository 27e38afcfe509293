//! What the tests of the command share: the command on a fleet of real masters, and a witness of who still lives.
#![allow(dead_code, reason = "each test file uses another part")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that cannot go on fails the test"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use quorumlock_masters::Fleet;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything takes that works, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How late a busy machine may let a test see what has happened; what overlaps is found by `thefts.rs`, without a clock.
pub(crate) const SEEN_LATE: Duration = Duration::from_millis(200);
/// Within this, nothing may be left on the masters after a run that released: far less than any TTL of these tests.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// The command, without masters, and without any variable that would change what it does.
pub(crate) fn bare() -> Command {
    // A test may be started with signals ignored (`./check &`); what is ignored would not be forwarded.
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
        .arg(env!("CARGO_BIN_EXE_quorumlock"));
    for name in [
        "MASTERS",
        "MASTERS_FILE",
        "PREFIX",
        "MAX_TTL",
        "TIMEOUT",
        "TLS_CA",
        "JSON",
    ] {
        command.env_remove(format!("QUORUMLOCK_{name}"));
    }
    command
}

/// The command on these masters.
pub(crate) fn on(fleet: &Fleet) -> Command {
    on_urls(&fleet.urls())
}

/// The command on these URLs.
pub(crate) fn on_urls(urls: &[String]) -> Command {
    let mut command = bare();
    command.env("QUORUMLOCK_MASTERS", urls.join(","));
    command
}

/// The command with these arguments, to its end.
pub(crate) fn output<A: AsRef<OsStr>>(
    mut command: Command,
    args: impl IntoIterator<Item = A>,
) -> Said {
    Said::from(command.args(args).stdin(Stdio::null()).output().unwrap())
}

/// What a command that ended had said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said {
            status: output.status,
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Said {
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("no exit status: {self:?}"))
    }

    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The last line of standard error as one JSON value.
    pub(crate) fn report(&self) -> Value {
        let last = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }
}

/// A command that runs in the background; killed when the test ends before it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    pub(crate) fn start<A: AsRef<OsStr>>(
        mut command: Command,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running {
            child: Some(command.stdin(Stdio::null()).spawn().unwrap()),
        }
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Said {
        Said::from(self.child.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), Signal::CONT);
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A named pipe that COMMAND and its descendants write to: it ends when the last of them has ended, and not before.
#[derive(Debug)]
pub(crate) struct Witness {
    path: PathBuf,
    lines: Receiver<String>,
}

impl Witness {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let (sender, lines) = channel();
        let read_from = path.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(File::open(read_from).unwrap()).lines() {
                drop(sender.send(line.unwrap()));
            }
        });
        Witness { path, lines }
    }

    /// A shell script whose standard output is the pipe, with its arguments for `run … --`.
    pub(crate) fn script(&self, script: &str) -> Vec<String> {
        let path = self.path.to_str().unwrap().to_owned();
        ["sh", "-c"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("exec >\"$0\"; {script}"), path])
            .collect()
    }

    /// Waits for this line.
    #[track_caller]
    pub(crate) fn expect(&self, expected: &str) {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => assert_eq!(line, expected),
            Err(error) => panic!("'{expected}' was not said: {error}"),
        }
    }

    /// Waits until nobody is left; gives the lines that were said till then.
    #[track_caller]
    pub(crate) fn ended(&self, within: Duration) -> Vec<String> {
        let watch = quorumlock_masters::Stopwatch::start();
        let mut lines = Vec::new();
        loop {
            match self
                .lines
                .recv_timeout(within.saturating_sub(watch.elapsed()))
            {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("somebody still lives after {within:?}; said: {lines:?}")
                }
            }
        }
    }
}

/// Arguments for `run`: what stands before `--`, and COMMAND.
pub(crate) fn run(options: &str, command: &[impl AsRef<str>]) -> Vec<String> {
    let options = ["run"].into_iter().chain(options.split_whitespace());
    options
        .chain(["--"])
        .map(str::to_owned)
        .chain(command.iter().map(|word| word.as_ref().to_owned()))
        .collect()
}

/// Words as arguments.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Takes the lock away: a foreign value on a quorum, with at least the victim's remaining TTL.
pub(crate) fn steal(fleet: &Fleet, key: &str, ttl: Duration) {
    let ms = ttl.as_millis().to_string();
    for server in fleet.iter().take(fleet.len() / 2 + 1) {
        server.command(&["SET", key, "a-thief", "PX", &ms]).unwrap();
    }
}

/// Everything that a reader gives until its end.
pub(crate) fn read_all(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}
