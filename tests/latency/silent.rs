//! One master that is silent or dead costs the others nothing, and is not flooded (case 21).

use crate::{LATE, SOON, alone, ms};
use quorumlock::{Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Stopwatch, eventually};
use std::time::Duration;

const CYCLES: usize = 200;

/// How long each acquisition and each release took.
#[derive(Default)]
struct Times {
    acquired: Vec<Duration>,
    released: Vec<Duration>,
}

impl Times {
    async fn cycle(&mut self, redlock: &Redlock, number: usize) {
        let watch = Stopwatch::start();
        let guard = redlock.lock(format!("a{number}")).acquire().await.unwrap();
        self.acquired.push(watch.elapsed());
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        self.released.push(watch.elapsed());
    }
}

async fn cycles(redlock: &Redlock, count: usize) {
    let mut times = Times::default();
    for number in 0..count {
        times.cycle(redlock, number).await;
    }
}

/// The 99th percentile.
fn p99(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() * 99 / 100 - 1]
}

/// 10 ms, and some times what it takes on this machine at the same time where all are well.
async fn assert_quick(third: &Third) {
    let (mut faulty, mut healthy) = (Times::default(), Times::default());
    for number in 0..CYCLES {
        faulty.cycle(&third.redlock, number).await;
        healthy.cycle(&third.healthy.1, number).await;
    }
    for (what, faulty, healthy) in [
        ("acquisitions", &mut faulty.acquired, &mut healthy.acquired),
        ("releases", &mut faulty.released, &mut healthy.released),
    ] {
        let (p99, usual) = (p99(faulty), p99(healthy));
        assert!(
            p99 < ms(10) + usual * 5,
            "{what}: {p99:?}, where all are well {usual:?}"
        );
    }
}

struct Third {
    relay: Relay,
    fleet: Fleet,
    redlock: Redlock,
    healthy: (Fleet, Redlock),
}

/// Three masters, the third behind a relay that counts what it is sent.
async fn third() -> Third {
    let fleet = Fleet::start(3);
    let relay = Relay::to(fleet[2].address());
    let urls = [fleet[0].url(), fleet[1].url(), relay.url()];
    let redlock = Redlock::connect(urls).await.unwrap();
    cycles(&redlock, 20).await;
    let others = Fleet::start(3);
    let healthy = Redlock::connect(others.urls()).await.unwrap();
    cycles(&healthy, 20).await;
    let healthy = (others, healthy);
    Third {
        relay,
        fleet,
        redlock,
        healthy,
    }
}

#[test]
fn case_21_a_stopped_master_slows_nothing() {
    alone(async {
        let third = third().await;
        third.relay.clear_log();
        third.fleet[2].pause();
        let watch = Stopwatch::start();
        assert_quick(&third).await;
        while watch.elapsed() < ms(1_500) {
            cycles(&third.redlock, 10).await;
        }
        let tries = third.relay.log_of("SET").len();
        while watch.elapsed() < ms(2_500) {
            cycles(&third.redlock, 10).await;
        }
        let more = third.relay.log_of("SET").len() - tries;
        assert_eq!(more, 0, "tried again after a second and a half of silence");
        // Each SET has its undo, and one copy of that on the other connection.
        let all = third.relay.log().len();
        assert!(tries < 8_192 && all <= 3 * tries + 20, "{all} for {tries}");
        assert!(third.relay.connections().open <= 2);

        third.fleet[2].resume();
        let watch = Stopwatch::start();
        loop {
            let guard = third.redlock.lock("back").acquire().await.unwrap();
            let serves = eventually(ms(30), || guard.grants() == 3);
            drop(guard);
            if serves {
                break;
            }
            assert!(
                watch.elapsed() < ms(1_000) + LATE,
                "it does not serve again"
            );
        }
        assert!(eventually(SOON, || third.fleet.total_keys() == 0));
    });
}

#[test]
fn case_21_a_dead_master_slows_nothing() {
    alone(async {
        let third = third().await;
        third.fleet[2].kill();
        third.relay.refuse(true);
        assert_quick(&third).await;
        third.fleet[2].restart();
        third.relay.refuse(false);
        let watch = Stopwatch::start();
        loop {
            let guard = third.redlock.lock("back").acquire().await.unwrap();
            let serves = eventually(ms(30), || guard.grants() == 3);
            drop(guard);
            if serves {
                break;
            }
            assert!(
                watch.elapsed() < ms(1_500) + LATE,
                "it does not serve again"
            );
        }
        assert!(eventually(SOON, || third.fleet.total_keys() == 0));
    });
}
