//! Loss that is proved: deleted or stolen keys, and what the loser may still send (cases 3, 13).

use crate::support::{LATE, Network, SOON, is_extension, is_set, let_go, ms};
use quorumlock::{ErrorKind, Guard, Loss, RunError};
use quorumlock_masters::{Stopwatch, pause};
use std::time::Duration;

const TTL: Duration = ms(1_500);
const PERIOD: Duration = ms(500);

async fn lost_within_a_period(guard: &Guard) -> Loss {
    let watch = Stopwatch::start();
    let loss = tokio::time::timeout(TTL, guard.lost()).await.unwrap();
    let took = watch.elapsed();
    assert!(took <= PERIOD + LATE, "told only after {took:?}");
    assert!(!guard.is_held());
    loss
}

fn delete_everywhere(network: &Network) {
    for server in network.iter() {
        server.command(&["DEL", "a"]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_03_an_extension_does_not_take_back_what_another_acquired() {
    let network = Network::start(3);
    let (ours, others) = (network.connect().await, network.connect().await);
    let loser = ours.lock("a").ttl(TTL).acquire().await.unwrap();
    network.await_everywhere("a");
    network.clear_logs();
    delete_everywhere(&network);
    let winner = others.lock("a").ttl(TTL).try_acquire().await.unwrap();
    let loss = lost_within_a_period(&loser).await;
    assert!(
        matches!(loss, Loss::NotOurs { missing: 0, foreign } if foreign >= 2),
        "{loss:?}"
    );

    let token = loser.token().to_owned();
    let watch = Stopwatch::start();
    assert_eq!(
        loser.extend(TTL).await.unwrap_err().kind(),
        ErrorKind::Lost,
        "lost is final"
    );
    drop(loser);
    while watch.elapsed() < ms(3_000) {
        for server in network.iter() {
            assert_eq!(server.get("a").unwrap(), winner.token().as_bytes());
        }
        pause(ms(50));
    }
    assert!(winner.is_held(), "lost: {:?}", winner.loss());
    let created = network.sent(|request| is_set(request) && request.mentions(&token));
    assert!(created.is_empty(), "the loser sent {created:?}");
    let_go(&winner).await;
    network.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_03_an_extension_does_not_create_what_was_lost() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    network.await_everywhere("a");
    network.clear_logs();
    delete_everywhere(&network);
    let loss = lost_within_a_period(&guard).await;
    assert!(
        matches!(loss, Loss::NotOurs { missing, foreign: 0 } if missing >= 2),
        "{loss:?}"
    );
    network.clear_logs();
    let watch = Stopwatch::start();
    while watch.elapsed() < PERIOD * 4 {
        assert!(network.holders("a").is_empty());
        pause(ms(25));
    }
    assert_eq!(guard.loss(), Some(loss));
    assert_eq!(guard.extend(TTL).await.unwrap_err().loss(), Some(loss));
    let sent = network.sent(|request| is_set(request) || is_extension(request));
    assert!(sent.is_empty(), "once lost, still sent: {sent:?}");
    drop(guard);
    network.assert_no_key("a", SOON);
}

/// Two of three are stolen, the third still ours: not even there is the loser's key extended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_13_whoever_asks_hears_the_same_once_and_before_the_deadline() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    let run = tokio::spawn(redlock.lock("b").ttl(TTL).run(|_| async {
        std::future::pending::<()>().await;
    }));
    network.await_everywhere("a");
    network.await_everywhere("b");
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let held = guard.held();
            tokio::spawn(async move { (held.lost().await, held.is_held(), held.remaining()) })
        })
        .collect();
    for server in &network[..2] {
        for key in ["a", "b"] {
            let stolen = server.command(&["SET", key, "thief", "PX", "60000"]);
            stolen.unwrap();
        }
    }
    let (watch, left) = (Stopwatch::start(), guard.remaining());
    assert!(guard.is_held(), "nobody can know yet");

    let stolen = Loss::NotOurs {
        missing: 0,
        foreign: 2,
    };
    for watcher in watchers {
        let (loss, is_held, remaining) = watcher.await.unwrap();
        assert_eq!(loss, stolen);
        assert!(!is_held && remaining.is_zero());
    }
    assert!(watch.elapsed() < left, "told after the deadline");
    let Err(RunError::Lost { loss, output: None }) = run.await.unwrap() else {
        panic!("the work was not cancelled");
    };
    assert_eq!(loss, Some(stolen));
    assert!(watch.elapsed() < left, "run ended after the deadline");

    // What the thief does from here on changes nothing for the loser.
    network[0].command(&["DEL", "a"]).unwrap();
    pause(PERIOD * 2);
    assert_eq!(guard.lost().await, stolen, "asked again");
    assert_eq!(guard.extend(TTL).await.unwrap_err().loss(), Some(stolen));
    assert!(network.holders("a").iter().all(|index| *index != 0));
    drop(guard);
    for key in ["a", "b"] {
        let ours_is_gone = quorumlock_masters::eventually(SOON, || !network[2].exists(key));
        assert!(ours_is_gone, "ours is still on the third master");
        assert_eq!(network[1].get(key).unwrap(), b"thief");
    }
    assert_eq!(network[0].get("b").unwrap(), b"thief");
}
