//! Redlock over N independent Redis or Valkey masters.

pub mod quorum;

#[cfg(feature = "client")]
mod driver;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod lock;
#[cfg(feature = "client")]
mod master;

#[cfg(feature = "client")]
pub use error::{Answer, Error, ErrorKind, MasterAnswer};
#[cfg(feature = "client")]
pub use lock::{
    Builder, Guard, Held, KeyState, Lock, MasterStatus, Parts, Redlock, Released, Remaining,
    RunError, Status, Verdict,
};
#[cfg(feature = "client")]
pub use master::{Fault, FaultKind, MasterAddress};
#[cfg(feature = "client")]
pub use quorum::{BadInput, Loss};
