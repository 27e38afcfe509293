//! What masters are sent, read from their own MONITOR and from the logs of relays in front of them.
//!
//! `commands.rs`: an uncontended acquisition is one `SET key token NX PX ttl` and a release one
//! command. `ended.rs` and `withdrawn.rs`: nothing that could create or lengthen a key is sent for
//! an attempt or a hold that has ended. `refused.rs`: what a minority granted is undone.
#![cfg(feature = "client")]
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod commands;
mod ended;
mod refused;
mod withdrawn;

use quorumlock_masters::{Monitor, Request, Stopwatch};
use std::time::Duration;

/// How long something that is under way may take on a busy machine.
const SOON: Duration = Duration::from_secs(5);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What a command of ours does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Set,
    Extend,
    Delete,
}

/// Reads a command as one of ours; none if it is another.
fn deed(args: &[String]) -> Option<Deed> {
    let script = args.get(1).map_or("", String::as_str);
    match args.first()?.to_ascii_uppercase().as_str() {
        "SET" => Some(Deed::Set),
        "DELIFEQ" | "DELEX" => Some(Deed::Delete),
        "EVAL" if script.contains("PEXPIRE") => Some(Deed::Extend),
        "EVAL" if script.contains("DEL") => Some(Deed::Delete),
        _ => None,
    }
}

/// The token that a command of ours carries.
fn token(args: &[String]) -> &str {
    let place = match args[0].to_ascii_uppercase().as_str() {
        "EVAL" | "DELEX" => args.len() - usize::from(args[1].contains("PEXPIRE")) - 1,
        _ => 2,
    };
    &args[place]
}

fn words_of(request: &Request) -> Vec<String> {
    request
        .args
        .iter()
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect()
}

/// What a connection says about itself, and asks, before it is used.
const INTRODUCTIONS: [&str; 5] = ["HELLO", "AUTH", "CLIENT", "SELECT", "INFO"];

/// A command that a client sent, and the connection it came on.
#[derive(Clone, Debug)]
struct Sent {
    from: String,
    words: Vec<String>,
}

/// What clients sent, without introductions and what scripts ran, from the lines of MONITOR.
fn from_clients(monitor: &Monitor) -> Vec<Sent> {
    let sent = monitor.lines().into_iter().filter_map(|line| {
        let (head, _) = line.split_once("] ")?;
        let (_, from) = head.rsplit_once(' ')?;
        Some(Sent {
            from: from.to_owned(),
            words: words(&line),
        })
    });
    let introduces = |words: &[String]| {
        INTRODUCTIONS.contains(&words[0].as_str()) || words[1] == "quorumlock:probe"
    };
    sent.filter(|sent| sent.from != "lua" && !introduces(&sent.words))
        .collect()
}

/// The quoted words of a line of MONITOR.
fn words(line: &str) -> Vec<String> {
    let (_, rest) = line.split_once("] ").unwrap_or_default();
    let quoted = rest
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    quoted.map_or_else(Vec::new, |text| {
        text.split("\" \"").map(str::to_owned).collect()
    })
}

/// Waits, without stopping the runtime, until the condition holds.
async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let watch = Stopwatch::start();
    while !condition() {
        if watch.elapsed() > SOON {
            return false;
        }
        tokio::time::sleep(ms(2)).await;
    }
    true
}
