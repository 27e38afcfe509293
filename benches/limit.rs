//! Our lock against the raw limit: redis-rs with no lock logic, in the same run.
//!
//! The limit sends the very commands that ours sends (`SET … NX PX` to all masters, the
//! compare-and-delete of the server at hand to all masters), goes on at the quorum, drains the
//! rest in the background, and leaves no key. Runs are interleaved, medians compared; both
//! sides use the same runtime and the same socket settings. `--check` turns bounds into exit 1.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]
#![expect(clippy::panic, reason = "a limit that is refused measures nothing")]
#![expect(clippy::print_stdout, reason = "what it measured is its output")]
#![expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]

#[path = "support/numbers.rs"]
mod numbers;
#[path = "support/report.rs"]
mod report;

use numbers::{median, percentile};
use quorumlock::Redlock;
use quorumlock_masters::{Flavour, Fleet, Server, Stopwatch};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisResult, Value};
use report::Report;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const MASTERS: usize = 5;
const QUORUM: usize = 3;
const TTL_MS: u64 = 30_000;
const RUNS: usize = 7;
const SINGLE: usize = 3_000;
const TASKS: usize = 64;
const CYCLES: usize = 400;

/// The compare-and-delete as the library sends it.
#[derive(Clone, Copy)]
enum Delete {
    Script,
    DelIfEq,
}

const SCRIPT: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

type Answer = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

#[derive(Clone)]
struct Limit {
    masters: Arc<Vec<MultiplexedConnection>>,
    delete: Delete,
}

impl Limit {
    async fn connect(urls: &[String], delete: Delete) -> Self {
        let mut masters = Vec::new();
        for url in urls {
            let info = url.as_str().into_connection_info().unwrap();
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let client = Client::open(info.set_tcp_settings(tcp)).unwrap();
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_pipeline_buffer_size(65_536);
            masters.push(
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .unwrap(),
            );
        }
        Self {
            masters: Arc::new(masters),
            delete,
        }
    }

