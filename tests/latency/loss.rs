//! When a loss is told: before the validity ends, and soon after the process was stopped (R15).

use crate::{LATE, SOON, alone, ms};
use quorumlock::{Loss, Redlock};
use quorumlock_masters::{Fleet, Stopwatch, eventually, pause};
use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The signal is aimed before the end of the validity: most of many holders hear it by then.
#[test]
fn lost_is_told_before_the_validity_ends() {
    alone(async {
        let fleet = Fleet::start(3);
        let redlock = Redlock::connect(fleet.urls()).await.unwrap();
        let holders: Vec<_> = (0..20)
            .map(|number| {
                let lock = redlock
                    .lock(format!("a{number}"))
                    .ttl(ms(300 + 20 * number));
                tokio::spawn(async move {
                    let guard = lock.without_watchdog().acquire().await.unwrap();
                    // Read after the watch was started: the validity ends no earlier than this.
                    let watch = Stopwatch::start();
                    let left = guard.remaining();
                    let loss = guard.lost().await;
                    let took = watch.elapsed();
                    assert_eq!(loss, Loss::Expired);
                    assert!(!guard.is_held());
                    (took, left)
                })
            })
            .collect();
        let mut in_time = 0;
        for holder in holders {
            let (took, left) = holder.await.unwrap();
            assert!(
                took <= left + LATE,
                "told {:?} late",
                took.saturating_sub(left)
            );
            assert!(
                took + ms(20) >= left,
                "told {:?} early",
                left.saturating_sub(took)
            );
            in_time += usize::from(took <= left);
        }
        // A busy machine is late for some; a signal without a lead would be late for all.
        assert!(in_time >= 3, "only {in_time} of 20 were told in time");
        for number in 0..20 {
            fleet.assert_no_key(format!("a{number}"), SOON);
        }
    });
}

const ME: &str = "loss::a_stopped_process_hears_of_its_loss_soon_after_it_goes_on";
/// Where the masters are, for the process that is to be stopped: this test, started by itself.
const MASTERS: &str = "QUORUMLOCK_TEST_STOPPED_WITH";

#[test]
fn a_stopped_process_hears_of_its_loss_soon_after_it_goes_on() {
    match env::var(MASTERS) {
        Ok(masters) => holds_until_lost(&masters),
        Err(_) => alone(async { stops_and_continues() }),
    }
}

fn stops_and_continues() {
    let fleet = Fleet::start(3);
    let mut child = Stopped::start(&fleet);
    assert_eq!(child.line(), "held");
    let everywhere = || fleet.holders("a").len() == 3;
    assert!(eventually(SOON, everywhere));
    pause(ms(1_000));
    assert!(everywhere(), "its watchdog does not extend");
    child.signal("STOP");
    fleet.assert_no_key("a", ms(2_000));
    let other = fleet[0].command(&["SET", "a", "other", "PX", "30000"]);
    other.unwrap();
    pause(ms(300));
    child.signal("CONT");
    let watch = Stopwatch::start();
    let mut said = vec![child.line(), child.line()];
    let took = watch.elapsed();
    said.sort();
    assert_eq!(said, ["lost: Expired", "went on: is_held false"]);
    assert!(took < ms(250) + LATE, "told {took:?} after it went on");
    assert_eq!(child.line(), "dropped");
    assert_eq!(fleet[0].get("a").unwrap(), b"other");
    assert_eq!(fleet.holders("a"), [0]);
}

/// What the stopped process does: it holds a lock, and says what it hears.
fn holds_until_lost(masters: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redlock = Redlock::connect(masters.split(',')).await.unwrap();
        let guard = redlock.lock("a").ttl(ms(900)).acquire().await.unwrap();
        say("held");
        let held = guard.held();
        let notices = std::thread::spawn(move || {
            let mut last = Stopwatch::start();
            while last.elapsed() < ms(500) {
                last = Stopwatch::start();
                pause(ms(1));
            }
            say(&format!("went on: is_held {}", held.is_held()));
        });
        let loss = guard.lost().await;
        say(&format!("lost: {loss:?}"));
        notices.join().unwrap();
        drop(guard);
        drop(redlock);
        say("dropped");
    });
}

fn say(line: &str) {
    let mut out = io::stdout();
    writeln!(out, "\n> {line}").unwrap();
    out.flush().unwrap();
}

/// A second process of this test; killed when it is dropped.
struct Stopped {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stopped {
    fn start(fleet: &Fleet) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([ME, "--exact", "--nocapture", "--test-threads=1"])
            .env(MASTERS, fleet.urls().join(","))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next thing it says.
    fn line(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap();
            if let Some(said) = line.unwrap().strip_prefix("> ") {
                return said.to_owned();
            }
        }
    }

    /// Sends a signal, and waits until the process has stopped or goes on.
    fn signal(&self, name: &str) {
        let id = self.child.id();
        let kill = format!("kill -{name} {id}");
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
            stat.rsplit(')').next().unwrap().trim().starts_with('T')
        };
        assert!(eventually(Duration::from_secs(5), || {
            is_stopped() == (name == "STOP")
        }));
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
