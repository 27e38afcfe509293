//! Locks that came too late, and locks whose time is over.

use crate::{SOON, connect, ms, secs};
use quorumlock::{ErrorKind, Loss, Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Rule, Stopwatch, eventually};
use std::time::Duration;

/// A relay in front of each server, and a handle that goes through them.
async fn relayed(fleet: &Fleet) -> (Vec<Relay>, Redlock) {
    let relays: Vec<_> = fleet.iter().map(|of| Relay::to(of.address())).collect();
    let builder = Redlock::builder().masters(relays.iter().map(Relay::url));
    // Longer than the delays of these tests, so that the validity is what ends.
    let redlock = builder.attempt_timeout(secs(2)).connect().await.unwrap();
    let watch = Stopwatch::start();
    while redlock.status("all").await.unwrap().answered() < relays.len() {
        assert!(watch.elapsed() < secs(20), "not all of them are connected");
    }
    (relays, redlock)
}

/// The token of the last SET that went through.
fn last_token(relay: &Relay) -> Vec<u8> {
    relay.log_of("SET").last().unwrap().args[2].clone()
}

/// Waits for the delete of this token, by whatever command the server has for it.
fn is_undone(relay: &Relay, token: &[u8]) -> bool {
    relay
        .wait_for(SOON, |request| {
            request.name() != "SET" && request.mentions(token)
        })
        .is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_a_quorum_after_the_validity_is_too_slow_and_rolled_back() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    for relay in &relays {
        relay.answers(Rule::Delay(ms(150)));
    }
    let watch = Stopwatch::start();
    let lock = redlock.lock("a").ttl(ms(120));
    let error = lock.try_acquire().await.unwrap_err();
    assert!(watch.elapsed() < secs(1), "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::TooSlow, "{error}");
    for relay in &relays {
        assert!(is_undone(relay, &last_token(relay)));
    }
    fleet.assert_no_key("a", SOON);

    // The same against a least validity, where the TTL itself would keep the key for long.
    let lock = redlock.lock("a").ttl(secs(30)).min_validity(ms(29_600));
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooSlow, "{error}");
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_validity_counts_from_before_the_first_byte() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    for relay in &relays {
        relay.answers(Rule::Delay(ms(150)));
    }
    let guard = redlock.lock("a").ttl(ms(400)).acquire().await.unwrap();
    assert!(guard.remaining() <= ms(250 - 6), "{:?}", guard.remaining());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_the_end_of_the_validity_is_early_enough_for_any_delays() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    // One second less its drift: 1 % and 2 ms.
    let most_validity = ms(1_000 - 10 - 2);
    for (round, [to_first, to_second, to_third, back]) in [
        [0, 0, 0, 0],
        [20, 60, 0, 0],
        [120, 0, 60, 30],
        [5, 250, 250, 0],
        [0, 0, 300, 200],
        [90, 90, 90, 90],
    ]
    .into_iter()
    .enumerate()
    {
        for (relay, to) in relays.iter().zip([to_first, to_second, to_third]) {
            relay.requests(Rule::Delay(ms(to)));
            relay.answers(Rule::Delay(ms(back)));
        }
        let resource = format!("a{round}");
        let lock = redlock.lock(&resource).ttl(secs(1)).without_watchdog();
        let guard = lock.acquire().await.unwrap();
        for relay in &relays {
            // Read before `remaining`, so that the sum is never later than the true end.
            let now = relay.elapsed();
            let end = now + guard.remaining();
            let token = guard.token().as_bytes();
            let sent = relay
                .wait_for(SOON, |request| request.mentions(token))
                .unwrap();
            let latest = sent.at + most_validity;
            assert!(
                end <= latest,
                "round {round}: {end:?} is later than {latest:?}"
            );
        }
        drop(guard);
        relays.iter().for_each(Relay::heal);
        fleet.assert_no_key(&resource, SOON);
    }
}

