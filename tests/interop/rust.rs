//! The crate rslock, another Redlock, against ours on the same three and five masters.

use crate::{SOON, TTL, assert_excluded, holder, ms};
use quorumlock::{Redlock, Released};
use quorumlock_masters::Fleet;
use rslock::{Lock, LockError, LockManager};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Their client, set to try once.
fn theirs(fleet: &Fleet) -> LockManager {
    let mut manager = LockManager::new(fleet.urls());
    manager.set_retry(1, ms(1));
    manager
}

async fn both(size: usize) -> (Fleet, Redlock, LockManager) {
    let fleet = Fleet::start(size);
    let (client, manager) = (
        Redlock::connect(fleet.urls()).await.unwrap(),
        theirs(&fleet),
    );
    (fleet, client, manager)
}

async fn assert_refused(manager: &LockManager, resource: &str) {
    let refused = manager.lock(resource, TTL).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable)),
        "{refused:?}"
    );
}

/// Their lock, as soon as they can have it.
async fn wait_for(manager: &LockManager, resource: &str) -> Lock {
    let acquiring = manager.acquire_no_guard(resource, TTL);
    tokio::time::timeout(SOON, acquiring)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_lock_of_rslock_excludes_ours_until_it_is_released() {
    for size in [3, 5] {
        let (fleet, client, manager) = both(size).await;
        let lock = manager.lock("job", ms(1_500)).await.unwrap();
        assert_eq!(
            holder(&client, "job").await,
            lock.val,
            "a token of bytes is shown as it is"
        );
        assert_excluded(&client, "job").await;
        let lock = manager.extend(&lock, TTL).await.unwrap();
        tokio::time::sleep(ms(1_600)).await;
        assert_excluded(&client, "job").await;
        assert_eq!(
            holder(&client, "job").await,
            lock.val,
            "our refusals touched their lock"
        );
        let waiting = tokio::spawn(client.lock("job").ttl(TTL).wait(SOON).acquire());
        manager.unlock(&lock).await;
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        fleet.assert_no_key("job", SOON);
    }
}

#[tokio::test]
async fn our_lock_excludes_rslock_until_it_is_released() {
    for size in [3, 5] {
        let (fleet, client, manager) = both(size).await;
        let guard = client.lock("job").ttl(ms(400)).acquire().await.unwrap();
        assert_refused(&manager, "job").await;
        tokio::time::sleep(ms(1_000)).await;
        assert_refused(&manager, "job").await;
        guard.extend(TTL).await.unwrap();
        assert_refused(&manager, "job").await;
        assert!(guard.is_held());
        let (lock, released) = tokio::join!(wait_for(&manager, "job"), guard.release());
        assert_eq!(released.unwrap(), Released::WasOurs);
        assert_excluded(&client, "job").await;
        manager.unlock(&lock).await;
        fleet.assert_no_key("job", SOON);
    }
}

#[tokio::test]
async fn case_06_late_releases_spare_the_others_lock() {
    let (fleet, client, manager) = both(3).await;
    let ours = client
        .lock("job")
        .ttl(ms(150))
        .without_watchdog()
        .acquire()
        .await
        .unwrap();
    let lock = wait_for(&manager, "job").await;
    assert!(!ours.is_held(), "two holders");
    assert_eq!(ours.release().await.unwrap(), Released::NoLongerOurs);
    drop(ours);
    assert_eq!(holder(&client, "job").await, lock.val);
    manager.unlock(&lock).await;
    fleet.assert_no_key("job", SOON);

    let lock = manager.lock("job", ms(400)).await.unwrap();
    let ours = client
        .lock("job")
        .ttl(TTL)
        .wait(SOON)
        .acquire()
        .await
        .unwrap();
    assert!(manager.extend(&lock, TTL).await.is_err());
    manager.unlock(&lock).await;
    assert_eq!(holder(&client, "job").await, ours.token().as_bytes());
    ours.extend(TTL).await.unwrap();
    assert_eq!(ours.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("job", SOON);
}

/// How many tasks believe that they hold, and how often each library did.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    ours: AtomicUsize,
    theirs: AtomicUsize,
}

impl Inside {
    async fn enter(&self, side: &AtomicUsize) {
        assert_eq!(self.now.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        side.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(ms(1)).await;
        assert_eq!(self.now.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
    }
}

/// Both sides want the same resource all the time, and both get it, in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_contend_and_no_two_hold_at_once() {
    let (fleet, client, manager) = both(3).await;
    let inside = Arc::new(Inside::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (client, here) = (client.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..15 {
                let guard = client.lock("job").ttl(TTL).acquire().await.unwrap();
                here.enter(&here.ours).await;
                assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
            }
        });
        let (manager, here) = (manager.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..15 {
                let lock = manager.acquire_no_guard("job", TTL).await.unwrap();
                here.enter(&here.theirs).await;
                manager.unlock(&lock).await;
                // Room for the others: their retries come without a pause.
                tokio::time::sleep(ms(5)).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(inside.ours.load(Ordering::SeqCst), 30);
    assert_eq!(inside.theirs.load(Ordering::SeqCst), 30);
    fleet.assert_no_key("job", SOON);
}
