//! Floor 0, the protocol: pure machines and arithmetic that hold every decision of Redlock.
//!
//! **This module may change in any minor release.** It is public so that the laboratory, and
//! anybody who studies Redlock, can run the very machines that ship; applications use the
//! handle, request and guard at the crate's root.
//!
//! What is deliberately absent: I/O, `async`, a clock, a source of randomness. Time comes in as
//! a [`Moment`], random numbers as plain integers; requests and decisions go out.
//!
//! | machine | lives for | decides |
//! |---|---|---|
//! | [`AcquireRound`] | one attempt | granted, refused, too slow, undecided; what must be undone (R6–R10) |
//! | [`ExtendRound`] | one extension | extended, not ours, unsure; what may be healed (R16) |
//! | [`ReleaseRound`] | one release | was ours, no longer ours, unconfirmed (R22) |
//! | [`Waiting`] | one wait | the next pause, or that the wait is over (R11, R14) |
//! | [`Hold`] | one held lock | when to extend, when it is lost (R15–R17) |
//!
//! # Calling order
//! Every machine is made with the present moment, is told what happened through its `handle_*`
//! methods, and is asked through its `poll_*` and getter methods. Rounds:
//!
//! 1. `begin(…, now)` before the first byte is sent: all validity counts from here.
//! 2. For each master either `handle_sent(master)` or a failed vote.
//! 3. `handle_vote(master, vote, now)` as answers come; `handle_time(now)` at `deadline()`.
//! 4. `outcome()` after each of these; once it is `Some` it never changes.
//! 5. `to_undo()` when the round has ended.

mod acquire;
mod extend;
mod hold;
mod input;
mod lease;
mod loss;
mod members;
mod moment;
mod release;
mod retry;
mod tally;
mod token;

pub use acquire::{AcquireOutcome, AcquireRound};
pub use extend::{ExtendOutcome, ExtendRound, Extension};
pub use hold::{Hold, HoldAction};
pub use input::{BadInput, RESERVED_PREFIX, check_key};
pub use lease::{Drift, LONGEST_TIMEOUT, LONGEST_TTL, Lease, SHORTEST_TIMEOUT, Terms};
pub use loss::Loss;
pub use members::{MOST_MASTERS, Members};
pub use moment::Moment;
pub use release::{Deletion, ReleaseOutcome, ReleaseRound};
pub use retry::{Next, Patience, Retry, Waiting};
pub use tally::{Mending, Standing, Tally, Vote, quorum_of};
pub use token::Token;
