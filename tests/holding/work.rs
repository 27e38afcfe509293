//! Work under a lock: cancelled on loss, its output never lost, its own error first (R18).

use crate::support::{Dropped, LATE, Network, SOON, let_go, ms};
use quorumlock::{ErrorKind, Loss, Redlock, RunError};
use quorumlock_masters::{Rule, Stopwatch, pause};
use std::fmt;
use std::time::Duration;

const TTL: Duration = ms(1_500);

/// Takes the key from the holder on two masters of three.
fn steal(network: &Network) {
    for server in &network[..2] {
        let stolen = server.command(&["SET", "a", "thief", "PX", "60000"]);
        stolen.unwrap();
    }
}

/// The thief's keys still stand, and ours is gone from the third.
fn only_the_thief_is_left(network: &Network) {
    let left = quorumlock_masters::eventually(SOON, || network.holders("a") == [0, 1]);
    assert!(left, "on {:?}", network.holders("a"));
    for server in &network[..2] {
        assert_eq!(server.get("a").unwrap(), b"thief");
    }
}

async fn start() -> (Network, Redlock) {
    let network = Network::start(3);
    let redlock = network.connect().await;
    (network, redlock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_cancelled_when_the_lock_is_lost() {
    let (network, redlock) = start().await;
    let (cancelled, watch) = (Dropped::default(), Stopwatch::start());
    let result = redlock.lock("a").ttl(TTL).run(|held| {
        let (network, cancelled) = (&network, &cancelled);
        async move {
            let _cancelled = cancelled.on_drop();
            assert!(held.is_held());
            steal(network);
            std::future::pending::<()>().await;
        }
    });
    let error = result.await.unwrap_err();
    assert!(watch.elapsed() < TTL / 3 + LATE, "{:?}", watch.elapsed());
    assert!(cancelled.is_set());
    let RunError::Lost { loss, output: None } = error else {
        panic!("{error:?}");
    };
    let stolen = Loss::NotOurs {
        missing: 0,
        foreign: 2,
    };
    assert_eq!(loss, Some(stolen));
    only_the_thief_is_left(&network);
}

/// Work that does not yield cannot be cancelled; what it made is handed over inside the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_came_too_late_is_inside_the_error() {
    let (network, redlock) = start().await;
    let lock = redlock.lock("a").ttl(TTL).without_watchdog();
    let result = lock.run(|held| async move {
        pause(TTL);
        assert!(!held.is_held());
        42
    });
    let error = result.await.unwrap_err();
    assert!(
        matches!(
            error,
            RunError::Lost {
                loss: Some(Loss::Expired),
                output: Some(42)
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.into_output(), Some(42));
    network.assert_no_key("a", SOON);
}

/// Nobody noticed during the work, and the release finds the lock somebody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_finds_it_not_ours_makes_it_lost() {
    let (network, redlock) = start().await;
    let result = redlock.lock("a").ttl(ms(30_000)).run(|_| async {
        steal(&network);
        "done"
    });
    let error = result.await.unwrap_err();
    assert!(
        matches!(
            error,
            RunError::Lost {
                loss: None,
                output: Some("done")
            }
        ),
        "{error:?}"
    );
    only_the_thief_is_left(&network);
}

#[derive(Debug)]
enum Failure {
    Own(&'static str),
    Lock(RunError<u8>),
}

impl From<RunError<u8>> for Failure {
    fn from(error: RunError<u8>) -> Self {
        Self::Lock(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_works_own_error_comes_first() {
    let (network, redlock) = start().await;
    let lock = || redlock.lock("a").ttl(ms(30_000));
    // Its own error, and the lock lost as well, whether by the release or by the clock.
    let stolen = lock().try_run(|_| async {
        steal(&network);
        Err::<u8, _>(Failure::Own("stolen"))
    });
    assert!(matches!(stolen.await.unwrap_err(), Failure::Own("stolen")));
    for server in &network[..2] {
        server.command(&["DEL", "a"]).unwrap();
    }
    network.assert_no_key("a", SOON);
    let expired = lock().ttl(ms(200)).without_watchdog().try_run(|_| async {
        pause(ms(200));
        Err::<u8, _>(Failure::Own("expired"))
    });
    assert!(matches!(
        expired.await.unwrap_err(),
        Failure::Own("expired")
    ));
    // No error of its own: the loss is told, with the output inside.
    let lost = lock().ttl(ms(200)).without_watchdog().try_run(|_| async {
        pause(ms(200));
        Ok::<_, Failure>(7)
    });
    let Failure::Lock(RunError::Lost {
        loss: Some(Loss::Expired),
        output: Some(7),
    }) = lost.await.unwrap_err()
    else {
        panic!("the loss was hidden");
    };
    assert_eq!(
        lock()
            .try_run(|_| async { Ok::<_, Failure>(8) })
            .await
            .unwrap(),
        8
    );
    network.assert_no_key("a", SOON);
}

/// A release that nobody answers hides neither an output nor an error, and goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_fails_hides_nothing() {
    let (network, redlock) = start().await;
    let lock = || redlock.lock("a").ttl(ms(2_000));
    let watch = Stopwatch::start();
    let result = lock().run(|_| async {
        network.requests(Rule::Hold);
        9
    });
    assert_eq!(result.await.unwrap(), 9);
    assert!(watch.elapsed() <= ms(200) + LATE, "{:?}", watch.elapsed());
    network.heal();
    network.assert_no_key("a", ms(500));
    let failed = lock().try_run(|_| async {
        network.requests(Rule::Hold);
        Err::<u8, _>(Failure::Own("mine"))
    });
    assert!(matches!(failed.await.unwrap_err(), Failure::Own("mine")));
    network.heal();
    network.assert_no_key("a", ms(500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_not_begun_without_the_lock() {
    let (network, redlock) = start().await;
    let other = network.connect().await;
    let holder = other.lock("a").acquire().await.unwrap();
    let begun = Dropped::default();
    let lock = redlock.lock("a").wait(ms(100));
    let error = lock.run(|_| async { drop(begun.on_drop()) }).await;
    let error = error.unwrap_err();
    let refused = error.not_acquired().unwrap();
    assert_eq!(refused.kind(), ErrorKind::GaveUp, "{refused}");
    assert!(refused.is_held() && !begun.is_set());
    let_go(&holder).await;
    network.assert_no_key("a", SOON);
}

/// The future of `run` is dropped in the middle of the work: work dropped, lock released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_run_drops_the_work_and_releases() {
    let (network, redlock) = start().await;
    let dropped = Dropped::default();
    let run = redlock.lock("a").run(|_| async {
        let _dropped = dropped.on_drop();
        std::future::pending::<()>().await;
    });
    let cut = tokio::time::timeout(ms(100), run).await;
    assert!(cut.is_err() && dropped.is_set());
    network.assert_no_key("a", ms(500));
    assert!(!network.sent(crate::support::is_delete).is_empty());
    let again = redlock.lock("a").try_acquire().await.unwrap();
    assert!(again.remaining() > Duration::ZERO);
    let_go(&again).await;
    network.assert_no_key("a", SOON);
}
