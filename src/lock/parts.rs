//! A lock without its guard, for handing over to another task, process or host.

use super::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// The TTL that parts are adopted under unless another is asked for.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A lock given up without a release: what it takes to adopt it elsewhere.
///
/// Plain data; with the feature `serde` it can be serialised. The token is as good as the lock:
/// whoever has it can extend and release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use = "parts that are dropped leave the lock to its TTL"]
pub struct Parts {
    resource: Vec<u8>,
    token: String,
    validity: Duration,
    ttl: Duration,
    fence: Option<u64>,
}

impl Parts {
    /// The parts of a lock whose resource and token are known, to be adopted for 30 s.
    pub fn new(resource: impl AsRef<[u8]>, token: impl Into<String>) -> Self {
        Self {
            resource: resource.as_ref().to_vec(),
            token: token.into(),
            validity: Duration::ZERO,
            ttl: DEFAULT_TTL,
            fence: None,
        }
    }

    pub(crate) fn of(cell: &Arc<Cell>) -> Self {
        Self {
            resource: cell.resource.to_vec(),
            token: cell.token.as_str().to_owned(),
            validity: cell.remaining(),
            ttl: cell.lease().ttl(),
            fence: None,
        }
    }

    /// Sets the TTL that the lock is adopted with.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The resource that is locked, without the handle's prefix.
    pub fn resource(&self) -> &[u8] {
        &self.resource
    }

    /// The random value that proves ownership.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// How long the lock was still valid when it was given up; zero if that is not known.
    pub fn validity(&self) -> Duration {
        self.validity
    }

    /// The fencing number of a fenced lock; none of this version's locks have one.
    pub fn fence(&self) -> Option<u64> {
        self.fence
    }

    pub(crate) fn ttl_asked(&self) -> Duration {
        self.ttl
    }
}
