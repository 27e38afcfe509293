//! The end of a handle: `close` drains and says what is left, the last drop waits a little (R22).

use crate::support::{LATE, Network, SOON, drop_after, let_go, ms};
use quorumlock::ErrorKind;
use quorumlock_masters::{Rule, Stopwatch, pause};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_drains_what_is_under_way() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    for number in 0..20 {
        let guard = redlock.lock(format!("a{number}")).acquire().await.unwrap();
        if number == 0 {
            network.requests(Rule::Delay(ms(5)));
            network.answers(Rule::Delay(ms(30)));
        }
        drop(guard);
    }
    let cancelled = drop_after(1, redlock.lock("b").acquire()).await;
    assert!(cancelled.is_none(), "it was answered at once");
    let watch = Stopwatch::start();
    let left = redlock.close(ms(2_000)).await;
    let took = watch.elapsed();
    assert!(left.is_empty() && left.deletes() == 0, "{left:?}");
    assert!(took >= ms(15), "answers take 30 ms; closed after {took:?}");
    assert!(took <= ms(500), "drained only after {took:?}");
    assert_eq!(network.total_keys(), 0, "closed with keys left");

    for error in [
        redlock.lock("a").acquire().await.unwrap_err(),
        redlock.clone().lock("a").try_acquire().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.is_closed());
    }
    drop(redlock);
    network.heal();
    pause(ms(200));
    assert_eq!(network.total_keys(), 0);
}

/// A guard that is held when the handle is closed stays held, extended, and can be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_outlives_the_closing() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(ms(1_500)).acquire().await.unwrap();
    assert!(redlock.close(ms(500)).await.is_empty());
    drop(redlock);
    tokio::time::sleep(ms(2_500)).await;
    assert!(guard.is_held());
    assert_eq!(network.holders("a"), [0, 1, 2]);
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

/// Who waits when the handle is closed is told so, and not that it gave up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_a_wait() {
    let network = Network::start(3);
    let (redlock, other) = (network.connect().await, network.connect().await);
    let holder = other.lock("a").acquire().await.unwrap();
    let waiter = tokio::spawn(redlock.lock("a").acquire());
    tokio::time::sleep(ms(100)).await;
    assert!(redlock.close(ms(500)).await.is_empty());
    let told = tokio::time::timeout(ms(1_000), waiter).await.unwrap();
    let error = told.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let_go(&holder).await;
    network.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_says_what_is_left_and_when_it_was_told_to() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    network.await_everywhere("a");
    network[2].pause();
    drop(guard);
    let watch = Stopwatch::start();
    let left = redlock.close(ms(150)).await;
    let took = watch.elapsed();
    assert!(took >= ms(140) && took <= ms(150) + LATE, "after {took:?}");
    assert!(!left.is_empty(), "a stopped master confirmed its delete");
    assert!((1..=2).contains(&left.deletes()), "{left:?}");
    for server in &network[..2] {
        assert!(!server.exists("a"));
    }
    network[2].resume();
    network.assert_no_key("a", SOON);
    assert!(redlock.close(SOON).await.is_empty());
}

/// Deletes of a cancelled release count as under way, whoever keeps its guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_counts_the_deletes_of_a_cancelled_release() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    network.await_everywhere("a");
    network.requests(Rule::Hold);
    let cancelled = tokio::time::timeout(ms(20), guard.release()).await;
    assert!(cancelled.is_err(), "it was answered: {cancelled:?}");
    let left = redlock.close(ms(100)).await;
    assert_eq!(network.holders("a"), [0, 1, 2], "nothing had arrived");
    assert!(left.deletes() >= 3, "closed with nothing left: {left:?}");
    network.heal();
    assert!(redlock.close(SOON).await.is_empty());
    network.assert_no_key("a", Duration::ZERO);
    drop(guard);
}

/// The last drop waits at most 50 ms, also for a master that hangs; the others are done by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_drop_waits_a_little() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    network.await_everywhere("a");
    network[2].pause();
    drop(redlock);
    let watch = Stopwatch::start();
    tokio::task::block_in_place(|| drop(guard));
    let took = watch.elapsed();
    assert!(took <= ms(50) + LATE, "the last drop took {took:?}");
    for server in &network[..2] {
        assert!(!server.exists("a"), "dropped before it was deleted");
    }
    network[2].resume();
    // What was written to the socket before the end is read when the master goes on.
    network.assert_no_key("a", SOON);
}

/// Nothing is under way: the last drop does not wait at all, and leaves no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_drop_is_quick_when_there_is_nothing_to_wait_for() {
    let network = Network::start(3);
    let mut drops = Vec::new();
    for _ in 0..5 {
        let redlock = network.connect().await;
        let guard = redlock.lock("a").acquire().await.unwrap();
        let_go(&guard).await;
        drop(guard);
        network.assert_no_key("a", SOON);
        let watch = Stopwatch::start();
        tokio::task::block_in_place(|| drop(redlock));
        drops.push(watch.elapsed());
    }
    let quickest = drops.iter().min().unwrap();
    assert!(*quickest <= ms(40), "with nothing left they took {drops:?}");
    let closed = || {
        let open = network.relays.iter().map(|relay| relay.connections().open);
        open.sum::<usize>() == 0
    };
    assert!(quorumlock_masters::eventually(SOON, closed), "left open");
    assert_eq!(network.total_keys(), 0);
}
