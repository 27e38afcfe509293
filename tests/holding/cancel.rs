//! Acquisitions dropped at any poll: no key, no task, no mixed-up answer (cases 9, 23).

use crate::support::{Draw, Network, SOON, drop_after, let_go, ms};
use quorumlock::{ErrorKind, Redlock, Released};
use quorumlock_masters::{Fleet, Rule, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

async fn connect(fleet: &Fleet) -> Redlock {
    let redlock = Redlock::builder()
        .masters(fleet.urls())
        .retry(ms(1), ms(1))
        .connect();
    redlock.await.unwrap()
}

/// Holds and lets go, again and again, so that whoever else asks meets every state.
async fn rival(redlock: Redlock, stop: Arc<AtomicBool>, seed: u64) {
    let mut draw = Draw(seed);
    while !stop.load(Ordering::SeqCst) {
        let guard = redlock.lock("a").acquire().await.unwrap();
        let hold = [0, 0, 1, 5, 40, 90][usize::try_from(draw.below(6)).unwrap()];
        tokio::time::sleep(ms(hold)).await;
        drop(guard);
        tokio::time::sleep(ms(draw.below(3))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_09_dropped_after_any_number_of_polls_under_contention() {
    let fleet = Fleet::start(3);
    let (redlock, other) = (connect(&fleet).await, connect(&fleet).await);
    for handle in [&redlock, &other] {
        handle
            .lock("warm")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let stop = Arc::new(AtomicBool::new(false));
    let rivals: Vec<_> = (0..3)
        .map(|seed| tokio::spawn(rival(other.clone(), Arc::clone(&stop), seed)))
        .collect();
    let lanes: Vec<_> = (0..4)
        .map(|lane| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                let (mut dropped, mut late, mut won) = (0, 0, 0);
                for polls in (1..=200).filter(|polls| polls % 4 == lane) {
                    match drop_after(polls, redlock.lock("a").acquire()).await {
                        None => {
                            dropped += 1;
                            late += u32::from(polls > 100);
                        }
                        Some(guard) => {
                            won += 1;
                            let released = guard.unwrap().release().await.unwrap();
                            assert_eq!(released, Released::WasOurs);
                        }
                    }
                }
                (dropped, late, won)
            })
        })
        .collect();
    let (mut dropped, mut late, mut won) = (0, 0, 0);
    for lane in lanes {
        let lane = tokio::time::timeout(ms(120_000), lane).await;
        let counts = lane.expect("blocked by a key that was left").unwrap();
        (dropped, late, won) = (dropped + counts.0, late + counts.1, won + counts.2);
    }
    stop.store(true, Ordering::SeqCst);
    for rival in rivals {
        rival.await.unwrap();
    }
    fleet.assert_no_key("a", ms(500));
    assert!(
        dropped >= 20 && late >= 3 && won >= 10,
        "{dropped} {late} {won}"
    );
    assert!(
        eventually(SOON, || alive() <= before),
        "{} tasks became {}",
        before,
        alive()
    );
}

/// The same with nobody in the way and answers one by one, so that early polls differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_09_dropped_after_each_of_the_first_polls() {
    let network = Network::start(3);
    let redlock = network.connect().await;
    for (number, relay) in (2..).zip(&network.relays) {
        relay.requests(Rule::Delay(ms(number * 2)));
        relay.answers(Rule::Delay(ms(number)));
    }
    let (mut dropped, mut won) = (0, 0);
    for polls in 1..=12 {
        match drop_after(polls, redlock.lock("a").acquire()).await {
            None => dropped += 1,
            Some(guard) => {
                won += 1;
                drop(guard.unwrap());
            }
        }
        network.assert_no_key("a", ms(500));
    }
    assert!(dropped >= 1 && won >= 2, "{dropped} dropped, {won} won");
    tokio::time::sleep(ms(100)).await;
    network.assert_no_key("a", Duration::ZERO);
}

/// One client's dropped futures, its next requests, and somebody else's lock, all at once.
async fn drops(redlock: Redlock, fleet: Arc<Fleet>, lane: u64) -> u32 {
    let mut draw = Draw(23 + lane);
    let own = format!("own{lane}");
    let mut dropped = 0;
    for round in 0..250 {
        let acquiring = redlock.lock(&own).acquire();
        let outcome = if draw.below(2) == 0 {
            drop_after(1 + draw.below(6), acquiring).await
        } else {
            let patience = Duration::from_micros(draw.below(2_500));
            tokio::time::timeout(patience, acquiring).await.ok()
        };
        dropped += u32::from(outcome.is_none());
        drop(outcome);
        let taken = drop_after(1 + draw.below(4), redlock.lock("taken").try_acquire()).await;
        if let Some(taken) = taken {
            assert_eq!(taken.unwrap_err().kind(), ErrorKind::Held, "round {round}");
        }
        let guard = redlock.lock(&own).try_acquire().await;
        assert!(
            guard.is_ok(),
            "round {round}: refused by its own past: {guard:?}"
        );
        let guard = guard.unwrap();
        if round % 25 == 0 {
            let (fleet, key, token) = (Arc::clone(&fleet), own.clone(), guard.token().to_owned());
            let look = move || {
                let ours = |server: &quorumlock_masters::Server| {
                    server.get(&key).as_deref() == Some(token.as_bytes())
                };
                eventually(SOON, || {
                    fleet.iter().filter(|server| ours(server)).count() == 3
                })
            };
            let ours = tokio::task::spawn_blocking(look).await.unwrap();
            assert!(ours, "round {round}: granted by somebody else's answer");
        }
        let error = redlock.lock("taken").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "round {round}: {error}");
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    }
    dropped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_23_a_thousand_drops_mix_up_no_answers() {
    let fleet = Arc::new(Fleet::start(3));
    let (redlock, holder) = (connect(&fleet).await, connect(&fleet).await);
    let taken = holder.lock("taken").acquire().await.unwrap();
    let everywhere = || fleet.holders("taken").len() == 3;
    assert!(eventually(SOON, everywhere));
    let lanes: Vec<_> = (0..4)
        .map(|lane| tokio::spawn(drops(redlock.clone(), Arc::clone(&fleet), lane)))
        .collect();
    let mut dropped = 0;
    for lane in lanes {
        dropped += lane.await.unwrap();
    }
    assert!(dropped > 100, "only {dropped} were dropped on their way");
    assert!(taken.is_held());
    for server in fleet.iter() {
        assert_eq!(server.get("taken").unwrap(), taken.token().as_bytes());
    }
    let_go(&taken).await;
    let gone = eventually(SOON, || fleet.total_keys() == 0);
    assert!(gone, "left: {:?}", fleet[0].keys());
}