/// The answers are in time, and whoever waits for them looks when the validity is over.
#[tokio::test]
async fn case_04_a_grant_that_is_looked_at_too_late_is_not_handed_over() {
    let fleet = Fleet::start(3);
    let (_relays, redlock) = relayed(&fleet).await;
    let blocking = async || quorumlock_masters::pause(ms(300));
    let lock = redlock.lock("a").ttl(ms(200));
    let (acquired, ()) = tokio::join!(lock.clone().try_acquire(), blocking());
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooSlow, "{error}");
    let mut began = 0;
    let run = lock.wait(secs(5)).run(|held| {
        began += 1;
        async move { held.is_held() }
    });
    let (held, ()) = tokio::join!(run, blocking());
    assert!(held.unwrap(), "the work began under a lock that was over");
    assert_eq!(began, 1);
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_05_an_expired_lock_is_not_extended() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    let lock = redlock.lock("a").ttl(ms(50)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(ms(80)).await;
    assert!(!guard.is_held());
    relays.iter().for_each(Relay::clear_log);
    let error = guard.extend(secs(1)).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(error.loss(), Some(Loss::Expired));

    let other = connect(&fleet.urls()).await;
    let successor = other.lock("a").ttl(secs(10)).acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    let left: Vec<_> = fleet.iter().map(|of| of.pttl("a").unwrap()).collect();
    let error = guard.extend(secs(60)).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    for (server, left) in fleet.iter().zip(left) {
        assert_eq!(server.get("a").unwrap(), successor.token().as_bytes());
        assert!(server.pttl("a").unwrap() <= left);
    }
    drop(guard);
    for relay in &relays {
        assert!(relay.log_of("SET").is_empty(), "{:?}", relay.log());
    }
    assert!(successor.is_held());
    successor.release().await.unwrap();
    fleet.assert_no_key("a", SOON);
}

/// The extension was sent in time and arrives when the key is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_05_an_extension_that_arrives_late_creates_nothing() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    let lock = redlock.lock("a").ttl(secs(1)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    for relay in &relays {
        relay.requests(Rule::Hold);
        relay.clear_log();
    }
    let token = guard.token().to_owned();
    let extending = tokio::spawn(async move {
        let extended = guard.extend(secs(10)).await;
        (guard, extended)
    });
    for relay in &relays {
        let sent = relay.wait_for(SOON, |request| request.mentions(&token));
        assert!(sent.is_some());
    }
    assert!(eventually(SOON, || fleet.holders("a").is_empty()));
    relays.iter().for_each(Relay::heal);
    let (guard, extended) = extending.await.unwrap();
    let error = extended.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
    for (relay, server) in relays.iter().zip(fleet.iter()) {
        assert!(relay.log_of("SET").is_empty(), "{:?}", relay.log());
        assert!(!server.exists("a"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_06_a_late_release_leaves_the_successor_alone() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    let expire = async || {
        let lock = redlock.lock("a").ttl(ms(50)).without_watchdog();
        let guard = lock.acquire().await.unwrap();
        assert!(eventually(SOON, || fleet.holders("a").is_empty()));
        guard
    };
    let (released, dropped) = (expire().await, expire().await);
    let other = connect(&fleet.urls()).await;
    let successor = other.lock("a").acquire().await.unwrap();
    let owns_all = || {
        let token = Some(successor.token().as_bytes().to_vec());
        fleet.iter().all(|server| server.get("a") == token)
    };
    assert!(eventually(SOON, owns_all));
    assert_eq!(released.release().await.unwrap(), Released::NoLongerOurs);
    let token = dropped.token().to_owned();
    drop(dropped);
    for relay in &relays {
        assert!(is_undone(relay, token.as_bytes()));
    }
    // Behind the deletes on the same connections, so they have been carried out.
    redlock.status("a").await.unwrap();
    assert!(owns_all() && successor.is_held());
    successor.release().await.unwrap();
    fleet.assert_no_key("a", SOON);
}

/// Well below the per-master timeout of two seconds, on a loaded machine.
const AT_ONCE: Duration = Duration::from_millis(800);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_19_releasing_an_expired_lock_is_answered_at_once_and_repeatedly() {
    let fleet = Fleet::start(3);
    let (_relays, redlock) = relayed(&fleet).await;
    let lock = redlock.lock("a").ttl(ms(50)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a").is_empty()));
    for _ in 0..3 {
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
        assert!(watch.elapsed() < AT_ONCE, "{:?}", watch.elapsed());
    }
    let released = redlock.release("a", guard.token()).await.unwrap();
    assert_eq!(released, Released::NoLongerOurs);
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_19_a_silent_master_does_not_delay_that_answer() {
    let fleet = Fleet::start(3);
    let (relays, redlock) = relayed(&fleet).await;
    let lock = redlock.lock("a").ttl(ms(50)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a").is_empty()));
    relays[2].answers(Rule::Hold);
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
    assert!(watch.elapsed() < AT_ONCE, "{:?}", watch.elapsed());
    relays[2].heal();
    fleet.assert_no_key("a", SOON);
}
