//! Properties of floor 0, over drawn settings, delays and event orders in virtual time.
//!
//! No server, no runtime, no clock: only `quorumlock::quorum`, so they also run without default
//! features. The draw is the same in every run; to search further, draw otherwise and more:
//!
//! ```text
//! PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test --test properties
//! ```
//!
//! Each machine is compared with a model that counts by hand, and with what must hold whatever
//! happens. What a machine must *be able* to do is counted too, so that no claim holds for want of
//! trying.

mod acquire;
mod arithmetic;
mod drawn;
mod extend;
mod hold;
mod input;
mod release;
mod tally;
mod waiting;
