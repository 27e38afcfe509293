//! A held lock under faults: extension, loss, cancelled work, release, rollback, hand-over.
//!
//! Each test starts masters of its own, most of them behind relays that delay, hold, lose or cut
//! one direction. What is bounded in time is bounded with room for a slow and busy machine; the
//! tests that need quiet are in `tests/latency`.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails its test"
)]

mod adopt;
mod cancel;
mod close;
mod dropping;
mod heal;
mod loss;
mod mixed;
mod race;
mod release;
mod rollback;
mod stolen;
mod support;
mod watchdog;
mod work;
