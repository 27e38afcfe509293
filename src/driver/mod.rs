//! Floor 2, the driver: moves data between a machine, N masters and a timer; decides nothing.
//!
//! It is the only reader of the clock and the only source of randomness. Fan-out, deadlines,
//! connections and cancellation (R9) live here.
//!
//! Invariants:
//! 1. Whatever was sent is undone or held by somebody: every round has an owner whose drop hands
//!    what is unfinished to the lanes, which outlive the caller.
//! 2. Two lanes lead to each master, the *home* lane in the application's runtime and the
//!    *service* lane in our own thread. Per resource, a SET and its undo share a lane; a SET on
//!    one lane is not sent while an undo of the same key is unanswered on the other (R21).

mod attempt;
pub(crate) mod clock;
mod extension;
mod inspect;
mod pool;
pub(crate) mod random;
mod release;
mod supervise;
mod sweep;

pub(crate) use attempt::{AFTERLIFE, Attempt, Granted, Order, Refusal, late_grant};
pub(crate) use extension::{Extending, HealGate};
pub(crate) use inspect::{KeyFound, look};
pub(crate) use pool::{Answer, Pool, Route, Settings};
pub(crate) use release::{Held, Releasing, force, in_background, release};
pub(crate) use supervise::supervise;
pub(crate) use sweep::{drain, left, sweep};
