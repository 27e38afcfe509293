//! How long things take: silent masters, ties, deadlines, hot loops, and news of a loss.
//!
//! These tests measure, so each of them waits until it is alone in its process. Bounds hold on two
//! slow cores; what they are to catch takes a per-master timeout or longer.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails its test"
)]

mod loss;
mod silent;
mod ties;
mod waiting;

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Within this time an undo that nothing hinders is done, on a busy machine too.
pub(crate) const SOON: Duration = ms(1_500);
/// How late a wake-up may be on a busy machine.
pub(crate) const LATE: Duration = ms(400);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a test on a multi-thread runtime of its own, when no other test of this process runs.
pub(crate) fn alone<F: Future>(test: F) -> F::Output {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}
