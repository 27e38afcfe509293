//! Acquiring, against masters that are dead, slow, foreign or broken: cases from the field, each named by its number.
//!
//! Every test starts servers of its own and ends with no key left, or with the key another owner's.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod duplicates;
mod elapsed;
mod input;
mod matrix;
mod odd_settings;
mod quorum;
mod restarts;
mod rights;
mod secrets;
mod spoilt;
mod strangers;
mod unsteady;

use quorumlock::{Answer, Error, Fault, FaultKind, Redlock};
use std::time::Duration;

/// Within this time, on a loaded machine, a rollback has arrived everywhere.
pub(crate) const SOON: Duration = Duration::from_secs(2);

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) async fn connect<A: AsRef<str>>(urls: &[A]) -> Redlock {
    Redlock::connect(urls.iter().map(AsRef::as_ref))
        .await
        .unwrap()
}

/// The fault of one master, if that is what it answered.
pub(crate) fn fault(error: &Error, master: usize) -> Option<&Fault> {
    match error.masters().get(master)?.answer() {
        Answer::Failed(fault) => Some(fault),
        _ => None,
    }
}

/// Every master's fault, in the order of the list.
pub(crate) fn faults(error: &Error) -> Vec<Option<FaultKind>> {
    (0..error.masters().len())
        .map(|master| fault(error, master).map(Fault::kind))
        .collect()
}
