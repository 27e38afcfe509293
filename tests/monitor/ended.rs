//! Relays with changing delays: no SET, extension or heal is sent for what has ended.
//!
//! On one connection the order is exact: nothing of a token but further deletes comes behind its
//! first delete. Over two connections the relay may see what was sent first a moment later, so
//! there something counts as sent afterwards when it comes more than [`SLACK`] after the end.

use crate::{Deed, Dice, deed, eventually, ms, token, words_of};
use quorumlock::{Guard, Redlock};
use quorumlock_masters::{Fleet, Relay, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SLACK: Duration = Duration::from_millis(250);
/// The watchdog's period is 300 ms: one that went on after the end is seen beyond the slack.
const TTL: Duration = Duration::from_millis(900);

struct Site {
    fleet: Fleet,
    relays: Vec<Relay>,
}

impl Site {
    fn start(size: usize) -> Self {
        let fleet = Fleet::start(size);
        let relays = fleet
            .iter()
            .map(|server| Relay::to(server.address()))
            .collect();
        Self { fleet, relays }
    }

    async fn client(&self) -> Redlock {
        let client = Redlock::connect(self.relays.iter().map(Relay::url))
            .await
            .unwrap();
        assert_eq!(
            client.status("k").await.unwrap().answered(),
            self.relays.len()
        );
        client
    }

    /// Changes the delay of one direction of one relay.
    fn shake(&self, dice: &mut Dice, most_ms: u64) {
        let relay = &self.relays[usize::try_from(dice.below(3)).unwrap() % self.relays.len()];
        let rule = Rule::Delay(ms(dice.below(most_ms)));
        if dice.below(2) == 0 {
            relay.requests(rule);
        } else {
            relay.answers(rule);
        }
    }

    fn now(&self) -> Vec<Duration> {
        self.relays.iter().map(Relay::elapsed).collect()
    }

    /// What each relay saw of each token, in order.
    fn seen(&self) -> Vec<BTreeMap<String, Vec<Seen>>> {
        self.relays
            .iter()
            .map(|relay| {
                let mut tokens: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
                for request in relay.log() {
                    let words = words_of(&request);
                    if let Some(deed) = deed(&words) {
                        let seen = Seen {
                            deed,
                            connection: request.connection,
                            at: request.at,
                        };
                        tokens
                            .entry(token(&words).to_owned())
                            .or_default()
                            .push(seen);
                    }
                }
                tokens
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    deed: Deed,
    connection: u64,
    at: Duration,
}

/// Behind the first delete on a connection only deletes follow there.
fn assert_order(token: &str, seen: &[Seen]) {
    let mut deleting = Vec::new();
    for part in seen {
        if part.deed == Deed::Delete {
            deleting.push(part.connection);
        } else {
            assert!(!deleting.contains(&part.connection), "{token}: {seen:#?}");
        }
    }
}

/// Attempts are dropped, time out, win or lose at any moment: each SET has its delete behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_09_case_23_no_set_follows_the_end_of_its_attempt() {
    let site = Site::start(3);
    let client = site.client().await;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut won, mut dropped) = (0, 0);
    for round in 0..400_u64 {
        if round % 20 == 0 {
            site.shake(&mut dice, 12);
        }
        let lock = client
            .lock(format!("k{}", round % 3))
            .ttl(TTL)
            .without_watchdog();
        let patience = Duration::from_micros(dice.below(20_000));
        match tokio::time::timeout(patience, lock.acquire()).await {
            Ok(guard) => {
                won += 1;
                drop(guard.unwrap());
            }
            Err(_) => dropped += 1,
        }
    }
    site.relays.iter().for_each(Relay::heal);
    assert!(client.close(ms(5_000)).await.is_empty());
    assert!(won > 20 && dropped > 20, "{won} won, {dropped} dropped");
    let mut sets = 0;
    for tokens in site.seen() {
        for (token, seen) in tokens {
            assert_order(&token, &seen);
            let count = |deed| seen.iter().filter(|part| part.deed == deed).count();
            assert!(count(Deed::Set) <= 1, "{token}: {seen:#?}");
            assert!(
                count(Deed::Delete) >= count(Deed::Set),
                "{token}: {seen:#?}"
            );
            sets += count(Deed::Set);
        }
    }
    assert!(sets > 100, "{sets}");
    assert_eq!(site.fleet.total_keys(), 0);
}

/// One hold that ended: its token, and when that was on each relay's clock.
struct Ended {
    token: String,
    at: Vec<Duration>,
}

/// Holds that are extended and healed by the watchdog and by hand, and let go at any moment.
async fn holds(site: &Site, client: &Redlock, resource: &str, mut dice: Dice) -> Vec<Ended> {
    let mut ended = Vec::new();
    for _ in 0..8 {
        let guard = client.lock(resource).ttl(TTL).acquire().await.unwrap();
        tokio::time::sleep(ms(dice.below(700))).await;
        // Gone from one master: what comes next heals it.
        let server = &site.fleet[usize::try_from(dice.below(3)).unwrap()];
        server.command(&["DEL", resource]).unwrap();
        if dice.below(2) == 0 {
            // Dropped in mid-extension, or through with it: the lock may be lost meanwhile.
            drop(tokio::time::timeout(ms(dice.below(200)), guard.extend(TTL)).await);
        }
        tokio::time::sleep(ms(dice.below(350))).await;
        ended.push(let_go(site, guard, &mut dice).await);
    }
    ended
}

/// Lets go by release, by a release that is dropped, or by drop.
async fn let_go(site: &Site, guard: Guard, dice: &mut Dice) -> Ended {
    let token = guard.token().to_owned();
    match dice.below(3) {
        0 => drop(guard.release().await),
        1 => drop(tokio::time::timeout(ms(dice.below(20)), guard.release()).await),
        _ => {}
    }
    drop(guard);
    Ended {
        token,
        at: site.now(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_no_extension_and_no_heal_follows_the_end_of_its_hold() {
    let site = Arc::new(Site::start(3));
    let client = site.client().await;
    let tasks: Vec<_> = (1..=6_u64)
        .map(|task| {
            let (site, client) = (Arc::clone(&site), client.clone());
            tokio::spawn(async move {
                let dice = Dice(0x2545_f491_4f6c_dd1d * task);
                holds(&site, &client, &format!("k{task}"), dice).await
            })
        })
        .collect();
    let mut dice = Dice(0xdead_beef_cafe_f00d);
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        site.shake(&mut dice, 40);
        tokio::time::sleep(ms(40)).await;
    }
    let mut ended = Vec::new();
    for task in tasks {
        ended.extend(task.await.unwrap());
    }
    site.relays.iter().for_each(Relay::heal);
    assert!(
        eventually(|| site.fleet.total_keys() == 0).await,
        "left behind"
    );
    let quiet = site.now();
    // Five periods of a watchdog that would have gone on.
    tokio::time::sleep(TTL / 3 * 5).await;
    assert_nothing_after(&site, &ended, &quiet);
    assert_eq!(site.fleet.total_keys(), 0);
    assert!(client.close(ms(3_000)).await.is_empty());
}

fn assert_nothing_after(site: &Site, ended: &[Ended], quiet: &[Duration]) {
    let (mut extensions, mut heals) = (0, 0);
    for (relay, tokens) in site.seen().into_iter().enumerate() {
        for Ended { token, at } in ended {
            let seen = tokens.get(token).map(Vec::as_slice).unwrap_or_default();
            assert_order(token, seen);
            for part in seen.iter().filter(|part| part.deed != Deed::Delete) {
                let late = part.at.saturating_sub(at[relay]);
                assert!(
                    late <= SLACK,
                    "{late:?} after the end of {token}: {part:?} in {seen:#?}"
                );
            }
            let count = |deed| seen.iter().filter(|part| part.deed == deed).count();
            extensions += count(Deed::Extend);
            heals += count(Deed::Set).saturating_sub(1);
        }
        let after = |part: &&Seen| part.at > quiet[relay] + SLACK;
        let late: Vec<_> = tokens.values().flatten().filter(after).collect();
        assert!(
            late.is_empty(),
            "something was sent long after the last end: {late:#?}"
        );
    }
    assert!(
        extensions > 50 && heals > 5,
        "{extensions} extensions, {heals} heals"
    );
}
