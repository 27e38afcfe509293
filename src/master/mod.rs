//! Floor 1, one master: its address, its connection, its commands, and what a fault means.
//!
//! It knows nothing of quorums or other masters: requests go in, votes and answers come out.

mod address;
mod commands;
mod connect;
mod debts;
mod fault;
mod lane;
mod link;
mod reply;
mod stall;

pub use address::MasterAddress;
pub(crate) use address::same_place;
pub(crate) use commands::{Abilities, Deletes, Key, ask, delete, extend, parse, set};
pub(crate) use connect::{Connected, Identity, connect};
pub(crate) use debts::{Heard, Undo};
pub use fault::{Fault, FaultKind};
pub(crate) use lane::{Lane, Need};
pub(crate) use reply::Reply;
