//! Locks of other libraries on the same keys exclude ours, and ours exclude theirs: redis-py's
//! `Lock` on one master (`python.rs`), and the crate rslock on the same masters (`rust.rs`).
//!
//! Both directions, also across extensions, releases and releases that come too late.
#![cfg(feature = "client")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what is not as expected fails the test"
)]

mod python;
mod rust;

use quorumlock::{Redlock, Verdict};
use std::time::Duration;

/// How long something that is under way may take on a busy machine.
const SOON: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Somebody else holds it, as a single try of ours sees it.
async fn assert_excluded(client: &Redlock, resource: &str) {
    let error = client
        .lock(resource)
        .ttl(TTL)
        .try_acquire()
        .await
        .unwrap_err();
    assert!(error.is_held() && error.failed() == 0, "{error}");
}

/// The token that a quorum has.
async fn holder(client: &Redlock, resource: &str) -> Vec<u8> {
    match client.status(resource).await.unwrap().verdict() {
        Verdict::Held { token, .. } => token,
        other => panic!("{other:?}"),
    }
}
