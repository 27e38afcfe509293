//! What 100,000 locks leave behind: nothing, neither on the masters nor in the process.
//!
//! First one resource is acquired and released back to back, where each SET must come behind the
//! delete before it on every master; then distinct resources, where memory, connections, tasks
//! and threads are counted. `--check` turns bounds into exit 1.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "what it measured is its output")]
#![expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]

#[path = "support/report.rs"]
mod report;
#[path = "support/resident.rs"]
mod resident;

use quorumlock::Redlock;
use quorumlock_masters::{Fleet, Stopwatch, eventually};
use report::Report;
use resident::resident_bytes;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Handle;

const MASTERS: usize = 5;
const BACK_TO_BACK: usize = 20_000;
const WARM_UP: usize = 20_000;
const CYCLES: usize = 100_000;
const TASKS: usize = 64;
/// Shorter than a master may be silent before it gets no more locks to vote on (500 ms).
const HICCUP: Duration = Duration::from_millis(400);
const SOON: Duration = Duration::from_secs(5);

async fn back_to_back(report: &mut Report) {
    let fleet = Fleet::start(MASTERS);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let watch = Stopwatch::start();
    let mut refused = 0_u32;
    for _ in 0..BACK_TO_BACK {
        match redlock.lock("one").try_acquire().await {
            Ok(guard) => {
                guard.release().await.unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    let rate = BACK_TO_BACK as f64 / watch.elapsed().as_secs_f64();
    println!("{BACK_TO_BACK} cycles back to back on one resource, {rate:.0} a second");
    report.at_most("refused", f64::from(refused), 0.0);
    report.at_most("masters that keep the key", keys_left(&fleet), 0.0);
}

/// How many keys are left when there has been time to delete them.
fn keys_left(fleet: &Fleet) -> f64 {
    if eventually(SOON, || fleet.total_keys() == 0) {
        return 0.0;
    }
    fleet.total_keys() as f64
}

/// So many cycles on distinct resources, shared out among tasks.
async fn distinct(redlock: &Redlock, name: &str, cycles: usize) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (redlock, name) = (redlock.clone(), name.to_owned());
            tokio::spawn(async move {
                for i in (task..cycles).step_by(TASKS) {
                    let guard = redlock.lock(format!("{name}:{i}")).acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Warms up, with a hiccup of one master: what a queue once needed, the allocator keeps.
async fn warm_up(redlock: &Redlock, fleet: &Fleet) {
    let hiccup = async {
        tokio::time::sleep(HICCUP).await;
        fleet[0].pause();
        tokio::time::sleep(HICCUP).await;
        fleet[0].resume();
    };
    tokio::join!(distinct(redlock, "warm-up", WARM_UP), hiccup);
}

async fn many(report: &mut Report) {
    let fleet = Fleet::start(MASTERS);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    // Extended all the time, so that the connections of the watchdog are there as well.
    let watched = redlock.lock("watched").ttl(Duration::from_secs(2));
    let watched = watched.acquire().await.unwrap();
    warm_up(&redlock, &fleet).await;
    let (resident, watch) = (resident_bytes(), Stopwatch::start());
    distinct(&redlock, "many", CYCLES).await;
    let rate = CYCLES as f64 / watch.elapsed().as_secs_f64();
    let grown = (resident_bytes() - resident) / 1e6;
    println!("{CYCLES} cycles on distinct resources, {TASKS} tasks, {rate:.0} a second");
    report.at_most("resident memory grown, MB", grown, 5.0);
    report.at_most(
        "connections to a master",
        most_connections(&fleet) as f64,
        2.0,
    );
    report.at_least(
        "extensions kept the watched lock",
        f64::from(u8::from(watched.is_held())),
        1.0,
    );
    watched.release().await.unwrap();
    report.at_most("keys left", keys_left(&fleet), 0.0);
    drop((watched, redlock));
    let metrics = Handle::current().metrics();
    let ended = || metrics.num_alive_tasks() + threads() + most_connections(&fleet) == 0;
    if !eventually(SOON, ended) {
        println!("  something goes on after the handle was dropped");
    }
    report.at_most("tasks left", metrics.num_alive_tasks() as f64, 0.0);
    report.at_most("threads left", threads() as f64, 0.0);
    report.at_most("connections left", most_connections(&fleet) as f64, 0.0);
}

/// The most clients that a master has, without the one that asks.
fn most_connections(fleet: &Fleet) -> usize {
    let clients = fleet.iter().map(|master| {
        let reply = master.command(&["CLIENT", "LIST"]).unwrap();
        let list = String::from_utf8(reply.as_bytes().unwrap().to_vec()).unwrap();
        let others = list.lines().filter(|line| !line.contains(" cmd=client"));
        others.count()
    });
    clients.max().unwrap()
}

/// Threads of this process that a handle has started.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .filter_map(|task| name(task.ok()?).ok())
        .filter(|name| name.trim() == "quorumlock")
        .count()
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut report = Report::new();
    runtime.block_on(back_to_back(&mut report));
    runtime.block_on(many(&mut report));
    report.finish()
}
