//! The answer to one command that was queued on a lane.

use super::{Fault, Lane};
use crate::quorum::Moment;
use redis::{RedisResult, Value};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An answer of redis-rs that is still to come.
pub(crate) type Answer = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Whether the connection on which this came is of no more use.
pub(crate) fn ends_connection(error: &redis::RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_connection_dropped()
}

/// The answer to one command that was queued.
///
/// Dropping it withdraws the command if it was not yet written, and forgets the answer if it was.
pub(crate) struct Reply {
    answer: Option<Answer>,
    lane: Arc<Lane>,
    epoch: u64,
}

impl Reply {
    pub(super) fn new(answer: Answer, lane: Arc<Lane>, epoch: u64) -> Self {
        Self {
            answer: Some(answer),
            lane,
            epoch,
        }
    }

    /// Polls for the answer; `now` is asked only if the connection turns out to have ended.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: impl FnOnce() -> Moment,
    ) -> Poll<Result<Value, Fault>> {
        let Some(answer) = self.answer.as_mut() else {
            return Poll::Pending;
        };
        match answer.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.answer = None;
                self.lane.note_answer();
                Poll::Ready(result.map_err(|error| {
                    let lost = ends_connection(&error);
                    let fault = Fault::from_redis(error);
                    if lost {
                        self.lane.end(self.epoch, fault.clone(), now());
                    }
                    fault
                }))
            }
        }
    }

    /// The lane it was sent on.
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes the answer out, for whoever waits for it from now on; its room stays taken.
    pub(super) fn take(mut self) -> Option<Answer> {
        self.answer.take()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.answer.take().is_some() {
            self.lane.note_withdrawn();
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("answered", &self.answer.is_none())
            .finish_non_exhaustive()
    }
}
