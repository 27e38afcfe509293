//! What an extension gives back, and what it leaves alone (R16).

use crate::support::{LATE, Network, SOON, is_extension, is_set, let_go, ms};
use quorumlock_masters::{Rule, Stopwatch, eventually, pause};
use std::time::Duration;

const TTL: Duration = ms(1_500);

/// A master that came back empty is given the key again, once, and after an extension proved it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_gives_the_key_to_a_master_that_came_back_empty() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    network.all_were_sent(SOON, is_set);
    network.clear_logs();
    network[2].kill();
    network[2].restart();
    assert!(!network[2].exists("a"), "it did not forget");
    assert!(
        eventually(TTL * 2, || network[2].exists("a")),
        "never healed"
    );
    assert_eq!(network[2].get("a").unwrap(), guard.token().as_bytes());
    let left = network[2].pttl("a").unwrap();
    assert!(left <= TTL, "given for longer than asked: {left:?}");
    pause(TTL);
    assert!(guard.is_held());
    assert_eq!(network.holders("a"), [0, 1, 2]);

    let log = network.relays[2].log();
    let heals: Vec<_> = log.iter().filter(|request| is_set(request)).collect();
    assert_eq!(heals.len(), 1, "{heals:?}");
    let heal = heals[0];
    let words: Vec<_> = heal.args.iter().map(Vec::as_slice).collect();
    assert_eq!(words[1..4], [b"a", guard.token().as_bytes(), b"NX"]);
    let proof = log
        .iter()
        .rfind(|request| request.seq < heal.seq && is_extension(request))
        .expect("an extension before the heal");
    assert!(heal.at < proof.at + ms(150) + LATE, "healed off a round");
    for index in 0..2 {
        let sets = network.relays[index].log_of("SET");
        assert!(
            sets.is_empty(),
            "a master that has the key was sent {sets:?}"
        );
    }
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

/// A key that somebody else put on a minority is neither taken nor extended, and is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_on_a_minority_is_not_touched() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    let steal = ["SET", "a", "thief", "PX", "60000"];
    network[2].command(&steal).unwrap();
    let watch = Stopwatch::start();
    network.clear_logs();
    let early = tokio::time::timeout(TTL * 2, guard.lost()).await;
    assert!(early.is_err(), "lost with a quorum: {early:?}");
    let left = network[2].pttl("a").unwrap();
    assert!(
        left + watch.elapsed() <= ms(60_000) + LATE,
        "extended to {left:?}"
    );
    assert!(network.sent(is_set).is_empty(), "healed over a foreign key");
    assert!(network.sent(is_extension).len() >= 9, "it was not extended");
    let_go(&guard).await;
    assert!(eventually(SOON, || network.holders("a") == [2]));
    assert_eq!(network[2].get("a").unwrap(), b"thief");
}

/// Only where less is left is more given: neither keys nor the validity come nearer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_never_brings_an_expiry_nearer() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let lock = redlock.lock("a").ttl(ms(20_000)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    network.await_everywhere("a");
    network[2].command(&["PEXPIRE", "a", "2000"]).unwrap();
    let (watch, before) = (Stopwatch::start(), guard.remaining());
    let answer = guard.extend(ms(4_000)).await.unwrap();
    let after = guard.remaining() + watch.elapsed();
    assert!(answer > ms(19_000), "the caller was told {answer:?}");
    assert!(after + ms(1) >= before, "{before:?} became {after:?}");
    for server in &network[..2] {
        let left = server.pttl("a").unwrap() + watch.elapsed();
        assert!(left > ms(19_500), "brought down to {left:?}");
    }
    let third = network[2].pttl("a").unwrap() + watch.elapsed();
    assert!(third >= ms(4_000) && third < ms(6_000), "left at {third:?}");
    let_go(&guard).await;
    network.assert_no_key("a", SOON);
}

/// A heal that is held on its way does not outlive the lock: its undo follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heal_that_is_under_way_does_not_survive_the_release() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(ms(20_000)).acquire().await.unwrap();
    network.await_everywhere("a");
    network[2].command(&["DEL", "a"]).unwrap();
    let monitor = network[2].monitor().unwrap();
    let third = &network.relays[2];
    third.clear_log();
    // Its answer, that the key is missing, comes when what follows it is held.
    third.answers(Rule::Delay(ms(60)));
    guard.extend(ms(20_000)).await.unwrap();
    assert!(third.wait_for(SOON, is_extension).is_some());
    third.requests(Rule::Hold);
    assert!(third.wait_for(SOON, is_set).is_some(), "nothing was healed");
    let_go(&guard).await;
    pause(ms(100));
    assert!(monitor.lines_of("SET").is_empty(), "it was not held");
    third.heal();
    assert!(eventually(SOON, || !monitor.lines_of("SET").is_empty()));
    network.assert_no_key("a", ms(150));
    pause(ms(300));
    network.assert_no_key("a", Duration::ZERO);
}
