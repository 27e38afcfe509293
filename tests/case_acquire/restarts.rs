//! Servers that forget scripts, or everything, under a held lock.

use crate::{SOON, ms, secs};
use quorumlock::{ErrorKind, Guard, Redlock, Released};
use quorumlock_masters::{Flavour, Fleet, Server, Stopwatch, eventually};
use std::time::Duration;

/// The per-master timeout of the default TTL is 1 s; what waits for none is far below.
const SAME_TIME: Duration = Duration::from_millis(700);

fn forget_scripts(fleet: &Fleet) {
    for server in fleet.iter() {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
    }
}

async fn extend(guard: &Guard) {
    let watch = Stopwatch::start();
    guard.extend(secs(40)).await.unwrap();
    assert!(watch.elapsed() < SAME_TIME, "{:?}", watch.elapsed());
}

async fn release(guard: &Guard) {
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(watch.elapsed() < SAME_TIME, "{:?}", watch.elapsed());
}

/// Restarts a server, empty, and waits until the handle has found it again.
async fn restart(redlock: &Redlock, server: &Server) {
    server.restart();
    let watch = Stopwatch::start();
    while redlock.status("a").await.unwrap().answered() < 3 {
        assert!(watch.elapsed() < secs(10), "it does not join again");
    }
}

async fn check(flavour: Flavour) {
    let fleet = Fleet::with(3, |_| Server::builder().flavour(flavour.clone())).unwrap();
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    forget_scripts(&fleet);
    extend(&guard).await;
    forget_scripts(&fleet);
    release(&guard).await;
    fleet.assert_no_key("a", SOON);

    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    restart(&redlock, &fleet[0]).await;
    assert_eq!(fleet.holders("a"), [1, 2]);
    extend(&guard).await;
    // The restarted master gets the key again, since a quorum has proved the lock.
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    assert_eq!(fleet[0].get("a").unwrap(), guard.token().as_bytes());
    restart(&redlock, &fleet[0]).await;
    release(&guard).await;
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_32_forgotten_scripts_and_a_restart_change_nothing() {
    let flavours = Flavour::all_available();
    assert!(!flavours.is_empty());
    for flavour in flavours {
        check(flavour).await;
    }
}

/// The rollback of a refused attempt leaves nothing where the server forgot every script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_32_a_rollback_needs_no_script_that_the_server_knows() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    for server in &fleet[1..] {
        server
            .command(&["SET", "a", "another", "PX", "60000"])
            .unwrap();
    }
    for _ in 0..20 {
        forget_scripts(&fleet);
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        assert!(eventually(SOON, || !fleet[0].exists("a")));
    }
    for server in &fleet[1..] {
        assert_eq!(server.get("a").unwrap(), b"another");
    }
}

/// All of them restart, one after another, under a lock that a watchdog extends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_32_a_rolling_restart_does_not_lose_a_held_lock() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let guard = redlock.lock("a").ttl(secs(3)).acquire().await.unwrap();
    for server in fleet.iter() {
        server.restart();
        assert!(
            eventually(secs(10), || fleet.holders("a") == [0, 1, 2]),
            "{:?}: {:?}",
            guard.loss(),
            fleet.holders("a")
        );
        assert!(guard.is_held());
    }
    assert!(guard.remaining() > ms(100));
    release(&guard).await;
    fleet.assert_no_key("a", SOON);
}
