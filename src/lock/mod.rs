//! Floor 3, what a user touches: handle and builder, lock request, guard, watchdog.
//!
//! It turns calls into rounds of the driver and answers into guards and errors; every decision
//! about a lock is the machines' (floor 0).

mod builder;
mod cell;
mod core;
mod guard;
mod handle;
mod held;
mod parts;
mod request;
mod run;
mod status;
mod watchdog;

pub use builder::Builder;
pub use guard::{Guard, Released};
pub use handle::{Redlock, Remaining};
pub use held::Held;
pub use parts::Parts;
pub use request::Lock;
pub use run::RunError;
pub use status::{KeyState, MasterStatus, Status, Verdict};
