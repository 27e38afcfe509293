//! The terminal and job control, under a real pseudo-terminal and an interactive shell.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use quorumlock_masters::{Fleet, Stopwatch, eventually};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetpgrp;
use support::{PATIENCE, SOON};

/// An interactive shell on a terminal of its own.
struct Shell {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
}

impl Shell {
    fn start(fleet: &Fleet) -> Self {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new())
            .unwrap()
            .into_string()
            .unwrap();
        let side = || {
            Stdio::from(OwnedFd::from(
                File::options().read(true).write(true).open(&name).unwrap(),
            ))
        };
        // A session of its own, whose controlling terminal this is.
        let mut command = Command::new("setsid");
        command.args([
            "--ctty",
            "env",
            "--default-signal",
            "bash",
            "--norc",
            "--noprofile",
            "--noediting",
            "-i",
        ]);
        command
            .env("PS1", "PROMPT ")
            .env("Q", env!("CARGO_BIN_EXE_quorumlock"));
        command.env("QUORUMLOCK_MASTERS", fleet.urls().join(","));
        let child = command
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let (sender, screen) = channel();
        let mut reader = File::from(terminal.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                drop(sender.send(bytes.get(..length).unwrap_or_default().to_vec()));
            }
        });
        let mut shell = Shell {
            child,
            keyboard: File::from(terminal),
            screen,
            shown: String::new(),
        };
        shell.expect("PROMPT ");
        shell
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown; what was shown up to there is then forgotten.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let watch = Stopwatch::start();
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            match self
                .screen
                .recv_timeout(PATIENCE.saturating_sub(watch.elapsed()))
            {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("'{text}' was not shown; shown: {}", self.shown),
            }
        }
    }

    /// Waits until the leader of the process group in the foreground runs this program: whom Ctrl-C will reach.
    #[track_caller]
    fn expect_foreground(&self, program: &str) {
        let foreground = || {
            let group = tcgetpgrp(&self.keyboard).ok()?;
            std::fs::read_to_string(format!("/proc/{}/comm", group.as_raw_nonzero())).ok()
        };
        let there = eventually(PATIENCE, || {
            foreground().is_some_and(|comm| comm.trim_end() == program)
        });
        assert!(
            there,
            "{program} is not in the foreground but {:?}; shown: {}",
            foreground(),
            self.shown
        );
    }

    /// Types a line, and waits for what it shows, which must not stand in the line itself.
    #[track_caller]
    fn line(&mut self, line: &str, shows: &str) {
        self.type_in(&format!("{line}\n"));
        self.expect(shows);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

#[test]
fn command_reads_the_terminal_and_the_shell_gets_it_back() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.line(
        "$Q run k -- sh -c 'echo re''ady; read a; echo got-$a; exit 4'",
        "ready",
    );
    shell.line("hello", "got-hello");
    shell.expect("PROMPT ");
    shell.line("echo status-$?", "status-4");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn ctrl_c_ends_command() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.type_in("$Q run k -- sleep 100\n");
    shell.expect_foreground("sleep");
    shell.type_in(CTRL_C);
    shell.expect("PROMPT ");
    shell.line("echo status-$?", "status-130");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn case_42_a_job_is_stopped_and_continued() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.line(
        "$Q run k -- sh -c 'echo re''ady; read a; echo got-$a; exit 4'",
        "ready",
    );
    shell.type_in(CTRL_Z);
    shell.expect("Stopped");
    shell.expect("PROMPT ");
    shell.line("echo shell-is-$((1 + 1))", "shell-is-2");
    shell.expect("PROMPT ");
    shell.line("fg", "run k");
    shell.line("hello", "got-hello");
    shell.expect("PROMPT ");
    shell.line("echo status-$?", "status-4");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn a_stopped_pipeline_stops_as_a_whole() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.line(
        "$Q run k -- sh -c 'echo re''ady; exec sleep 100' | cat",
        "ready",
    );
    // The other end of a pipe may be a pager: the terminal stays with the job.
    shell.expect_foreground("quorumlock");
    shell.type_in(CTRL_Z);
    shell.expect("Stopped");
    shell.expect("PROMPT ");
    shell.line("fg", "run k");
    shell.expect_foreground("quorumlock");
    shell.type_in(CTRL_C);
    shell.expect("PROMPT ");
    shell.line("echo status-${PIPESTATUS[0]}", "status-130");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn a_background_job_that_wants_the_terminal_stops_until_it_has_it() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.line(
        "set -b; $Q run k -- sh -c 'read a; echo got-$a' &",
        "Stopped",
    );
    shell.line("fg", "run k");
    shell.line("hello", "got-hello");
    shell.expect("PROMPT ");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn a_job_stopped_for_longer_than_the_ttl_has_lost_the_lock() {
    let fleet = Fleet::start(3);
    let mut shell = Shell::start(&fleet);
    shell.type_in("$Q run k --ttl 1s -- sleep 100\n");
    shell.expect_foreground("sleep");
    shell.type_in(CTRL_Z);
    shell.expect("Stopped");
    shell.expect("PROMPT ");
    fleet.assert_no_key("k", Duration::from_secs(5));
    shell.line("fg", "was lost");
    shell.expect("PROMPT ");
    shell.line("echo status-$?", "status-76");
}
