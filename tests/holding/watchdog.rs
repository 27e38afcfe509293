//! The watchdog keeps a lock alive: past errors, past blocked workers, and no longer than asked.

use crate::support::{Dropped, LATE, Network, SOON, is_extension, is_set, let_go, ms};
use quorumlock::{ErrorKind, Loss, Redlock};
use quorumlock_masters::{Fleet, Server, Stopwatch, eventually, pause};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Real servers, two of them busy with somebody's script while an extension falls due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_servers_that_are_busy_do_not_end_the_watchdog() {
    const TTL: Duration = ms(2_400);
    let patience = ["--busy-reply-threshold", "20"];
    let fleet = Fleet::with(3, |_| Server::builder().args(patience)).unwrap();
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    tokio::time::sleep(ms(600)).await;
    let busy = || {
        std::thread::scope(|scope| {
            for server in &fleet[..2] {
                scope.spawn(|| {
                    let endless = ["EVAL", "while true do end", "0"];
                    server.command(&endless).unwrap_err()
                });
            }
            for server in &fleet[..2] {
                let is_busy = || matches!(server.command(&["PING"]), Err(error) if error.to_string().contains("BUSY"));
                assert!(eventually(SOON, is_busy), "it is not busy");
            }
            pause(ms(500));
            for server in &fleet[..2] {
                server.command(&["SCRIPT", "KILL"]).unwrap();
            }
        });
    };
    tokio::task::block_in_place(busy);
    let early = tokio::time::timeout(TTL * 2, guard.lost()).await;
    assert!(early.is_err(), "lost: {early:?}");
    assert!(guard.is_held());
    assert_eq!(fleet.holders("a"), [0, 1, 2]);
    let_go(&guard).await;
    fleet.assert_no_key("a", SOON);
}

/// Every worker, and the thread that drives the runtime, is stuck for several TTLs (R17).
#[test]
fn the_watchdog_goes_on_while_all_workers_are_blocked() {
    const TTL: Duration = ms(1_500);
    let network = Network::start(3);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.block_on(async {
        let redlock = network.connect().await;
        redlock.lock("a").ttl(TTL).acquire().await.unwrap()
    });
    let told = Dropped::default();
    let (held, tells) = (guard.held(), told.on_drop());
    runtime.spawn(async move {
        held.lost().await;
        drop(tells);
    });
    let both = Arc::new(Barrier::new(3));
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let both = Arc::clone(&both);
            runtime.spawn(async move {
                both.wait();
                pause(TTL * 3);
            })
        })
        .collect();
    both.wait();
    let watch = Stopwatch::start();
    network.clear_logs();
    while watch.elapsed() < TTL * 2 {
        for server in network.iter() {
            assert_eq!(server.get("a").unwrap(), guard.token().as_bytes());
        }
        assert!(guard.is_held());
        pause(ms(20));
    }
    let rounds = network.relays[0].log().into_iter().filter(is_extension);
    assert!(rounds.count() >= 4, "it did not extend at a third");
    runtime.block_on(async {
        for task in stuck {
            task.await.unwrap();
        }
        assert!(guard.is_held() && !told.is_set());
        let_go(&guard).await;
    });
    network.assert_no_key("a", SOON);
}

/// The same where the only thread is the one that blocks.
#[tokio::test]
async fn the_watchdog_goes_on_while_a_current_thread_runtime_is_blocked() {
    const TTL: Duration = ms(1_500);
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    network.await_everywhere("a");
    let watch = Stopwatch::start();
    while watch.elapsed() < TTL * 2 {
        assert_eq!(network.holders("a"), [0, 1, 2], "at {:?}", watch.elapsed());
        assert!(guard.is_held());
        pause(ms(20));
    }
    assert!(guard.loss().is_none());
    drop(guard);
    network.assert_no_key("a", SOON);
}

/// After the longest hold nothing is extended, and the guard is lost in time, with that reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longest_hold_ends_the_extensions_and_then_the_lock() {
    const TTL: Duration = ms(3_000);
    const LONGEST: Duration = ms(2_500);
    let network = Network::start(3);
    let redlock = network.connect().await;
    let watch = Stopwatch::start();
    let lock = redlock.lock("a").ttl(TTL).max_hold(LONGEST);
    let guard = lock.acquire().await.unwrap();
    network.clear_logs();
    let began = network.relays[0].elapsed();
    let loss = tokio::time::timeout(TTL * 3, guard.lost()).await.unwrap();
    let held = watch.elapsed();
    assert_eq!(loss, Loss::HeldTooLong);
    assert!(held > LONGEST, "lost before the longest hold: {held:?}");
    assert!(held <= LONGEST + TTL + LATE, "held for {held:?}");
    let rounds: Vec<_> = network.relays[0]
        .log()
        .into_iter()
        .filter(is_extension)
        .map(|request| request.at.saturating_sub(began))
        .collect();
    assert!(rounds.len() >= 2, "it was extended until then: {rounds:?}");
    assert!(
        rounds.iter().all(|at| *at <= LONGEST + LATE),
        "extended after the longest hold: {rounds:?}"
    );
    assert!(!guard.is_held());
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Lost);
    drop(guard);
    network.assert_no_key("a", SOON);
}

/// Without a watchdog nothing is sent between the acquisition and the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_watchdog_nothing_is_sent() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let lock = redlock.lock("a").ttl(ms(300)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    network.all_were_sent(SOON, is_set);
    network.clear_logs();
    guard.lost().await;
    let sent = network.sent(|_| true);
    assert!(sent.is_empty(), "{sent:?}");
    drop(guard);
    network.assert_no_key("a", SOON);
}
