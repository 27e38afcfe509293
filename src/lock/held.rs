//! A view of a held lock for the work that runs under it.

use super::cell::Cell;
use crate::quorum::Loss;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A view of a held lock, for the work that runs under it.
///
/// Cheap to clone, `Send`, `Sync` and `'static`: hand it to whoever must know whether the lock
/// is still held. It neither extends nor releases; that is the guard's. After the guard has let
/// go it says that the lock is not held.
#[derive(Clone)]
pub struct Held {
    pub(crate) cell: Arc<Cell>,
}

impl Held {
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
    ///
    /// A check before an effect narrows the window in which a paused holder does harm; it does
    /// not close it. What must never happen twice needs a check at the resource itself.
    pub fn is_held(&self) -> bool {
        self.cell.is_held()
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        self.cell.loss()
    }

    /// Waits until the lock is lost, and says why.
    ///
    /// Aimed a few milliseconds before the validity ends, whatever the network does; after the
    /// process or host was paused, at most 250 ms after it goes on (R15). A lock that is let go
    /// is not lost: the future then never ends.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost by dropping the future and asking again.
    pub async fn lost(&self) -> Loss {
        self.cell.lost().await
    }

    /// Waits until the validity has moved, the lock is lost, or it is let go.
    ///
    /// For whoever hands deadlines on: ask [`remaining`](Self::remaining) after each return.
    ///
    /// # Cancel safety
    /// Cancel safe; a move between two calls is missed, but `remaining` tells it.
    pub async fn changed(&self) {
        let seen = self.cell.valid_until();
        self.cell.moved(seen).await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("resource", &self.resource().escape_ascii().to_string())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
