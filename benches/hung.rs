//! What a master that hangs, or is gone, costs those who lock: next to nothing.
//!
//! One of three is stopped (SIGSTOP) or killed while locks are acquired and released one after
//! another; one of five is stopped under 64 tasks, also for so long that its connections are
//! given up. Healthy and hit phases of one run alternate, and are compared with each other.
//! `--check` turns bounds into exit 1.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "what it measured is its output")]
#![expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]

#[path = "support/numbers.rs"]
mod numbers;
#[path = "support/report.rs"]
mod report;
#[path = "support/resident.rs"]
mod resident;

use numbers::{median, percentile};
use quorumlock::Redlock;
use quorumlock_masters::{Fleet, Server, Stopwatch, eventually};
use report::Report;
use resident::resident_bytes;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Phases of each kind, healthy and hit in turn.
const ROUNDS: usize = 5;
/// Locks acquired one after another in one phase; all phases together make 2,000.
const SINGLE: usize = 400;
/// The first so many of a phase are those whose p99 is bounded.
const FIRST: usize = 200;
const TASKS: usize = 64;
const PHASE: Duration = Duration::from_millis(1_500);
/// Longer than a silent connection is kept (10 s), so that new ones are tried as well.
const LONG: Duration = Duration::from_secs(14);
/// What two connections may have outstanding of SETs, and as much again of what undoes them.
const OUTSTANDING: f64 = 4.0 * 8_192.0;
const SOON: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Stopped,
    Dead,
}

impl Trouble {
    fn strike(self, master: &Server) {
        match self {
            Self::Stopped => master.pause(),
            Self::Dead => master.kill(),
        }
    }

    fn mend(self, master: &Server) {
        match self {
            Self::Stopped => master.resume(),
            Self::Dead => master.restart(),
        }
    }
}

/// How long acquisitions and releases took.
#[derive(Default)]
struct Times {
    acquire: Vec<Duration>,
    release: Vec<Duration>,
}

impl Times {
    fn p50(&mut self) -> [f64; 2] {
        [
            percentile(&mut self.acquire, 50),
            percentile(&mut self.release, 50),
        ]
    }
}

