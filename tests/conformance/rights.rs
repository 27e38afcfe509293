//! The least rights of an ACL user, and what is told where one of them is missing.
//!
//! `SET` acquires and heals; `EVAL` extends and releases, and the scripts use `GET`, `PTTL`,
//! `PEXPIRE` and `DEL`. Nothing else is needed: `INFO`, `SELECT` (for database 0), `CLIENT`,
//! `DELIFEQ` and `DELEX` may be forbidden, and the keys may be bounded by a pattern.

use crate::site::{Site, say};
use crate::steps;
use quorumlock::{Answer, Error, FaultKind};
use quorumlock_masters::Flavour;
use std::time::Duration;

const LEAST: [&str; 6] = ["+set", "+get", "+pttl", "+pexpire", "+del", "+eval"];
const TTL: Duration = Duration::from_secs(10);

/// Servers on which the user `worker` has these rights, on keys that begin with `locks:`.
fn site(flavour: &Flavour, size: usize, rights: &[&str]) -> Site {
    let user = [
        "ACL", "SETUSER", "worker", "reset", "on", ">secret", "~locks:*", "-@all",
    ];
    let words: Vec<&str> = user.iter().chain(rights).copied().collect();
    Site::servers(flavour, size)
        .after(&words)
        .by("least rights", |server| {
            format!("redis://worker:secret@{}", server.address())
        })
        .prefixed("locks:")
}

fn flavours() -> Vec<Flavour> {
    let found = Flavour::all_available();
    for flavour in [Flavour::Redis, Flavour::Redis8, Flavour::Valkey9] {
        if !found.contains(&flavour) {
            say(&format!(
                "conformance: {flavour:?} cannot be had here; its rights did not run"
            ));
        }
    }
    found
}

#[tokio::test]
async fn conformance_with_the_least_rights() {
    for flavour in flavours() {
        steps::run(&site(&flavour, 3, &LEAST)).await;
    }
}

/// Every failed master's fault.
fn faults(error: &Error) -> Vec<FaultKind> {
    let failed = error
        .masters()
        .iter()
        .filter_map(|master| match master.answer() {
            Answer::Failed(fault) => Some(fault.kind()),
            _ => None,
        });
    failed.collect()
}

/// Each right is needed: without it something fails, and the error says that a right is missing.
#[tokio::test]
async fn case_36_each_of_the_least_rights_is_needed_and_missed_by_name() {
    for flavour in flavours() {
        for missing in LEAST {
            let rights: Vec<&str> = LEAST
                .into_iter()
                .filter(|right| *right != missing)
                .collect();
            let site = site(&flavour, 1, &rights);
            let error = first_error(&site).await;
            let told = faults(&error);
            assert!(
                !told.is_empty() && told.iter().all(|kind| *kind == FaultKind::NoPermission),
                "{flavour:?} without {missing}: {told:?}, {error}"
            );
            site.delete(site.all(), "a");
        }
    }
}

/// Acquires, extends a lock whose key is about to expire, and releases, until something fails.
async fn first_error(site: &Site) -> Error {
    let client = site.client().await;
    let guard = match client.lock("a").ttl(TTL).without_watchdog().acquire().await {
        Ok(guard) => guard,
        Err(error) => return error,
    };
    site.call(0, &[b"PEXPIRE".as_slice(), &site.key("a"), b"5000"]);
    if let Err(error) = guard.extend(TTL).await {
        return error;
    }
    guard
        .release()
        .await
        .expect_err("every right is needed for something")
}

/// Keys outside the user's pattern are told as a missing right too, at once.
#[tokio::test]
async fn case_36_keys_outside_the_pattern_end_the_wait() {
    for flavour in flavours() {
        let site = site(&flavour, 3, &LEAST).prefixed("others:");
        let client = site.client().await;
        let error = client.lock("a").ttl(TTL).acquire().await.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        assert!(
            faults(&error)
                .iter()
                .all(|kind| *kind == FaultKind::NoPermission),
            "{error}"
        );
        assert!(site.keys().is_empty());
    }
}
