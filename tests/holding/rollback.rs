//! What is not handed over leaves no key, however late it is answered (cases 15, 16, R8–R10).

use crate::support::{LATE, Network, SOON, is_delete, is_set, let_go, ms};
use quorumlock::{ErrorKind, Redlock, RunError};
use quorumlock_masters::{Relay, Rule, Stopwatch, eventually, pause};
use std::time::Duration;

const TIMEOUT: Duration = ms(60);

/// A handle with this per-master timeout; the TTL stays at its 30 s.
async fn connect(network: &Network, timeout: Duration) -> Redlock {
    let builder = Redlock::builder().masters(network.relays.iter().map(Relay::url));
    let redlock = builder.attempt_timeout(timeout).connect().await.unwrap();
    network.settle(&redlock).await;
    redlock
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_the_rollback_outlives_a_caller_that_gave_up() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let servers: Vec<_> = (1..3)
        .map(|index| network[index].monitor().unwrap())
        .collect();
    for relay in &network.relays[1..] {
        relay.requests(Rule::Delay(ms(200)));
    }
    let watch = Stopwatch::start();
    let cancelled = tokio::time::timeout(ms(10), redlock.lock("a").acquire()).await;
    assert!(cancelled.is_err(), "two slow masters are no quorum");
    for monitor in &servers {
        let arrived = eventually(SOON, || !monitor.lines_of("SET").is_empty());
        assert!(arrived, "the late SET never came");
    }
    network.assert_no_key("a", (ms(500) + LATE).saturating_sub(watch.elapsed()));
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_the_rollback_outlives_an_aborted_task() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let monitor = network[2].monitor().unwrap();
    for relay in &network.relays[1..] {
        relay.requests(Rule::Delay(ms(200)));
    }
    let watch = Stopwatch::start();
    let task = tokio::spawn(redlock.lock("a").acquire());
    let sent = network.relays[2].wait_for(SOON, is_set);
    assert!(sent.is_some());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(eventually(SOON, || !monitor.lines_of("SET").is_empty()));
    network.assert_no_key("a", (ms(500) + LATE).saturating_sub(watch.elapsed()));
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}

/// Handed over by two, dropped while the third's SET is still on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_a_set_that_arrives_after_the_release_is_undone() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let monitor = network[2].monitor().unwrap();
    network.relays[2].requests(Rule::Delay(ms(200)));
    let watch = Stopwatch::start();
    let guard = redlock.lock("a").acquire().await.unwrap();
    assert!(watch.elapsed() < ms(150), "the third was waited for");
    drop(guard);
    assert!(eventually(SOON, || !monitor.lines_of("SET").is_empty()));
    network.assert_no_key("a", (ms(500) + LATE).saturating_sub(watch.elapsed()));
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}

/// A grant that comes after the decision counts for the guard that is still held (R10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_grant_counts_for_the_guard() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    network.relays[2].answers(Rule::Delay(ms(250)));
    let guard = redlock.lock("a").acquire().await.unwrap();
    assert_eq!(guard.grants(), 2, "decided by the first two");
    assert!(eventually(SOON, || guard.grants() == 3), "never counted");
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_16_masters_whose_answer_is_held_are_undone() {
    const HOLD: Duration = ms(300);
    let network = Network::start(3);
    let redlock = connect(&network, TIMEOUT).await;
    for relay in &network.relays[1..] {
        relay.answers(Rule::Hold);
    }
    let watch = Stopwatch::start();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(watch.elapsed() <= TIMEOUT + LATE, "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(error.failed(), 2, "{error}");
    pause(HOLD.saturating_sub(watch.elapsed()));
    network.heal();
    network.assert_no_key("a", ms(100) + LATE);
    for relay in &network.relays {
        let sets = relay.log_of("SET");
        assert_eq!(sets.len(), 1, "{sets:?}");
    }
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_16_a_set_that_is_held_past_its_rollback_does_not_survive() {
    let network = Network::start(3);
    let redlock = connect(&network, TIMEOUT).await;
    let monitors: Vec<_> = (1..3)
        .map(|index| network[index].monitor().unwrap())
        .collect();
    for relay in &network.relays[1..] {
        relay.requests(Rule::Hold);
    }
    redlock.lock("a").try_acquire().await.unwrap_err();
    for relay in &network.relays[1..] {
        let undo = relay.wait_for(SOON, is_delete);
        assert!(undo.is_some(), "the rollback waited for an answer");
    }
    network.assert_no_key("a", ms(200));
    pause(ms(200));
    network.heal();
    for monitor in &monitors {
        assert!(eventually(SOON, || !monitor.lines_of("SET").is_empty()));
    }
    network.assert_no_key("a", ms(100) + LATE);
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}

/// The SETs were done, the connections broke, and the ports are closed when it is rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_16_a_rollback_waits_for_the_next_connection() {
    let network = Network::start(3);
    let redlock = connect(&network, SOON).await;
    network.answers(Rule::Hold);
    let task = tokio::spawn(redlock.lock("a").try_acquire());
    assert!(eventually(SOON, || network.holders("a").len() == 3));
    for relay in &network.relays {
        relay.refuse(true);
    }
    network.cut();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let watch = Stopwatch::start();
    while watch.elapsed() < ms(300) {
        assert_eq!(network.holders("a"), [0, 1, 2], "nobody can delete it");
        pause(ms(20));
    }
    network.heal();
    network.assert_no_key("a", SOON);
}

/// Granted while nobody looked: what is left at the hand-over is what counts (R8).
#[tokio::test]
async fn a_grant_that_is_looked_at_too_late_is_no_lock() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let asked = || redlock.lock("a").ttl(ms(10_000)).min_validity(ms(9_700));
    let blocks = || async {
        while network.sent(is_set).len() < 3 {
            tokio::task::yield_now().await;
        }
        // The only thread of this runtime: the answers come, and nobody hears them.
        pause(ms(400));
    };
    network.answers(Rule::Delay(ms(20)));
    let (acquired, ()) = tokio::join!(asked().try_acquire(), blocks());
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooSlow, "{error}");
    tokio::time::sleep(ms(50)).await;
    network.assert_no_key("a", SOON);

    network.clear_logs();
    let lock = asked().wait(Duration::ZERO);
    let (result, ()) = tokio::join!(lock.run(|_| async { panic!("the work began") }), blocks());
    let result: Result<(), RunError<()>> = result;
    let error = result.unwrap_err();
    assert_eq!(
        error.not_acquired().map(quorumlock::Error::kind),
        Some(ErrorKind::TooSlow),
        "{error}"
    );
    tokio::time::sleep(ms(50)).await;
    network.assert_no_key("a", SOON);
}
