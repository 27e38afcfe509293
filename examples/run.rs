//! The usual way: work under a lock, extended while it runs, cancelled if the lock is lost.
//!
//! `eval "$(quorumlock masters start)"`, then `cargo run --example run`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use quorumlock::{Held, Redlock};
use std::time::Duration;

#[derive(Debug)]
struct Receipt(u32);

async fn charge(held: Held) -> Result<Receipt, std::io::Error> {
    // Between two steps a look costs nothing; a pause after it is what no look can rule out.
    assert!(held.is_held());
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(Receipt(4821))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::var("QUORUMLOCK_MASTERS")?;
    let redlock = Redlock::connect(masters.split(',')).await?;

    let wait = Duration::from_secs(5);
    let receipt = redlock
        .lock("payment:4821")
        .wait(wait)
        .run(charge)
        .await??;
    println!("charged once: receipt {}", receipt.0);

    // Before the process ends: what is still under way arrives.
    let left = redlock.close(Duration::from_secs(1)).await;
    println!("{} deletes left", left.deletes());
    Ok(())
}
