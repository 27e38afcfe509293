//! The whole life of one lock on real masters: acquire, hold, extend, release.

use quorumlock::{ErrorKind, Redlock, Released};
use quorumlock_masters::Fleet;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn acquires_excludes_and_releases() {
    let fleet = Fleet::start(5);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let guard = redlock.lock("a").acquire().await.unwrap();
    assert!(guard.is_held());
    assert!(guard.grants() >= 3);
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held, "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
    let guard = redlock.lock("a").acquire().await.unwrap();
    drop(guard);
    fleet.assert_no_key("a", SOON);
}

#[tokio::test]
async fn the_watchdog_extends_and_run_releases() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let out = redlock
        .lock("a")
        .ttl(Duration::from_millis(300))
        .run(|held| async move {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            held.is_held()
        })
        .await
        .unwrap();
    assert!(out);
    fleet.assert_no_key("a", SOON);
}
