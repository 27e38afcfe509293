//! A held lock: what it knows, how it is extended, and how it is let go.

use super::cell::{By, Cell};
use super::core::Life;
use super::held::Held;
use super::parts::Parts;
use crate::answer::master_answers;
use crate::driver::{self, Releasing, clock};
use crate::error::{Error, ErrorKind};
use crate::quorum::{BadInput, ExtendOutcome, Lease, Loss, ReleaseOutcome};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// A quorum of masters still had our token, and deleted it.
    WasOurs,
    /// So many masters no longer had it that the lock was not ours any more.
    NoLongerOurs,
}

/// A held lock.
///
/// Dropping it releases in the background: also outside a runtime, while one shuts down, in an
/// aborted task and while a panic unwinds. [`release`](Self::release) says what came of it.
///
/// Unless it was acquired [without](crate::Lock::without_watchdog) it, a watchdog extends the
/// lock at a third of its TTL, and [`lost`](Self::lost) tells when it can no longer be sure.
#[must_use = "a guard that is dropped at once releases at once"]
pub struct Guard {
    cell: Arc<Cell>,
    /// Set by the first release that was confirmed.
    spent: OnceLock<Released>,
    /// One release at a time: of two, the second would find what the first has deleted.
    releasing: tokio::sync::Mutex<()>,
    /// Given up without a release, by `into_parts`.
    given_up: bool,
    life: Arc<Life>,
}

impl Guard {
    pub(crate) fn new(life: Arc<Life>, cell: Arc<Cell>) -> Self {
        Self {
            cell,
            spent: OnceLock::new(),
            releasing: tokio::sync::Mutex::new(()),
            given_up: false,
            life,
        }
    }

    /// The resource that is locked, without the handle's prefix.
    pub fn resource(&self) -> &[u8] {
        &self.cell.resource
    }

    /// The random value that proves ownership.
    pub fn token(&self) -> &str {
        self.cell.token.as_str()
    }

    /// How long the holder may still rely on the lock, by the clock at this call (R15).
    ///
    /// Zero once the lock is lost or let go.
    pub fn remaining(&self) -> Duration {
        self.cell.remaining()
    }

    /// Whether the holder may still rely on the lock, by the clock at this call (R15).
    pub fn is_held(&self) -> bool {
        self.cell.is_held()
    }

    /// How many masters are known to have granted, late grants included.
    pub fn grants(&self) -> usize {
        self.cell.grants()
    }

    /// A view for the work that runs under the lock.
    pub fn held(&self) -> Held {
        Held {
            cell: Arc::clone(&self.cell),
        }
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        self.cell.loss()
    }

    /// Waits until the lock is lost, and says why; see [`Held::lost`].
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost by dropping the future and asking again.
    pub async fn lost(&self) -> Loss {
        self.cell.lost().await
    }

    /// Sees to it that the lock lasts at least `span` from now; says how long it does.
    ///
    /// It never brings an expiry nearer, and undoes nothing when it fails: the validity stays
    /// what it was, and it can be tried again. `span` is at most the handle's longest TTL, and
    /// at that limit drift and the time of the round come off it.
    ///
    /// # Errors
    /// - [`ErrorKind::BadInput`]: a span of zero, or longer than the longest TTL; or the longest
    ///   time to hold has passed, after which nothing is extended.
    /// - [`ErrorKind::Lost`]: the lock is no longer ours, or was let go; this is final.
    /// - [`ErrorKind::Unreachable`]: no quorum answered in time; the lock may still be held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock as it is, or longer.
    pub async fn extend(&self, span: Duration) -> Result<Duration, Error> {
        let core = &self.cell.core;
        if self.is_held() && !self.cell.may_extend() {
            return Err(Error::bad_input(BadInput::PastLongestHold));
        }
        let lease = core.lease(span)?;
        // What drift and the round itself may take comes on top, as far as it is allowed.
        let overhead = lease
            .drift()
            .saturating_add(core.pool.terms.timeout_for(span));
        let lease = core.lease(span.saturating_add(overhead).min(core.longest_ttl))?;
        self.extend_by(lease).await
    }

