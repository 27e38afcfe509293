//! A hundred refusals by a holder on a majority: what the minority granted each time is undone.

use crate::{SOON, eventually, ms};
use quorumlock::{ErrorKind, Redlock};
use quorumlock_masters::{Fleet, Relay, Rule};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);

/// Somebody else's lock on as many masters as make a quorum, for longer than the test.
fn hold(fleet: &Fleet) -> usize {
    let quorum = fleet.len() / 2 + 1;
    for server in &fleet[..quorum] {
        server
            .command(&["SET", "k", "holder", "PX", "600000"])
            .unwrap();
    }
    quorum
}

/// The minority has nothing, the majority still has the holder's.
fn assert_undone(fleet: &Fleet, quorum: usize) {
    let clean = || fleet.holders("k") == (0..quorum).collect::<Vec<_>>();
    assert!(
        quorumlock_masters::eventually(SOON, clean),
        "{:?}",
        fleet.holders("k")
    );
    for server in &fleet[..quorum] {
        assert_eq!(server.get("k").as_deref(), Some(b"holder".as_slice()));
    }
    assert_eq!(fleet.total_keys(), quorum);
}

#[tokio::test]
async fn case_18_a_hundred_refusals_leave_no_key_one_after_another() {
    for size in [3, 5] {
        let fleet = Fleet::start(size);
        let quorum = hold(&fleet);
        let client = Redlock::connect(fleet.urls()).await.unwrap();
        for _ in 0..100 {
            let error = client.lock("k").ttl(TTL).try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        }
        drop(client);
        assert_undone(&fleet, quorum);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_a_hundred_refusals_leave_no_key_all_at_once() {
    let fleet = Fleet::start(3);
    let quorum = hold(&fleet);
    let client = Redlock::connect(fleet.urls()).await.unwrap();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let lock = client.lock("k").ttl(TTL);
            tokio::spawn(async move { lock.try_acquire().await.map(drop).unwrap_err() })
        })
        .collect();
    for task in tasks {
        let error = task.await.unwrap();
        assert!(error.is_held(), "{error}");
    }
    drop(client);
    assert_undone(&fleet, quorum);
}

/// The refusal is decided long before the minority's grant comes, so it is undone unheard.
#[tokio::test]
async fn case_16_a_grant_that_comes_after_the_refusal_is_undone() {
    let fleet = Fleet::start(3);
    let quorum = hold(&fleet);
    let relay = Relay::to(fleet[2].address());
    let client = Redlock::connect([fleet[0].url(), fleet[1].url(), relay.url()])
        .await
        .unwrap();
    assert_eq!(client.status("k").await.unwrap().answered(), 3);
    relay.both(Rule::Delay(ms(20)));
    for _ in 0..100 {
        let error = client.lock("k").ttl(TTL).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        assert_eq!((error.denied(), error.failed()), (2, 0), "{error}");
    }
    assert!(
        eventually(|| relay.log_of("SET").len() == 100).await,
        "a refusal was not tried there"
    );
    assert!(client.close(ms(3_000)).await.is_empty());
    assert_undone(&fleet, quorum);
}
