//! Masters to lock on: real servers, a relay that spoils the network, and a scripted master.
//!
//! Everything here blocks and needs no async runtime, so it serves tests of any kind, also while their own runtime is
//! stuck. It knows nothing of locks, tokens or quorums: it starts servers, breaks them, and says what they were sent.
//!
//! * [`Server`] and [`Fleet`]: processes of the caller's own, in their own folders, gone when dropped;
//! * [`Relay`]: a TCP proxy that delays, holds, drops and cuts, and logs each request;
//! * [`ScriptedMaster`]: a listener that speaks RESP and answers what it was told to;
//! * [`local`]: throwaway masters that outlive the process that started them.
//!
//! ```no_run
//! use quorumlock_masters::{Fleet, Relay, Rule};
//! use std::time::Duration;
//!
//! let fleet = Fleet::start(3);
//! let relay = Relay::to(fleet[2].address());
//! relay.answers(Rule::Delay(Duration::from_millis(150)));
//! fleet[0].pause();
//! let urls = [fleet[0].url(), fleet[1].url(), relay.url()];
//! # drop(urls);
//! fleet[0].resume();
//! fleet.assert_no_key("payment:4821", Duration::from_millis(500));
//! ```
//!
//! Invariants
//! 1. No process started by [`Server`] outlives the process that started it, not even when that one is killed.
//! 2. No call waits without an end: every wait has a deadline, and its failure says what was waited for.
//! 3. Keys, values and commands are bytes, any bytes.

mod clock;
mod fleet;
pub mod local;
mod log;
mod monitor;
mod ports;
mod process;
mod program;
mod relay;
mod resp;
mod scripted;
mod server;
mod start;
mod wire;

pub use clock::{Stopwatch, eventually, pause};
pub use fleet::Fleet;
pub use log::Request;
pub use monitor::Monitor;
pub use program::Flavour;
pub use relay::{Close, Connections, Relay, Rule};
pub use resp::{CommandParser, Reply};
pub use scripted::{
    ConnectFault, Fault, FaultRule, RuleId, ScriptCall, ScriptedMaster, Store, WRONG_TYPE,
};
pub use server::Server;
pub use start::{ServerBuilder, StartError, TlsFiles};
pub use wire::{CommandError, Wire};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a thread panicked while holding it: a failing test must still clean up.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a test with what went wrong; for the calls whose documentation says that they panic.
#[track_caller]
#[expect(
    clippy::panic,
    reason = "a harness call that cannot do its work fails its test; each such call documents it"
)]
pub(crate) fn fail(why: &str) -> ! {
    panic!("{why}")
}
