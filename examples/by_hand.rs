//! By hand: acquire, watch for loss, extend, hand over to another handle, release.
//!
//! `eval "$(quorumlock masters start)"`, then `cargo run --example by_hand`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use quorumlock::{Redlock, Released};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::var("QUORUMLOCK_MASTERS")?;
    let redlock = Redlock::connect(masters.split(',')).await?;

    let guard = redlock
        .lock("report:nightly")
        .ttl(Duration::from_secs(30))
        .acquire()
        .await?;
    match redlock.lock("report:nightly").try_acquire().await {
        Err(error) if error.is_held() => println!("somebody else would wait"),
        other => println!("unexpected: {other:?}"),
    }

    tokio::select! {
        loss = guard.lost() => println!("stop at once: {loss}"),
        () = tokio::time::sleep(Duration::from_millis(20)) => println!("the work is done"),
    }
    assert!(guard.extend(Duration::from_secs(40)).await? >= Duration::from_secs(40));

    // Handed over: the parts are plain data, and whoever adopts them must prove the lock first.
    let parts = guard.into_parts();
    let guard = redlock.adopt(parts).await?;
    if guard.release().await? == Released::WasOurs {
        println!("released");
    }
    Ok(())
}
