//! One master that is silent or dead costs the others nothing, and is not flooded (case 21).

use crate::{SOON, alone, ms};
use quorumlock::{Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Stopwatch, eventually};
use std::time::Duration;

const CYCLES: usize = 200;

/// The times of so many acquisitions and so many releases, each sorted.
async fn cycles(redlock: &Redlock, count: usize) -> (Vec<Duration>, Vec<Duration>) {
    let (mut acquired, mut released) = (Vec::new(), Vec::new());
    for number in 0..count {
        let watch = Stopwatch::start();
        let guard = redlock.lock(format!("a{number}")).acquire().await.unwrap();
        acquired.push(watch.elapsed());
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        released.push(watch.elapsed());
    }
    acquired.sort();
    released.sort();
    (acquired, released)
}

/// The 99th percentile.
fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100 - 1]
}

/// 10 ms, or twice what it takes on this machine now if all masters are well.
fn assert_quick(healthy: &(Vec<Duration>, Vec<Duration>), faulty: &(Vec<Duration>, Vec<Duration>)) {
    for (what, healthy, faulty) in [
        ("acquisitions", &healthy.0, &faulty.0),
        ("releases", &healthy.1, &faulty.1),
    ] {
        let (usual, p99) = (p99(healthy), p99(faulty));
        assert!(
            p99 < ms(10).max(usual * 2),
            "{what}: {p99:?}, when all are well {usual:?}"
        );
    }
}

struct Third {
    relay: Relay,
    fleet: Fleet,
    redlock: Redlock,
    healthy: (Vec<Duration>, Vec<Duration>),
}

/// Three masters, the third behind a relay that counts what it is sent.
async fn third() -> Third {
    let fleet = Fleet::start(3);
    let relay = Relay::to(fleet[2].address());
    let urls = [fleet[0].url(), fleet[1].url(), relay.url()];
    let redlock = Redlock::connect(urls).await.unwrap();
    cycles(&redlock, 20).await;
    let healthy = cycles(&redlock, CYCLES).await;
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
        let watch = Stopwatch::start();
        third.fleet[2].pause();
        let faulty = cycles(&third.redlock, CYCLES).await;
        assert_quick(&third.healthy, &faulty);
        while watch.elapsed() < ms(1_500) {
            cycles(&third.redlock, 10).await;
        }
        let silent = third.relay.log().len();
        assert!(silent < 20_000, "{silent} requests to a silent master");
        third.relay.clear_log();
        while watch.elapsed() < ms(2_500) {
            cycles(&third.redlock, 10).await;
        }
        let log = third.relay.log();
        for r in log.iter().step_by(9) {
            eprintln!("{:?} c{} {}", r.at, r.connection, r.text());
        }
        eprintln!("{:?}", third.relay.connections());
        let more = third.relay.log().len();
        assert!(more < 50, "{more} more requests after a second of silence");
        assert!(third.relay.connections().open <= 2);

        third.fleet[2].resume();
        let watch = Stopwatch::start();
        loop {
            let guard = third.redlock.lock("back").acquire().await.unwrap();
            let serves = eventually(ms(30), || guard.grants() == 3);
            guard.release().await.unwrap();
            if serves {
                break;
            }
            assert!(watch.elapsed() < ms(1_000), "it does not serve again");
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
        let faulty = cycles(&third.redlock, CYCLES).await;
        assert_quick(&third.healthy, &faulty);
        third.fleet[2].restart();
        third.relay.refuse(false);
        let watch = Stopwatch::start();
        loop {
            let guard = third.redlock.lock("back").acquire().await.unwrap();
            let serves = eventually(ms(30), || guard.grants() == 3);
            guard.release().await.unwrap();
            if serves {
                break;
            }
            assert!(watch.elapsed() < ms(1_500), "it does not serve again");
        }
        assert!(eventually(SOON, || third.fleet.total_keys() == 0));
    });
}
