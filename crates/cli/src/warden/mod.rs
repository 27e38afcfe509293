//! The warden: a hidden mode of this binary that stands between `quorumlock run` and COMMAND.
//!
//! `quorumlock run` may be killed or stopped at any moment, and COMMAND must not go on without the lock. So COMMAND is the
//! child of a small process that knows when the lock ends and needs nobody to tell it:
//!
//! ```text
//! quorumlock run ── Handle ──socket── warden (Keeper) ── stage ──exec──► COMMAND
//!   holds the lock                     own process group     own process group
//! ```
//!
//! Invariants
//! 1. COMMAND does not start before the warden has a deadline, nor once the latest start has passed (checked right before
//!    exec).
//! 2. The warden ends everything that COMMAND started when the socket ends (`quorumlock` died), when it is told to, and by
//!    itself at the deadline less the grace.
//! 3. KILL falls before the deadline, whatever the grace; once TERM has been sent nothing takes it back.
//! 4. The warden exits when nothing of COMMAND is left, and not before.
//! 5. If the warden dies, COMMAND is killed by the kernel (parent-death signal), and what COMMAND left is adopted and ended
//!    by `quorumlock` (subreaper).
//! 6. Neither the socket nor anything else of ours is inherited by COMMAND; its standard streams are the user's own.

mod family;
mod handle;
mod keeper;
mod stage;
mod wire;

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;

use crate::exit::Exit;

pub(crate) use handle::{Handle, Report};

/// The hidden first arguments; no verb begins like this.
const WARDEN: &str = "@warden";
const STAGE: &str = "@stage";

/// KILL is sent this long before the deadline, so that the processes are gone when it comes, on a busy host too: the
/// warden must get a processor, and then each of them, to die. It comes off the grace when the warden acts alone, and is
/// less than the 50 ms by which `quorumlock` acts before it.
const KILL_MARGIN: Duration = Duration::from_millis(40);

/// What is to be executed: looked up once, before the lock was acquired.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: OsString,
    /// The name it was called by, then its arguments.
    pub(crate) argv: Vec<OsString>,
}

/// How COMMAND ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It returned this.
    Status(u8),
    /// This signal ended it.
    Signal(i32),
}

/// Runs a hidden mode if the arguments ask for one.
pub(crate) fn hidden_mode(arguments: &[OsString]) -> Option<Exit> {
    let mode = arguments.get(1)?.to_str()?;
    let rest = arguments.get(2..).unwrap_or_default();
    match mode {
        WARDEN => Some(keeper::main(rest)),
        STAGE => Some(stage::main(rest)),
        _ => None,
    }
}

/// The signal of that number, if the platform has a name for it.
fn signal(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}
