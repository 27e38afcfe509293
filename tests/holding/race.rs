//! A release races an extension (case 8): whatever arrives when, no key and no command is left.

use crate::support::{Draw, Network, SOON, is_delete, is_extension, is_set, ms};
use quorumlock::{Redlock, Released};
use quorumlock_masters::{Rule, Stopwatch, pause};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SEED: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_release_while_the_extension_is_answered_late() {
    const TTL: Duration = ms(1_500);
    let network = Network::start(3);
    let redlock = network.connect().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    // The first extension passes; the second is answered late.
    network.all_were_sent(SOON, is_extension);
    network.clear_logs();
    network.answers(Rule::Hold);
    let held_since = Stopwatch::start();
    network.all_were_sent(SOON, is_extension);
    tokio::time::sleep(ms(50)).await;
    let ended = network.relays.iter().map(|relay| relay.elapsed());
    let ended: Vec<_> = ended.collect();
    // Its answers are held, too: it cannot be confirmed, and is asked for again below.
    guard.release().await.unwrap_err();
    network.assert_no_key("a", ms(400));
    tokio::time::sleep(ms(300).saturating_sub(held_since.elapsed())).await;
    network.heal();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    network.assert_no_key("a", Duration::ZERO);
    drop(guard);
    pause(ms(300));
    for (relay, ended) in network.relays.iter().zip(ended) {
        let late = |request: &quorumlock_masters::Request| {
            request.at > ended && (is_set(request) || is_extension(request))
        };
        let late: Vec<_> = relay.log().into_iter().filter(late).collect();
        assert!(late.is_empty(), "after the release: {late:?}");
    }
    network.clear_logs();
    pause(TTL / 3 * 5);
    let sent = network.sent(|_| true);
    assert!(sent.is_empty(), "a released lock still sends {sent:?}");
    network.assert_no_key("a", Duration::ZERO);
}

/// Changes the delays of all directions every few milliseconds, until told to stop.
fn unrest(network: &Arc<Network>, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (network, stop) = (Arc::clone(network), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut draw = Draw(SEED);
        while !stop.load(Ordering::SeqCst) {
            for relay in &network.relays {
                relay.requests(Rule::Delay(ms(draw.below(12))));
                relay.answers(Rule::Delay(ms(draw.below(25))));
            }
            pause(ms(3));
        }
        network.heal();
    })
}

/// One lock whose end meets its extension: by the watchdog, or by hand.
async fn meet(redlock: Redlock, network: Arc<Network>, key: String, seed: u64) -> bool {
    const TTL: Duration = ms(1_800);
    let mut draw = Draw(seed);
    let by_hand = draw.below(2) == 0;
    let lock = redlock.lock(&key).ttl(TTL);
    let lock = if by_hand {
        lock.without_watchdog()
    } else {
        lock
    };
    let Ok(guard) = lock.wait(ms(3_000)).acquire().await else {
        return false;
    };
    if draw.below(3) == 0 {
        // A key that is gone on one master puts a heal into the race.
        let server = usize::try_from(draw.below(3)).unwrap();
        let delete = move || network[server].command(&["DEL", &key]).map(drop);
        tokio::task::spawn_blocking(delete).await.unwrap().unwrap();
    }
    tokio::time::sleep(ms(550 + draw.below(100))).await;
    let extend = async {
        if by_hand {
            tokio::time::sleep(ms(draw.below(15))).await;
            drop(guard.extend(TTL * 2).await);
        }
    };
    let release = async {
        tokio::time::sleep(ms(Draw(seed + 1).below(30))).await;
        if !seed.is_multiple_of(3) {
            drop(guard.release().await);
        }
    };
    tokio::join!(extend, release);
    drop(guard);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_two_thousand_releases_race_extensions() {
    const BATCH: u64 = 200;
    let network = Arc::new(Network::start(3));
    let redlock = network.connect().await;
    let stop = Arc::new(AtomicBool::new(false));
    let unrest = unrest(&network, &stop);
    let (mut draw, mut held) = (Draw(SEED), 0);
    for batch in 0..10 {
        let races: Vec<_> = (0..BATCH)
            .map(|number| {
                let key = format!("a{batch}-{number}");
                let (redlock, network) = (redlock.clone(), Arc::clone(&network));
                tokio::spawn(meet(redlock, network, key, draw.next() >> 1))
            })
            .collect();
        for race in races {
            held += u64::from(race.await.unwrap());
        }
        // What was extended or healed last still has a second and more.
        let gone = quorumlock_masters::eventually(ms(800), || network.total_keys() == 0);
        assert!(gone, "batch {batch}: left {:?}", network[0].keys());
    }
    stop.store(true, Ordering::SeqCst);
    unrest.join().unwrap();
    assert!(held >= 10 * BATCH * 9 / 10, "only {held} locks were held");
    pause(ms(500));
    nothing_is_created_behind_its_undo(&network);
    network.clear_logs();
    pause(ms(1_500));
    let sent = network.sent(|_| true);
    assert!(sent.is_empty(), "still sends {sent:?}");
    assert_eq!(network.total_keys(), 0);
}

/// On each connection the last word about a token is its delete.
fn nothing_is_created_behind_its_undo(network: &Network) {
    let (mut extended, mut healed) = (0, 0);
    for relay in &network.relays {
        let mut deleted = BTreeSet::new();
        let mut created = BTreeMap::<Vec<u8>, u64>::new();
        for request in relay.log() {
            let place = if is_set(&request) { 2 } else { 4 };
            let Some(token) = request.args.get(place).cloned() else {
                continue;
            };
            if is_delete(&request) {
                deleted.insert((request.connection, token));
            } else if is_set(&request) {
                assert!(
                    !deleted.contains(&(request.connection, token.clone())),
                    "created behind its undo: {}",
                    request.text()
                );
                *created.entry(token).or_default() += 1;
            } else if is_extension(&request) {
                extended += 1;
            }
        }
        healed += created.values().filter(|times| **times > 1).count();
    }
    assert!(extended > 1_000, "only {extended} extensions met a release");
    assert!(healed > 50, "only {healed} heals met a release");
}