    /// Sends to all, waits for a quorum, and drains the rest in the background.
    ///
    /// Every future is polled before the first answer is looked at, so that a delete cannot
    /// overtake its SET in redis-rs's queue.
    async fn quorum_of(&self, cmd: Cmd) {
        let cmd = Arc::new(cmd);
        let mut open: Vec<Option<Answer>> = self
            .masters
            .iter()
            .cloned()
            .map(|mut master| {
                let cmd = Arc::clone(&cmd);
                let answer = async move { master.send_packed_command(&cmd).await };
                Some(Box::pin(tokio::task::unconstrained(answer)) as Answer)
            })
            .collect();
        let mut granted = 0;
        poll_fn(|cx| {
            for slot in &mut open {
                if let Some(answer) = slot
                    && let Poll::Ready(value) = answer.as_mut().poll(cx)
                {
                    *slot = None;
                    match value {
                        Ok(Value::Okay | Value::Int(1)) => granted += 1,
                        other => panic!("the limit was refused: {other:?}"),
                    }
                }
            }
            if granted >= QUORUM {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        tokio::spawn(async move {
            for answer in open.into_iter().flatten() {
                answer.await.unwrap();
            }
        });
    }

    async fn acquire(&self, key: &str, token: &str) {
        let mut cmd = Cmd::new();
        cmd.arg("SET")
            .arg(key)
            .arg(token)
            .arg("NX")
            .arg("PX")
            .arg(TTL_MS);
        self.quorum_of(cmd).await;
    }

    async fn release(&self, key: &str, token: &str) {
        let mut cmd = Cmd::new();
        match self.delete {
            Delete::Script => cmd.arg("EVAL").arg(SCRIPT).arg(1).arg(key).arg(token),
            Delete::DelIfEq => cmd.arg("DELIFEQ").arg(key).arg(token),
        };
        self.quorum_of(cmd).await;
    }
}

fn token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Microseconds of processor time of this process, user and system.
fn cpu_micros() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * 10_000
}

#[derive(Default, Clone)]
struct Measured {
    acquire: Vec<f64>,
    release: Vec<f64>,
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

async fn single<A, R, G>(n: usize, acquire: A, release: R) -> (Vec<Duration>, Vec<Duration>)
where
    A: AsyncFn(String) -> G,
    R: AsyncFn(String, G),
{
    let (mut acquired, mut released) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for i in 0..n {
        let key = format!("single:{i}");
        let watch = Stopwatch::start();
        let guard = acquire(key.clone()).await;
        acquired.push(watch.elapsed());
        let watch = Stopwatch::start();
        release(key, guard).await;
        released.push(watch.elapsed());
    }
    (acquired, released)
}

async fn ours(redlock: &Redlock, into: &mut Measured) {
    let (mut acquired, mut released) = single(
        SINGLE,
        async |key| redlock.lock(key).acquire().await.unwrap(),
        async |_, guard: quorumlock::Guard| {
            guard.release().await.unwrap();
        },
    )
    .await;
    into.acquire.push(percentile(&mut acquired, 50));
    into.release.push(percentile(&mut released, 50));
    let (cpu, watch) = (cpu_micros(), Stopwatch::start());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                for i in 0..CYCLES {
                    let guard = redlock
                        .lock(format!("many:{task}:{i}"))
                        .acquire()
                        .await
                        .unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    note(into, cpu, &watch);
}

async fn limit(limit: &Limit, into: &mut Measured) {
    let (mut acquired, mut released) = single(
        SINGLE,
        async |key: String| {
            let token = token();
            limit.acquire(&key, &token).await;
            token
        },
        async |key: String, token: String| limit.release(&key, &token).await,
    )
    .await;
    into.acquire.push(percentile(&mut acquired, 50));
    into.release.push(percentile(&mut released, 50));
    let (cpu, watch) = (cpu_micros(), Stopwatch::start());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let limit = limit.clone();
            tokio::spawn(async move {
                for i in 0..CYCLES {
                    let (key, token) = (format!("many:{task}:{i}"), token());
                    limit.acquire(&key, &token).await;
                    limit.release(&key, &token).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    note(into, cpu, &watch);
}

fn note(into: &mut Measured, cpu: u64, watch: &Stopwatch) {
    let cycles = (TASKS * CYCLES) as f64;
    into.rate.push(cycles / watch.elapsed().as_secs_f64());
    into.cpu.push((cpu_micros() - cpu) as f64 / cycles);
}

async fn ping(limit: &Limit) -> f64 {
    let mut samples = Vec::new();
    let mut master = limit.masters[0].clone();
    for _ in 0..SINGLE {
        let watch = Stopwatch::start();
        master
            .send_packed_command(&redis::cmd("PING"))
            .await
            .unwrap();
        samples.push(watch.elapsed());
    }
    percentile(&mut samples, 50)
}

async fn measure(name: &str, urls: &[String], delete: Delete, report: &mut Report) {
    let raw = Limit::connect(urls, delete).await;
    let redlock = Redlock::connect(urls).await.unwrap();
    let (mut a, mut b, mut pings) = (Measured::default(), Measured::default(), Vec::new());
    for run in 0..RUNS {
        pings.push(ping(&raw).await);
        if run % 2 == 0 {
            limit(&raw, &mut a).await;
            ours(&redlock, &mut b).await;
        } else {
            ours(&redlock, &mut b).await;
            limit(&raw, &mut a).await;
        }
    }
    println!("{name}: PING p50 {:.0} us", median(&pings));
    for (who, measured) in [("limit", &a), ("ours", &b)] {
        println!(
            "  {who:5} acquire p50 {:.0} us, release p50 {:.0} us, {:.0} cycles/s, {:.1} us CPU a cycle",
            median(&measured.acquire),
            median(&measured.release),
            median(&measured.rate),
            median(&measured.cpu)
        );
    }
    let ratio = |one: &[f64], other: &[f64]| median(one) / median(other);
    println!(
        "  release p50, to the limit {:.2}",
        ratio(&b.release, &a.release)
    );
    report.at_most(
        "acquire p50, to the limit",
        ratio(&b.acquire, &a.acquire),
        1.15,
    );
    report.at_least(
        "cycles/s of 64 tasks, to the limit",
        ratio(&b.rate, &a.rate),
        0.9,
    );
    report.at_most("CPU a cycle, to the limit", ratio(&b.cpu, &a.cpu), 1.25);
}

fn main() -> ExitCode {
    let flavours = [
        ("redis", Flavour::Redis, Delete::Script),
        ("valkey 9", Flavour::Valkey9, Delete::DelIfEq),
    ];
    let mut report = Report::new();
    for (name, flavour, delete) in flavours {
        if flavour.available().is_none() {
            println!("{name}: cannot be had here, not measured");
            continue;
        }
        let fleet = Fleet::with(MASTERS, |_| Server::builder().flavour(flavour.clone())).unwrap();
        let urls = fleet.urls();
        for (threads, mut builder) in [
            ("one thread", tokio::runtime::Builder::new_current_thread()),
            ("multi thread", tokio::runtime::Builder::new_multi_thread()),
        ] {
            let runtime = builder.enable_all().build().unwrap();
            let name = format!("{name}, {threads}");
            runtime.block_on(measure(&name, &urls, delete, &mut report));
        }
    }
    report.finish()
}
