//! One list of steps in the life of a lock, run on every kind of master: Redis 7, Redis 8, Valkey 9
//! and scripted masters that imitate each; with one, three and five of them; and through every
//! way of reaching them (`access.rs`).
//!
//! A server that cannot be had here is not tested, and the run says so. `tests/servers/install`
//! shows how the newer ones can be had.
//!
//! What each master must allow at least is in `rights.rs`.
#![cfg(feature = "client")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what is not as expected fails the test"
)]

mod access;
mod holding;
mod letting_go;
mod rights;
mod site;
mod steps;
mod telling;

use quorumlock_masters::Flavour;
use site::{Imitation, Site, say};

/// The sizes of deployment that every kind of master is tried in: without a minority, with one of
/// one, and with one of two.
const SIZES: [usize; 3] = [1, 3, 5];

/// All steps on all sizes of deployment of one kind of server.
async fn on_servers(flavour: Flavour) {
    if flavour.available().is_none() {
        say(&format!(
            "conformance: {flavour:?} cannot be had here; its steps did not run"
        ));
        return;
    }
    for size in SIZES {
        let site = Site::servers(&flavour, size);
        steps::run(&site).await;
    }
}

async fn on_imitations(imitation: Imitation) {
    for size in SIZES {
        steps::run(&Site::scripted(imitation, size)).await;
    }
}

#[tokio::test]
async fn conformance_of_redis_7() {
    on_servers(Flavour::Redis).await;
}

#[tokio::test]
async fn conformance_of_redis_8() {
    on_servers(Flavour::Redis8).await;
}

#[tokio::test]
async fn conformance_of_valkey_9() {
    on_servers(Flavour::Valkey9).await;
}

#[tokio::test]
async fn conformance_of_scripted_masters_with_scripts() {
    on_imitations(Imitation::Redis7).await;
}

/// A server with `DELEX`, which the Redis 8 that can be had may be too old for.
#[tokio::test]
async fn conformance_of_scripted_masters_with_delex() {
    on_imitations(Imitation::Redis84).await;
}

#[tokio::test]
async fn conformance_of_scripted_masters_with_delifeq() {
    on_imitations(Imitation::Valkey9).await;
}