    /// Extends by a lease that was checked.
    pub(crate) async fn extend_by(&self, lease: Lease) -> Result<Duration, Error> {
        let core = &self.cell.core;
        if core.is_forked() {
            return Err(self.lost_error(Vec::new()));
        }
        let route = core.pool.route();
        if !core.pool.is_ready(route) {
            let patience = core.pool.connect_timeout.min(self.remaining());
            core.pool
                .wait_for(patience, |pool| pool.is_ready(route))
                .await;
        }
        let Some(mut extending) = self.cell.send_extension(route, lease, By::Hand) else {
            return Err(self.lost_error(Vec::new()));
        };
        let mut open = OpenExtension {
            cell: &self.cell,
            outcome: ExtendOutcome::Unsure,
        };
        open.outcome = extending.outcome().await;
        let outcome = open.outcome;
        drop(open);
        let answers = master_answers(&core.pool, extending.answers());
        if let ExtendOutcome::Extended { .. } = outcome {
            let cell = Arc::clone(&self.cell);
            // Masters that lack the key get it back while the caller goes on.
            tokio::spawn(async move { extending.heal(&*cell).await });
        }
        match outcome {
            _ if !self.is_held() => Err(self.lost_error(answers)),
            ExtendOutcome::Extended { .. } => Ok(self.remaining()),
            ExtendOutcome::NotOurs { .. } => Err(self.lost_error(answers)),
            ExtendOutcome::Unsure => Err(Error::of_masters(
                ErrorKind::Unreachable,
                &self.cell.resource,
                answers,
            )),
        }
    }

    /// Lets the lock go, and says whether it was still ours.
    ///
    /// Answers as soon as a quorum has deleted the key, or so many masters did not have it that
    /// a quorum is out of reach (R22); the other masters are deleted from in the background.
    /// Once it has answered `Ok`, the guard is spent and further calls repeat the answer.
    ///
    /// # Errors
    /// - [`ErrorKind::Unreachable`]: neither could be shown within the per-master timeout. The
    ///   lock is not held any more and its keys are still being deleted; calling again asks again.
    /// - [`ErrorKind::Lost`]: in a fork of the process that acquired the lock.
    ///
    /// # Cancel safety
    /// The deletes are sent whatever becomes of the future; it can be called again.
    #[must_use = "a release can find that the lock was no longer ours"]
    pub fn release(&self) -> impl Future<Output = Result<Released, Error>> + Send + '_ {
        self.release_inner()
    }

    async fn release_inner(&self) -> Result<Released, Error> {
        if self.cell.core.is_forked() {
            return Err(self.lost_error(Vec::new()));
        }
        let _one_at_a_time = self.releasing.lock().await;
        if let Some(released) = self.spent.get().copied() {
            return Ok(released);
        }
        let pool = &self.cell.core.pool;
        let mut call = ReleaseCall {
            cell: &self.cell,
            releasing: Some(Releasing::begin(pool, self.cell.end()).await),
        };
        let Some(releasing) = call.releasing.as_mut() else {
            return Err(self.lost_error(Vec::new()));
        };
        let outcome = releasing.decide().await;
        let released = match outcome {
            ReleaseOutcome::WasOurs => Released::WasOurs,
            ReleaseOutcome::NoLongerOurs => Released::NoLongerOurs,
            ReleaseOutcome::Unconfirmed => {
                let answers = master_answers(pool, releasing.answers(outcome));
                return Err(Error::of_masters(
                    ErrorKind::Unreachable,
                    &self.cell.resource,
                    answers,
                ));
            }
        };
        // Decided: what is still unanswered is looked after in the background.
        drop(call.releasing.take());
        Ok(*self.spent.get_or_init(|| released))
    }

    /// Gives the guard up without releasing: the lock can be adopted elsewhere while it lasts.
    ///
    /// Nothing extends it from here on; [`Redlock::adopt`](crate::Redlock::adopt) takes it up.
    pub fn into_parts(mut self) -> Parts {
        let parts = Parts::of(&self.cell);
        self.given_up = true;
        if !self.cell.core.is_forked() {
            self.cell.give_up();
        }
        parts
    }

    /// Gives the hold its place in the watchdog's timetable.
    pub(crate) fn register(&self) {
        let core = &self.cell.core;
        if self.cell.is_watched() {
            // The watchdog's own connections are made well before its first extension is due.
            core.pool.want_service();
        }
        core.registry.reschedule(&self.cell, clock::now());
    }

    fn lost_error(&self, answers: Vec<crate::MasterAnswer>) -> Error {
        Error::lost(
            self.cell.loss().unwrap_or(Loss::Expired),
            &self.cell.resource,
            answers,
        )
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.given_up || self.spent.get().is_some() || self.life.core().is_forked() {
            return;
        }
        driver::in_background(&self.cell.core.pool, self.cell.end());
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resource", &self.resource().escape_ascii().to_string())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// An extension by hand; whatever becomes of the caller, the machine hears of its end.
struct OpenExtension<'a> {
    cell: &'a Arc<Cell>,
    outcome: ExtendOutcome,
}

impl Drop for OpenExtension<'_> {
    fn drop(&mut self) {
        self.cell.handle_extension(self.outcome, By::Hand);
    }
}

/// A release by hand; a dropped call leaves its deletes with the cell, for the next call.
struct ReleaseCall<'a> {
    cell: &'a Arc<Cell>,
    releasing: Option<Releasing>,
}

impl Drop for ReleaseCall<'_> {
    fn drop(&mut self) {
        if let Some(releasing) = self.releasing.take() {
            self.cell.keep_deletes(releasing.cancel());
        }
    }
}
