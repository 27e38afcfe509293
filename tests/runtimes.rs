//! A handle works from any runtime: one after another, two at once, and after the one that built it has ended.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use quorumlock::{Redlock, Released};
use quorumlock_masters::{Fleet, Stopwatch, eventually};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};

const SOON: Duration = Duration::from_secs(2);
/// The per-master timeout of the default TTL is one second; a cycle waits for none.
const A_CYCLE: Duration = Duration::from_millis(900);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn cycle(redlock: &Redlock) {
    let watch = Stopwatch::start();
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(watch.elapsed() < A_CYCLE, "{:?}", watch.elapsed());
}

/// What `#[tokio::test]` does to a handle in a `static`, test by test.
#[test]
fn a_static_handle_serves_one_runtime_after_another() {
    static HANDLE: OnceLock<Redlock> = OnceLock::new();
    let fleet = Fleet::start(3);
    let first = current_thread();
    first.block_on(async {
        let redlock = Redlock::connect(fleet.urls()).await.unwrap();
        HANDLE.set(redlock).unwrap();
        cycle(HANDLE.get().unwrap()).await;
    });
    drop(first);
    for make in [current_thread, multi_thread, current_thread, multi_thread] {
        let runtime = make();
        for _ in 0..3 {
            runtime.block_on(cycle(HANDLE.get().unwrap()));
        }
        runtime.block_on(async {
            let spawned = tokio::spawn(cycle(HANDLE.get().unwrap()));
            spawned.await.unwrap();
        });
    }
    fleet.assert_no_key("a", SOON);
    let redlock = HANDLE.get().unwrap();
    let left = current_thread().block_on(redlock.close(SOON));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_handle_built_outside_any_runtime_serves_the_first_that_comes() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::builder().masters(fleet.urls()).build().unwrap();
    current_thread().block_on(cycle(&redlock));
    multi_thread().block_on(cycle(&redlock));
    fleet.assert_no_key("a", SOON);
}

/// The runtime ends under the guard; the watchdog has its own.
#[test]
fn a_guard_outlives_the_runtime_that_acquired_it() {
    let fleet = Fleet::start(3);
    let ttl = Duration::from_millis(600);
    for make in [current_thread, multi_thread] {
        let runtime = make();
        let (redlock, guard, dropped) = runtime.block_on(async {
            let redlock = Redlock::connect(fleet.urls()).await.unwrap();
            let guard = redlock.lock("a").ttl(ttl).acquire().await.unwrap();
            let dropped = redlock.lock("b").acquire().await.unwrap();
            (redlock, guard, dropped)
        });
        drop(runtime);
        // Two TTLs later it is held all the same.
        quorumlock_masters::pause(ttl * 2);
        assert!(guard.is_held(), "{:?}", guard.loss());
        drop(dropped);
        fleet.assert_no_key("b", SOON);
        let next = make();
        next.block_on(async {
            guard.extend(Duration::from_secs(5)).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
            cycle(&redlock).await;
        });
        fleet.assert_no_key("a", SOON);
    }
}

/// A runtime that ends while attempts and releases are under way leaves nothing behind.
#[test]
fn a_runtime_that_ends_in_the_middle_leaves_no_key() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::builder().masters(fleet.urls()).build().unwrap();
    for round in 0..20_u64 {
        let runtime = multi_thread();
        for task in 0..8 {
            let lock = redlock.lock(format!("a{task}"));
            runtime.spawn(async move {
                loop {
                    let guard = lock.clone().acquire().await.unwrap();
                    drop(guard.release().await);
                }
            });
        }
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5 + round)).await });
        runtime.shutdown_timeout(Duration::ZERO);
        assert!(
            eventually(SOON, || fleet.total_keys() == 0),
            "round {round}: {:?}",
            fleet.iter().map(|server| server.keys()).collect::<Vec<_>>()
        );
    }
    current_thread().block_on(cycle(&redlock));
    fleet.assert_no_key("a", SOON);
}

/// How a turn ends: with a release that was answered, or with a guard that is dropped.
#[derive(Clone, Copy)]
enum Ending {
    Released,
    Dropped,
}

/// One of two players: waits for its turn, takes the lock at the first try, lets go, passes on.
async fn play(redlock: Redlock, mut turn: Receiver<u32>, other: Sender<u32>, ending: Ending) {
    while let Some(round) = turn.recv().await {
        let guard = redlock
            .lock("a")
            .try_acquire()
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        match ending {
            Ending::Released => {
                let released = guard.release().await.unwrap();
                assert_eq!(released, Released::WasOurs, "round {round}");
            }
            Ending::Dropped => drop(guard),
        }
        if round == 0 {
            return;
        }
        // The other has ended with the last round.
        other.send(round - 1).await.unwrap();
    }
}

/// Two runtimes live at once, on two threads, and take turns on one resource.
fn alternate(rounds: u32, ending: Ending, make: [fn() -> Runtime; 2]) {
    let fleet = Fleet::start(3);
    let redlock = Redlock::builder().masters(fleet.urls()).build().unwrap();
    let (to_first, first) = channel(1);
    let (to_second, second) = channel(1);
    to_first.try_send(rounds).unwrap();
    thread::scope(|scope| {
        let ends = [(first, to_second), (second, to_first)];
        for (make, (turn, other)) in make.into_iter().zip(ends) {
            let redlock = redlock.clone();
            scope.spawn(move || make().block_on(play(redlock, turn, other, ending)));
        }
    });
    drop(redlock);
    fleet.assert_no_key("a", SOON);
}

#[test]
fn r21_two_runtimes_that_take_turns_are_never_refused_by_their_own_past() {
    alternate(1_000, Ending::Released, [current_thread, current_thread]);
    alternate(1_000, Ending::Released, [multi_thread, current_thread]);
}

#[test]
fn r21_nor_by_a_guard_that_the_other_has_just_dropped() {
    alternate(1_000, Ending::Dropped, [current_thread, current_thread]);
    alternate(1_000, Ending::Dropped, [current_thread, multi_thread]);
}
