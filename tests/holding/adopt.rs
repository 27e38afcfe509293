//! Locks that change hands: given up as parts, adopted elsewhere, proved before they are believed.

use crate::support::{Network, SOON, is_extension, is_set, let_go, ms};
use quorumlock::{ErrorKind, Parts, Released};
use quorumlock_masters::{Rule, Stopwatch, eventually, pause};
use std::time::Duration;

const TTL: Duration = ms(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_moves_to_another_handle_and_is_extended_there() {
    let network = Network::start(3);
    let (first, second) = (network.connect().await, network.connect().await);
    let guard = first.lock("a").ttl(TTL).acquire().await.unwrap();
    network.await_everywhere("a");
    let held = guard.held();
    let parts = guard.into_parts();
    assert_eq!(parts.resource(), b"a");
    assert_eq!(parts.token(), held.token());
    assert!(parts.validity() > TTL / 2 && parts.validity() < TTL);
    assert_eq!(parts.fence(), None);
    assert!(!held.is_held() && held.remaining().is_zero());
    assert_eq!(network.holders("a"), [0, 1, 2], "it was released");

    let adopted = second.adopt(parts).await.unwrap();
    assert!(adopted.is_held());
    assert_eq!(adopted.token(), held.token());
    drop(first);
    network.clear_logs();
    let early = tokio::time::timeout(TTL * 2, adopted.lost()).await;
    assert!(early.is_err(), "lost: {early:?}");
    assert!(adopted.is_held());
    assert_eq!(network.holders("a"), [0, 1, 2]);
    let rounds = network.relays[0].log().into_iter().filter(is_extension);
    assert!(rounds.count() >= 4, "it was not extended at a third");
    assert_eq!(adopted.release().await.unwrap(), Released::WasOurs);
    network.assert_no_key("a", SOON);
}

/// What was given up is nobody's to extend: it lives until its TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_nobody_adopts_expire() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    let token = guard.token().to_owned();
    network.await_everywhere("a");
    let watch = Stopwatch::start();
    drop(guard.into_parts());
    network.clear_logs();
    assert!(redlock.close(ms(200)).await.is_empty());
    drop(redlock);
    network.assert_no_key("a", TTL + ms(200));
    assert!(watch.elapsed() + ms(150) >= TTL, "deleted early");
    let sent = network.sent(|request| request.mentions(&token));
    assert!(sent.is_empty(), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_lock_is_not_adopted() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    for server in network.iter() {
        let set = server.command(&["SET", "a", "thief", "PX", "20000"]);
        set.unwrap();
    }
    let watch = Stopwatch::start();
    let error = redlock.adopt(Parts::new("a", "mine")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(error.masters().len(), 3, "{error}");
    assert!(error.denied() >= 2, "{error}");
    pause(ms(300));
    for server in network.iter() {
        assert_eq!(server.get("a").unwrap(), b"thief");
        let end = server.pttl("a").unwrap() + watch.elapsed();
        assert!(end <= ms(20_050), "extended by a stranger to {end:?}");
        assert!(end >= ms(19_900), "shortened by a stranger to {end:?}");
    }
    assert!(network.sent(is_set).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lock_is_not_adopted_and_not_created() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let lock = redlock.lock("a").ttl(ms(150));
    let parts = lock.acquire().await.unwrap().into_parts();
    network.assert_no_key("a", ms(400));
    network.clear_logs();
    let parts = parts.ttl(ms(5_000));
    let error = redlock.adopt(parts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    pause(ms(400));
    assert_eq!(network.total_keys(), 0);
    assert!(network.sent(is_set).is_empty());
}

/// A minority still has it: lost all the same, and that minority's key is left to its TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_is_not_adopted() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let set = network[0].command(&["SET", "a", "mine", "PX", "20000"]);
    set.unwrap();
    let parts = Parts::new("a", "mine").ttl(ms(10_000));
    let error = redlock.adopt(parts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    pause(ms(300));
    assert_eq!(network.holders("a"), [0], "created, or deleted");
    network[0].command(&["DEL", "a"]).unwrap();
    assert_eq!(network.total_keys(), 0);
}

/// A quorum has it: adopted with the TTL asked for, and given to the master that lacks it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_is_adopted_and_healed() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    for server in &network[..2] {
        let set = server.command(&["SET", "a", "mine", "PX", "400"]);
        set.unwrap();
    }
    let parts = Parts::new("a", "mine").ttl(ms(5_000));
    let guard = redlock.adopt(parts).await.unwrap();
    let left = guard.remaining();
    assert!(left > ms(4_000) && left < ms(5_000), "{left:?}");
    assert!(eventually(SOON, || network.holders("a") == [0, 1, 2]));
    assert_eq!(network[2].get("a").unwrap(), b"mine");
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

/// Nobody answers: not held, nothing deleted, and it can be adopted later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_nobody_answers_leaves_the_lock() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(ms(10_000)).acquire().await.unwrap();
    network.await_everywhere("a");
    let parts = guard.into_parts();
    network.answers(Rule::Hold);
    let error = redlock.adopt(parts.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let dropped = tokio::time::timeout(ms(20), redlock.adopt(parts.clone())).await;
    assert!(dropped.is_err());
    network.heal();
    pause(ms(200));
    assert_eq!(network.holders("a"), [0, 1, 2], "deleted");
    let guard = redlock.adopt(parts).await.unwrap();
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}
