//! What all handles and guards of one deployment share, and what ends with the last of them.

use super::watchdog::{Command, Registry};
use crate::driver::Pool;
use crate::error::Error;
use crate::quorum::{BadInput, Drift, Lease, Loss, Retry, check_key};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::ThreadId;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How long the drop of the last handle waits for undos that are still unanswered (R22).
const LAST_DROP: Duration = Duration::from_millis(50);

/// What all handles and guards of one deployment share.
pub(crate) struct Core {
    pub(crate) pool: Arc<Pool>,
    pub(crate) prefix: Arc<[u8]>,
    pub(crate) drift: Drift,
    pub(crate) longest_ttl: Duration,
    pub(crate) retry: Retry,
    pub(crate) registry: Registry,
    /// The process that built the handle; a fork of it sends nothing (R30).
    process: u32,
    closed: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        pool: Arc<Pool>,
        prefix: Arc<[u8]>,
        drift: Drift,
        longest_ttl: Duration,
        retry: Retry,
    ) -> Self {
        Self {
            pool,
            prefix,
            drift,
            longest_ttl,
            retry,
            registry: Registry::new(),
            process: std::process::id(),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether this process is a fork of the one that built the handle.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Refuses new acquisitions from here on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether a lock may be acquired through this handle at all.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::closed(
                "this process is a fork of the one that built the handle",
            ));
        }
        if self.registry.is_dead() {
            return Err(Error::closed(
                "the watchdog has died: nothing would extend a lock or tell its loss",
            ));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed("the handle was closed"));
        }
        Ok(())
    }

    /// The key of a resource, checked (R28).
    pub(crate) fn key_of(&self, resource: &Arc<[u8]>) -> Result<Arc<[u8]>, Error> {
        if resource.is_empty() {
            return Err(Error::bad_input(BadInput::EmptyResource));
        }
        let key: Arc<[u8]> = if self.prefix.is_empty() {
            Arc::clone(resource)
        } else {
            [&*self.prefix, &**resource].concat().into()
        };
        check_key(&key).map_err(Error::bad_input)?;
        Ok(key)
    }

    /// A TTL, checked (R28).
    pub(crate) fn lease(&self, ttl: Duration) -> Result<Lease, Error> {
        Lease::new(ttl, self.drift, self.longest_ttl).map_err(Error::bad_input)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters: Vec<&str> = self
            .pool
            .masters
            .iter()
            .map(|master| &*master.address)
            .collect();
        f.debug_struct("Core")
            .field("masters", &masters)
            .finish_non_exhaustive()
    }
}

/// Kept by every handle and guard; the drop of the last one drains and ends the service thread.
#[derive(Debug)]
pub(crate) struct Life {
    core: Arc<Core>,
    commands: UnboundedSender<Command>,
    service: ThreadId,
}

impl Life {
    pub(crate) fn new(
        core: Arc<Core>,
        commands: UnboundedSender<Command>,
        service: ThreadId,
    ) -> Self {
        Self {
            core,
            commands,
            service,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Asks the service thread for something; `false` if it is gone.
    pub(crate) fn ask(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // In a fork there is no service thread, and its locks may be held for ever.
        if self.core.is_forked() {
            return;
        }
        let (done, drained) = mpsc::sync_channel(1);
        let asked = self.ask(Command::End {
            at_most: LAST_DROP,
            done,
        });
        // On the service thread itself nobody would answer.
        if asked && std::thread::current().id() != self.service {
            // A drop has nobody to tell that time ran out; `close` has.
            drained.recv_timeout(LAST_DROP).unwrap_or_default();
        }
    }
}

/// A loss that is known without asking anybody: this process is a fork.
pub(crate) fn fork_loss(core: &Core) -> Option<Loss> {
    core.is_forked().then_some(Loss::Forked)
}
