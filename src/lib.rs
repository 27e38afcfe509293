//! Redlock over N independent Redis or Valkey masters: a lock that several machines share.
//!
//! A lock is held while a majority of independent servers has its random token under the
//! resource's key. Its holder is told the moment it can no longer be sure that it holds.
//!
//! ```no_run
//! use quorumlock::Redlock;
//! use std::time::Duration;
//!
//! # async fn charge(_held: quorumlock::Held) -> Result<(), std::io::Error> { Ok(()) }
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let redlock =
//!         Redlock::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
//!
//!     // The usual way: the work runs under the lock, which is extended while it runs; if the
//!     // lock is lost, the work is cancelled.
//!     redlock.lock("payment:4821").wait(Duration::from_secs(5)).run(|held| charge(held)).await??;
//!
//!     // By hand.
//!     let guard = redlock.lock("payment:4821").ttl(Duration::from_secs(30)).acquire().await?;
//!     guard.release().await?;
//!     Ok(())
//! }
//! ```
//!
//! # What it promises, and what it does not
//! While a majority of the masters works, keeps its memory, and counts time at about the rate of
//! the client, two guards of one resource are never valid at the same time; release and extension
//! never touch another owner's lock; and what does not end as a held guard is undone.
//!
//! No lock with an expiry can stop a holder that is paused between its last look at the lock and
//! its write: what must never happen twice needs a check at the resource as well. The
//! guarantees, their assumptions and the tests that show them stand in `docs/guarantees.md`.
//!
//! # Where to begin
//! - [`Redlock`] is the handle, [`Builder`] its settings.
//! - [`Lock`] is a request: [`run`](Lock::run), [`acquire`](Lock::acquire),
//!   [`try_acquire`](Lock::try_acquire).
//! - [`Guard`] is a held lock, [`Held`] a view of it for the work.
//! - [`Error`] says what went wrong, with each master's own [`Answer`].
//! - [`quorum`] has the protocol itself, as machines without I/O.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `client` | yes | everything but [`quorum`]: connections, handle, guard, watchdog |
//! | `tls` | no | `rediss://` by rustls; the application installs a crypto provider |
//! | `serde` | no | [`Parts`] can be serialised |

pub mod quorum;

#[cfg(feature = "client")]
mod answer;
#[cfg(feature = "client")]
mod driver;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod lock;
#[cfg(feature = "client")]
mod master;

#[cfg(feature = "client")]
pub use answer::{Answer, MasterAnswer};
#[cfg(feature = "client")]
pub use error::{Error, ErrorKind};
#[cfg(feature = "client")]
pub use lock::{
    Builder, Guard, Held, KeyState, Lock, MasterStatus, Parts, Redlock, Released, Remaining,
    RunError, Status, Verdict,
};
#[cfg(feature = "client")]
pub use master::{Fault, FaultKind, MasterAddress};
#[cfg(feature = "client")]
pub use quorum::{BadInput, Loss};

/// The redis crate this is built on, for its connection types.
#[cfg(feature = "client")]
pub use redis;

/// The code in the README compiles.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
#[expect(dead_code, reason = "only its documentation matters")]
struct Readme;