async fn cycle(redlock: &Redlock, key: &str) {
    let guard = redlock.lock(key).acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn single(redlock: &Redlock, name: &str, into: &mut Times) {
    for i in 0..SINGLE {
        let watch = Stopwatch::start();
        let guard = redlock.lock(format!("{name}:{i}")).acquire().await.unwrap();
        into.acquire.push(watch.elapsed());
        let watch = Stopwatch::start();
        guard.release().await.unwrap();
        into.release.push(watch.elapsed());
    }
}

/// How long it takes until this master votes again; a second at most is allowed.
async fn serves_again(redlock: &Redlock, master: &Server) -> Duration {
    let watch = Stopwatch::start();
    for i in 0.. {
        let key = format!("serves:{i}");
        let guard = redlock.lock(&key).acquire().await.unwrap();
        let there = eventually(Duration::from_millis(20), || master.exists(&key));
        guard.release().await.unwrap();
        if there || watch.elapsed() > SOON {
            break;
        }
    }
    watch.elapsed()
}

async fn one_of_three(trouble: Trouble, report: &mut Report) {
    let fleet = Fleet::start(3);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let (mut healthy, mut hit) = (Times::default(), Times::default());
    let (mut acquire_p99, mut release_p99, mut again) = (vec![], vec![], vec![]);
    for _ in 0..SINGLE {
        cycle(&redlock, "warm-up").await;
    }
    for round in 0..ROUNDS {
        single(&redlock, &format!("healthy:{round}"), &mut healthy).await;
        trouble.strike(&fleet[2]);
        let from = hit.acquire.len();
        single(&redlock, &format!("hit:{round}"), &mut hit).await;
        let first = from..from + FIRST;
        acquire_p99.push(percentile(&mut hit.acquire[first.clone()].to_vec(), 99));
        release_p99.push(percentile(&mut hit.release[first].to_vec(), 99));
        trouble.mend(&fleet[2]);
        again.push(serves_again(&redlock, &fleet[2]).await.as_secs_f64());
    }
    let quiet = eventually(SOON, || fleet.total_keys() == 0);
    let (good, bad) = (healthy.p50(), hit.p50());
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    println!(
        "one of three {trouble:?}: p50 in us, acquire and release, healthy {good:.0?}, hit {bad:.0?}"
    );
    report.at_most(
        "acquire p99 of the first 200, worst phase, ms",
        worst(&acquire_p99) / 1e3,
        10.0,
    );
    report.at_most(
        "release p99 of the first 200, worst phase, ms",
        worst(&release_p99) / 1e3,
        10.0,
    );
    report.at_most(
        "acquire p50 of 2,000, to the healthy one",
        bad[0] / good[0],
        1.5,
    );
    report.at_most(
        "release p50 of 2,000, to the healthy one",
        bad[1] / good[1],
        1.5,
    );
    report.at_most("serves again after, s, worst phase", worst(&again), 1.0);
    report.at_most(
        "keys left",
        if quiet {
            0.0
        } else {
            fleet.total_keys() as f64
        },
        0.0,
    );
}

/// What 64 tasks did in a phase.
struct Load {
    per_second: f64,
    /// The most connections to the watched master that were seen.
    connections: usize,
}

/// Runs 64 tasks for so long; looks at the connections to a master meanwhile.
async fn load(redlock: &Redlock, name: &str, span: Duration, watched: &Server) -> Load {
    let over = Arc::new(AtomicBool::new(false));
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (redlock, over, name) = (redlock.clone(), Arc::clone(&over), name.to_owned());
            tokio::spawn(async move {
                let mut cycles = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    cycle(&redlock, &format!("{name}:{task}:{cycles}")).await;
                    cycles += 1;
                }
                cycles
            })
        })
        .collect();
    let mut connections = 0;
    while watch.elapsed() < span {
        connections = connections.max(connections_to(watched.port()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    over.store(true, Ordering::Relaxed);
    let mut cycles = 0;
    for task in tasks {
        cycles += task.await.unwrap();
    }
    Load {
        per_second: f64::from(cycles) / watch.elapsed().as_secs_f64(),
        connections,
    }
}

/// Sockets of this machine that are connected, or connecting, to a port of it.
fn connections_to(port: u16) -> usize {
    let remote = format!(":{port:04X}");
    std::fs::read_to_string("/proc/self/net/tcp")
        .unwrap()
        .lines()
        .filter(|line| {
            let mut fields = line.split_whitespace().skip(2);
            fields.next().is_some_and(|to| to.ends_with(&remote))
                && matches!(fields.next(), Some("01" | "02"))
        })
        .count()
}

/// How many commands of locks this master has run.
fn commands_run(master: &Server) -> f64 {
    let reply = master.command(&["INFO", "commandstats"]).unwrap();
    let stats = String::from_utf8(reply.as_bytes().unwrap().to_vec()).unwrap();
    stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_set:") || line.starts_with("cmdstat_eval:"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next())
        .map(|calls| calls.parse::<f64>().unwrap())
        .sum()
}

/// What came of stopping one of five for a while under load.
struct Hang {
    load: Load,
    /// Commands the stopped master had to run when it went on.
    backlog: f64,
    serves_again: f64,
    quiet: bool,
}

async fn hang(redlock: &Redlock, fleet: &Fleet, name: &str, span: Duration) -> Hang {
    let victim = &fleet[4];
    let before = commands_run(victim);
    victim.pause();
    let load = load(redlock, name, span, victim).await;
    victim.resume();
    let serves_again = serves_again(redlock, victim).await.as_secs_f64();
    let quiet = eventually(SOON, || fleet.total_keys() == 0);
    Hang {
        load,
        backlog: commands_run(victim) - before,
        serves_again,
        quiet,
    }
}

async fn one_of_five(report: &mut Report) {
    let fleet = Fleet::start(5);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    load(&redlock, "warm-up", PHASE, &fleet[4]).await;
    let (mut healthy, mut hit) = (vec![], vec![]);
    for round in 0..ROUNDS {
        let name = format!("healthy:{round}");
        healthy.push(load(&redlock, &name, PHASE, &fleet[4]).await.per_second);
        hit.push(hang(&redlock, &fleet, &format!("hit:{round}"), PHASE).await);
    }
    let resident = resident_bytes();
    let long = hang(&redlock, &fleet, "long", LONG).await;
    let grown = (resident_bytes() - resident) / 1e6;
    let healthy = median(&healthy);
    let rates: Vec<f64> = hit.iter().map(|hang| hang.load.per_second).collect();
    println!(
        "one of five stopped, {TASKS} tasks: cycles/s healthy {healthy:.0}, hit {:.0}, for {LONG:?} {:.0}",
        median(&rates),
        long.load.per_second
    );
    report.at_least(
        "cycles/s, to the healthy ones",
        median(&rates) / healthy,
        0.8,
    );
    report.at_least(
        "cycles/s of the long phase, to the healthy ones",
        long.load.per_second / healthy,
        0.8,
    );
    report.at_most("resident memory grown by the long phase, MB", grown, 32.0);
    let all: Vec<Hang> = hit.into_iter().chain([long]).collect();
    let worst = |of: fn(&Hang) -> f64| all.iter().map(of).fold(0.0, f64::max);
    report.at_most(
        "connections to the stopped master",
        worst(|hang| hang.load.connections as f64),
        2.0,
    );
    report.at_most(
        "commands it had outstanding",
        worst(|hang| hang.backlog),
        OUTSTANDING,
    );
    report.at_most(
        "serves again after, s",
        worst(|hang| hang.serves_again),
        1.0,
    );
    report.at_most(
        "phases that left a key",
        worst(|hang| f64::from(u8::from(!hang.quiet))),
        0.0,
    );
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut report = Report::new();
    for trouble in [Trouble::Stopped, Trouble::Dead] {
        runtime.block_on(one_of_three(trouble, &mut report));
    }
    runtime.block_on(one_of_five(&mut report));
    report.finish()
}
