//! A SET that was not yet written when its attempt or hold ended is never written.

use crate::{Deed, deed, eventually, ms, words_of};
use quorumlock::{Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Server};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);

/// On a runtime of one thread nothing is written between a first poll and the drop that follows
/// it: what comes after the attempt's end must be its undo alone.
#[tokio::test]
async fn case_09_a_future_dropped_after_its_first_poll_sends_no_set() {
    let fleet = Fleet::start(3);
    let relays: Vec<Relay> = fleet
        .iter()
        .map(|server| Relay::to(server.address()))
        .collect();
    let client = Redlock::connect(relays.iter().map(Relay::url))
        .await
        .unwrap();
    assert_eq!(client.status("k").await.unwrap().answered(), 3);
    for round in 0..200 {
        let resource = format!("k{round}");
        {
            let mut acquiring = pin!(client.lock(&resource).ttl(TTL).acquire());
            let first = acquiring
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(first.is_pending());
        }
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    // The undos are on their way: the attempts had really begun.
    let deletes = |relay: &Relay| {
        relay
            .log()
            .iter()
            .filter(|request| deed(&words_of(request)) == Some(Deed::Delete))
            .count()
    };
    assert!(eventually(|| relays.iter().all(|relay| deletes(relay) >= 200)).await);
    assert!(client.close(ms(3_000)).await.is_empty());
    for relay in &relays {
        let sets = relay.log_of("SET");
        assert!(
            sets.is_empty(),
            "{} SETs were sent after their attempts' ends",
            sets.len()
        );
    }
    assert_eq!(fleet.total_keys(), 0);
}

/// A master hangs until its connection is full: what no longer fits is taken back with the end of
/// its hold, and is not sent when the master goes on.
#[tokio::test]
async fn case_21_what_a_hung_master_never_took_is_withdrawn() {
    let fleet = Fleet::start(3);
    let client = Redlock::connect(fleet.urls()).await.unwrap();
    assert_eq!(client.status("k").await.unwrap().answered(), 3);
    let name = vec![b'n'; 500_000];
    fleet[2].pause();
    for _ in 0..40 {
        let guard = client.lock(&name).ttl(TTL).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    }
    fleet[2].resume();
    let left = client.close(ms(10_000)).await;
    assert!(left.is_empty(), "{left:?}");
    let (set, deleted) = (calls(&fleet[2], "set"), calls(&fleet[2], "eval"));
    assert!(set > 0, "nothing was sent before the connection was full");
    assert!(set < 40, "nothing was withdrawn");
    assert!(deleted >= set, "{deleted} deletes for {set} SETs");
    assert_eq!((calls(&fleet[0], "set"), calls(&fleet[1], "set")), (40, 40));
    assert_eq!(fleet.total_keys(), 0);
}

/// How often the server has run a command.
fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().text();
    let head = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&*head));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}
