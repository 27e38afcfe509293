//! Releases that are cancelled, cut or unanswered can be repeated (case 14, R21, R22).

use crate::support::{LATE, Network, SOON, is_delete, let_go, ms};
use quorumlock::{ErrorKind, Guard, Redlock, Released};
use quorumlock_masters::{Rule, Stopwatch};
use std::time::Duration;

/// Longer than any test: what is gone was deleted.
const TTL: Duration = ms(60_000);

/// A lock that all masters have; its handle lives on beside it.
async fn acquire(network: &Network) -> (Redlock, Guard) {
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    network.await_everywhere("a");
    network.clear_logs();
    (redlock, guard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_a_cancelled_release_can_be_repeated() {
    let network = Network::start(3);
    let (_redlock, guard) = acquire(&network).await;
    network.answers(Rule::Hold);
    let cancelled = tokio::time::timeout(ms(20), guard.release()).await;
    assert!(cancelled.is_err(), "it was answered: {cancelled:?}");
    assert!(!guard.is_held(), "a lock that was let go is not held");
    network.assert_no_key("a", ms(300));
    network.heal();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert_eq!(
        guard.release().await.unwrap(),
        Released::WasOurs,
        "once more"
    );
    network.assert_no_key("a", Duration::ZERO);
}

/// The deletes were done, and the connections broke before they were answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_a_release_whose_answers_are_cut_off_can_be_repeated() {
    let network = Network::start(3);
    let (_redlock, guard) = acquire(&network).await;
    network.answers(Rule::Hold);
    let cutting = async {
        network.all_were_sent(SOON, is_delete);
        network.assert_no_key("a", SOON);
        network.cut();
        network.heal();
    };
    let (released, ()) = tokio::join!(guard.release(), cutting);
    let error = released.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let answer = let_go(&guard).await;
    assert_eq!(guard.release().await.unwrap(), answer);
    network.assert_no_key("a", Duration::ZERO);
}

/// The deletes never arrived: the token is kept, and they are sent again on new connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_a_release_that_never_arrived_can_be_repeated() {
    let network = Network::start(3);
    let (_redlock, guard) = acquire(&network).await;
    network.requests(Rule::Hold);
    let cancelled = tokio::time::timeout(ms(20), guard.release()).await;
    assert!(cancelled.is_err());
    network.cut();
    network.heal();
    assert_eq!(network.holders("a"), [0, 1, 2], "nothing had arrived");
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

/// Nobody asks again: what the broken connections owed is deleted on the next ones all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_a_release_that_never_arrived_is_made_good() {
    let network = Network::start(3);
    let (_redlock, guard) = acquire(&network).await;
    network.requests(Rule::Hold);
    let cancelled = tokio::time::timeout(ms(20), guard.release()).await;
    assert!(cancelled.is_err());
    network.cut();
    assert_eq!(network.holders("a"), [0, 1, 2], "nothing had arrived");
    network.heal();
    network.assert_no_key("a", SOON);
    drop(guard);
}

/// One master's connection breaks: the others confirm, and the one gets its delete later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_a_release_confirms_by_the_others() {
    let network = Network::start(3);
    let (_redlock, guard) = acquire(&network).await;
    let third = &network.relays[2];
    third.refuse(true);
    third.cut(quorumlock_masters::Close::Reset);
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(watch.elapsed() < LATE, "a dead master delayed it");
    drop(guard);
    assert_eq!(network.holders("a"), [2]);
    third.refuse(false);
    network.assert_no_key("a", SOON);
}

/// All masters silent: an error at the per-master timeout, not before and not much later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_nobody_answers_is_an_error_in_time() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(ms(2_000)).acquire().await.unwrap();
    network.answers(Rule::Hold);
    let watch = Stopwatch::start();
    let error = guard.release().await.unwrap_err();
    let took = watch.elapsed();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(error.failed(), 3, "{error}");
    assert!(took >= ms(195) && took <= ms(200) + LATE, "after {took:?}");
    network.heal();
    assert_eq!(let_go(&guard).await, Released::WasOurs);
    network.assert_no_key("a", Duration::ZERO);
    assert!(
        network.sent(is_delete).len() >= 6,
        "it was not sent a second time"
    );
}
