//! A request for a lock, built by chaining, and the wait that ends in a guard.

use super::cell::{Beginning, Cell};
use super::core::{Core, Life};
use super::guard::Guard;
use crate::answer::master_answers;
use crate::driver::{Attempt, KeyFound, Order, Refusal, clock, look, random};
use crate::error::{Error, ErrorKind};
use crate::quorum::{AcquireOutcome, BadInput, Lease, Next, Patience, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// The TTL unless another is asked for.
///
/// Long enough that a busy host's pauses do not lose the lock, short enough that a crashed
/// holder's resource is free again within half a minute.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A request for a lock; made by [`Redlock::lock`](crate::Redlock::lock).
///
/// Waits for ever unless told otherwise, as a mutex does.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run or acquired"]
pub struct Lock {
    life: Arc<Life>,
    resource: Arc<[u8]>,
    ttl: Duration,
    patience: Patience,
    least: Duration,
    watchdog: bool,
    max_hold: Option<Duration>,
}

impl Lock {
    pub(crate) fn new(life: Arc<Life>, resource: &[u8]) -> Self {
        Self {
            life,
            resource: Arc::from(resource),
            ttl: DEFAULT_TTL,
            patience: Patience::Forever,
            least: Duration::ZERO,
            watchdog: true,
            max_hold: None,
        }
    }

    /// Sets the lifetime that the masters give the key; 30 s by default.
    ///
    /// Whole milliseconds count. The watchdog extends it at a third, so it bounds how long the
    /// resource stays locked after a crash, not how long the work may take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits at most so long for the lock; zero tries once.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.patience = if at_most.is_zero() {
            Patience::Once
        } else {
            Patience::AtMost(at_most)
        };
        self
    }

    /// Asks for a validity above this at the moment of the hand-over; zero by default.
    ///
    /// A quorum that leaves less is no lock: it is rolled back, and the attempt was too slow.
    pub fn min_validity(mut self, least: Duration) -> Self {
        self.least = least;
        self
    }

    /// Does not extend the lock: it is lost when its validity ends.
    pub fn without_watchdog(mut self) -> Self {
        self.watchdog = false;
        self
    }

    /// Extends the lock no more after this time, so that it is lost when its validity ends.
    ///
    /// A bound for work that hangs; without it a watchdog extends for ever.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// Waits for the lock, and hands it over.
    ///
    /// # Errors
    /// - [`ErrorKind::GaveUp`]: the bound set by [`wait`](Self::wait) passed; the error says who
    ///   was in the way.
    /// - [`ErrorKind::Held`], [`ErrorKind::Unreachable`], [`ErrorKind::TooSlow`]: as
    ///   [`try_acquire`](Self::try_acquire), for a wait of zero.
    /// - [`ErrorKind::Unreachable`]: also at once, where the failures of a quorum cannot pass by
    ///   waiting (no rights, wrong password).
    /// - [`ErrorKind::NotALock`]: a quorum holds something under the key that is no lock.
    /// - [`ErrorKind::BadInput`]: the resource, TTL or least validity can never be right.
    /// - [`ErrorKind::Closed`]: the handle was closed, or its watchdog has died.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the wait, and rolls back what was sent.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let patience = self.patience;
        self.acquire_with(patience).await
    }

    /// Tries once, without waiting for a holder.
    ///
    /// # Errors
    /// - [`ErrorKind::Held`]: somebody else holds the resource.
    /// - [`ErrorKind::Unreachable`]: no quorum of masters could be reached.
    /// - [`ErrorKind::TooSlow`]: the quorum came too late for this TTL.
    /// - [`ErrorKind::NotALock`], [`ErrorKind::BadInput`], [`ErrorKind::Closed`]: as
    ///   [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future rolls back what was sent.
    pub async fn try_acquire(self) -> Result<Guard, Error> {
        self.acquire_with(Patience::Once).await
    }

    async fn acquire_with(self, patience: Patience) -> Result<Guard, Error> {
        let core = self.life.core();
        core.check_open()?;
        let key = core.key_of(&self.resource)?;
        let lease = self.checked_lease(core)?;
        let began = clock::now();
        let mut waiting = Waiting::begin(core.retry, patience, began);
        let mut last_decided = None;
        let mut order = Order {
            key,
            lease,
            least: self.least,
            give_up_at: waiting.deadline(),
        };
        loop {
            let refusal = match Attempt::run(&core.pool, &order).await {
                Ok(granted) => {
                    let grants = granted.grants;
                    let guard = self.guard(core, &order, granted);
                    // Checked again before the hand-over (R8); dropping the guard rolls back.
                    if guard.is_held() && guard.remaining() > self.least {
                        return Ok(guard);
                    }
                    Refusal::too_slow(&core.pool, grants)
                }
                Err(refusal) => refusal,
            };
            if let Some(error) = self
                .final_answer(core, &order, &refusal, waiting.refusals() == 0)
                .await
            {
                return Err(error);
            }
            // An attempt that our own deadline cut short says nothing of the masters: what is
            // reported then is the one before.
            if refusal.outcome != AcquireOutcome::CutShort || last_decided.is_none() {
                last_decided = Some(refusal);
            }
            let next = waiting.handle_refusal(clock::now(), random::draw());
            match (next, last_decided.take()) {
                (Next::GiveUp, Some(refusal)) => {
                    let error = refusal_error(core, &self.resource, refusal);
                    if patience == Patience::Once {
                        return Err(error);
                    }
                    let waited = clock::now().since(began);
                    return Err(error.gave_up(waited, waiting.refusals()));
                }
                (Next::PauseUntil(wake), decided) => {
                    last_decided = decided;
                    tokio::time::sleep(clock::now().until(wake)).await;
                }
                (Next::GiveUp, None) => unreachable!("a refusal was just kept"),
            }
            core.check_open()?;
            order.give_up_at = waiting.deadline();
        }
    }

    fn checked_lease(&self, core: &Core) -> Result<Lease, Error> {
        let lease = core.lease(self.ttl)?;
        if self.least >= lease.most_validity() {
            return Err(Error::bad_input(BadInput::ValidityOutOfReach {
                least: self.least,
                most: lease.most_validity(),
            }));
        }
        Ok(lease)
    }

    fn guard(&self, core: &Arc<Core>, order: &Order, granted: crate::driver::Granted) -> Guard {
        let beginning = Beginning {
            resource: Arc::clone(&self.resource),
            key: Arc::clone(&order.key),
            lease: order.lease,
            watchdog: self.watchdog,
            max_hold: self.max_hold,
        };
        let cell = Cell::new(core, beginning, granted);
        let guard = Guard::new(Arc::clone(&self.life), cell);
        guard.register();
        guard
    }

    /// An answer that waiting cannot mend ends the wait at once (R14).
    async fn final_answer(
        &self,
        core: &Arc<Core>,
        order: &Order,
        refusal: &Refusal,
        first: bool,
    ) -> Option<Error> {
        if refusal.hopeless {
            return Some(refusal_error(core, &self.resource, refusal.again()));
        }
        if !first || refusal.denied.is_empty() {
            return None;
        }
        // What is denied is looked at once: a key that never expires is nobody's lock.
        let mut timeout = refusal.timeout;
        if let Some(end) = order.give_up_at {
            timeout = timeout.min(clock::now().until(end));
        }
        let found = look(&core.pool, refusal.denied, &order.key, timeout).await;
        let strange = found
            .iter()
            .filter(|found| matches!(found, KeyFound::OtherType | KeyFound::Value(_, None)))
            .count();
        let terms = core.pool.terms;
        (strange > terms.masters - terms.quorum()).then(|| {
            let answers = master_answers(&core.pool, refusal.answers.clone());
            Error::of_masters(ErrorKind::NotALock, &self.resource, answers)
        })
    }
}

fn refusal_error(core: &Core, resource: &Arc<[u8]>, refusal: Refusal) -> Error {
    let kind = match refusal.outcome {
        AcquireOutcome::TooSlow => ErrorKind::TooSlow,
        AcquireOutcome::TimedOut
        | AcquireOutcome::CutShort
        | AcquireOutcome::Refused
        | AcquireOutcome::Granted { .. } => {
            if refusal.not_a_lock {
                ErrorKind::NotALock
            } else if refusal.unreachable || refusal.denied.is_empty() {
                ErrorKind::Unreachable
            } else {
                ErrorKind::Held
            }
        }
    };
    Error::of_masters(kind, resource, master_answers(&core.pool, refusal.answers))
}
