//! The handle: where locks are asked for, adopted, looked at and, in the end, drained.

use super::builder::{Builder, duplicate};
use super::cell::{Beginning, Cell};
use super::core::{Core, Life};
use super::guard::{Guard, Released};
use super::parts::Parts;
use super::request::Lock;
use super::status::Status;
use super::watchdog::Command;
use crate::answer::{MasterAnswer, master_answers};
use crate::driver::{self, Granted, KeyFound, clock};
use crate::error::{Error, ErrorKind};
use crate::master::{MasterAddress, Undo};
use crate::quorum::{BadInput, Members, ReleaseOutcome, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long `connect` waits for the masters beyond a quorum, to see who they are.
const LAST_ONES: Duration = Duration::from_millis(100);
/// The TTL by which operations on a bare token choose their timeout.
const NOMINAL_TTL: Duration = Duration::from_secs(10);

/// A handle on N independent masters; cheap to clone.
///
/// All clones, and the guards acquired through them, share two connections to each master (the
/// second once a watched lock is held) and one thread. A handle works from any tokio runtime with
/// its timer and I/O enabled, also after the runtime that built it has ended. The connections
/// live in the runtime that used the handle first; calls from another one that is alive at the
/// same time go through the handle's own thread, which costs them a change of threads.
///
/// The drop of the last handle or guard waits up to 50 ms for deletes that are still unanswered.
/// [`close`](Self::close) waits as long as asked, and says what is left.
#[derive(Clone, Debug)]
pub struct Redlock {
    life: Arc<Life>,
}

impl Redlock {
    pub(crate) fn new(life: Arc<Life>) -> Self {
        Self { life }
    }

    /// Connects to masters by URL, with default settings.
    ///
    /// Returns once a quorum is connected and known, or after one second with what there is: a
    /// master that cannot be reached is tried again in the background (R3).
    ///
    /// # Errors
    /// [`ErrorKind::BadConfiguration`]: no master, an address that cannot be read, or two entries
    /// that reach one server.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handle.
    pub async fn connect<I>(masters: I) -> Result<Self, Error>
    where
        I: IntoIterator,
        I::Item: Into<MasterAddress>,
    {
        Self::builder().masters(masters).connect().await
    }

    /// Settings beyond a list of URLs.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Asks for the lock on a resource: any bytes but none, and not beginning with `quorumlock:`.
    ///
    /// Nothing is sent until the request is [run](Lock::run) or [acquired](Lock::acquire).
    pub fn lock(&self, resource: impl AsRef<[u8]>) -> Lock {
        Lock::new(Arc::clone(&self.life), resource.as_ref())
    }

    /// Takes up a lock that was given up by [`Guard::into_parts`], here or elsewhere.
    ///
    /// It is held only once a first extension has succeeded; from then on the watchdog extends.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`]: the lock is not that token's any more.
    /// - [`ErrorKind::BadInput`]: an unusable resource, token or TTL.
    /// - [`ErrorKind::Unreachable`]: no quorum answered in time.
    /// - [`ErrorKind::Closed`]: the handle was closed.
    ///
    /// # Cancel safety
    /// A dropped future leaves the lock to its TTL, which may have been extended once.
    pub async fn adopt(&self, parts: Parts) -> Result<Guard, Error> {
        self.core().check_open()?;
        let core = self.core();
        let resource: Arc<[u8]> = Arc::from(parts.resource());
        let key = core.key_of(&resource)?;
        let lease = core.lease(parts.ttl_asked())?;
        let token = token_of(parts.token())?;
        self.ready().await;
        let began = clock::now();
        let granted = Granted {
            token,
            // Believed just long enough for the first extension, which proves it or does not.
            valid_until: lease.valid_until(began),
            route: core.pool.route(),
            sent: self.everyone(),
            grants: Members::NONE,
            stragglers: Vec::new(),
        };
        let beginning = Beginning {
            resource,
            key,
            lease,
            watchdog: true,
            max_hold: None,
        };
        let cell = Cell::new(core, beginning, granted);
        let guard = Adopting {
            guard: Some(Guard::new(Arc::clone(&self.life), cell)),
        };
        guard.prove(lease).await
    }

    /// Deletes a lock by its token, wherever it was acquired; never anybody else's.
    ///
    /// # Errors
    /// - [`ErrorKind::BadInput`]: an unusable resource or token.
    /// - [`ErrorKind::Unreachable`]: no quorum answered in time; it can be called again.
    ///
    /// # Cancel safety
    /// The deletes are sent whatever becomes of the future.
    pub async fn release(
        &self,
        resource: impl AsRef<[u8]>,
        token: &str,
    ) -> Result<Released, Error> {
        let core = self.core();
        self.check_process()?;
        let resource: Arc<[u8]> = Arc::from(resource.as_ref());
        let key = core.key_of(&resource)?;
        let token = token_of(token)?;
        self.ready().await;
        let until = clock::now().plus(core.longest_ttl);
        let held = driver::Held {
            undo: Undo {
                key,
                token,
                until,
                heard: None,
                refused: 0,
            },
            ttl: NOMINAL_TTL,
            route: core.pool.route(),
            sent: self.everyone(),
            unanswered: Members::NONE,
            healing: Members::NONE,
            earlier: Vec::new(),
        };
        let report = driver::release(&core.pool, held).await;
        match report.outcome {
            ReleaseOutcome::WasOurs => Ok(Released::WasOurs),
            ReleaseOutcome::NoLongerOurs => Ok(Released::NoLongerOurs),
            ReleaseOutcome::Unconfirmed => {
                let answers = master_answers(&core.pool, report.answers);
                Err(Error::of_masters(
                    ErrorKind::Unreachable,
                    &resource,
                    answers,
                ))
            }
        }
    }

    /// Deletes the key of a resource whoever holds it, and says what each master answered.
    ///
    /// This breaks mutual exclusion: the holder goes on until it learns of its loss. It is for a
    /// person who knows that the holder is gone. `Granted` means deleted, `Denied` no such key.
    ///
    /// # Errors
    /// - [`ErrorKind::BadInput`]: an unusable resource.
    /// - [`ErrorKind::Unreachable`]: no quorum answered.
    ///
    /// # Cancel safety
    /// A dropped future may have deleted on some masters.
    pub async fn force_release(
        &self,
        resource: impl AsRef<[u8]>,
    ) -> Result<Vec<MasterAnswer>, Error> {
        self.check_process()?;
        let core = self.core();
        let resource: Arc<[u8]> = Arc::from(resource.as_ref());
        let key = core.key_of(&resource)?;
        self.ready().await;
        let timeout = core.pool.terms.timeout_for(NOMINAL_TTL);
        let answers = driver::force(&core.pool, &key, timeout).await;
        let answered = answers
            .iter()
            .filter(|answer| !matches!(answer, driver::Answer::Failed(_)))
            .count();
        let answers = master_answers(&core.pool, answers);
        if answered < core.pool.terms.quorum() {
            return Err(Error::of_masters(
                ErrorKind::Unreachable,
                &resource,
                answers,
            ));
        }
        Ok(answers)
    }

    /// Looks who holds a resource, on each master.
    ///
    /// What it says may have changed by the time it is read; it is for people, not for deciding.
    ///
    /// # Errors
    /// [`ErrorKind::BadInput`]: an unusable resource.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, Error> {
        self.check_process()?;
        let core = self.core();
        let key = core.key_of(&Arc::from(resource.as_ref()))?;
        let route = core.pool.route();
        core.pool
            .wait_for(core.pool.connect_timeout, |pool| pool.is_settled(route))
            .await;
        let timeout = core.pool.terms.timeout_for(NOMINAL_TTL);
        let found: Vec<KeyFound> = driver::look(&core.pool, self.everyone(), &key, timeout).await;
        Ok(Status::of(&core.pool, found))
    }

    /// Refuses new acquisitions, and waits until nothing is unanswered: releases and rollbacks.
    ///
    /// For the end of a process: what is left after `at_most` may live until its TTL ends. Guards
    /// that are still held stay held, and release when they are dropped.
    ///
    /// # Cancel safety
    /// The handle stays closed; the draining goes on in the background.
    pub async fn close(&self, at_most: Duration) -> Remaining {
        let core = self.core();
        if core.is_forked() {
            return Remaining { deletes: 0 };
        }
        core.close();
        let (left, answer) = oneshot::channel();
        let asked = self.life.ask(Command::Drain { at_most, left });
        let drained = if asked { answer.await.ok() } else { None };
        // Without a service thread nobody drains; what is left is counted all the same.
        let deletes = drained.unwrap_or_else(|| driver::left(&core.pool));
        Remaining { deletes }
    }

    /// Waits until a quorum is connected; an error names two entries that reach one server.
    pub(crate) async fn connected(&self) -> Result<(), Error> {
        let pool = &self.core().pool;
        let route = pool.route();
        pool.wait_for(pool.connect_timeout, |pool| pool.is_ready(route))
            .await;
        pool.wait_for(pool.connect_timeout.min(LAST_ONES), |pool| {
            pool.is_settled(route)
        })
        .await;
        match pool.duplicates() {
            Some((one, other)) => {
                let shown = |index: usize| &*pool.masters[index].address;
                Err(duplicate((one, shown(one)), (other, shown(other))))
            }
            None => Ok(()),
        }
    }

    async fn ready(&self) {
        let pool = &self.core().pool;
        let route = pool.route();
        pool.wait_for(pool.connect_timeout, |pool| pool.is_ready(route))
            .await;
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.core().is_forked() {
            return Err(Error::closed(
                "this process is a fork of the one that built the handle",
            ));
        }
        Ok(())
    }

    fn everyone(&self) -> Members {
        (0..self.core().pool.masters.len()).collect()
    }

    fn core(&self) -> &Arc<Core> {
        self.life.core()
    }

    #[cfg(test)]
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }
}

/// A guard that is not proved yet: dropped, it must not delete what may be another's to hold.
struct Adopting {
    guard: Option<Guard>,
}

impl Adopting {
    async fn prove(mut self, lease: crate::quorum::Lease) -> Result<Guard, Error> {
        let Some(guard) = self.guard.as_ref() else {
            return Err(Error::closed("the guard was given up"));
        };
        guard.extend_by(lease).await?;
        let Some(guard) = self.guard.take() else {
            return Err(Error::closed("the guard was given up"));
        };
        guard.register();
        Ok(guard)
    }
}

impl Drop for Adopting {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            // The token's owner elsewhere may still hold: nothing is deleted.
            drop(guard.into_parts());
        }
    }
}

fn token_of(text: &str) -> Result<Token, Error> {
    if text.is_empty() {
        return Err(Error::bad_input(BadInput::EmptyToken));
    }
    Ok(Token::from_text(text))
}

/// What a [`close`](Redlock::close) could not finish in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is left may stay locked until its TTL ends"]
pub struct Remaining {
    deletes: usize,
}

impl Remaining {
    /// Whether everything was answered.
    pub fn is_empty(&self) -> bool {
        self.deletes == 0
    }

    /// How many deletes are unanswered, counted by master: each may leave a key for its TTL.
    pub fn deletes(&self) -> usize {
        self.deletes
    }
}
