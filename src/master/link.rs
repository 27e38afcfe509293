//! The connection of a lane, or why there is none, and how a command is put into its queue.
//!
//! Requests that fit into redis-rs's queue are far more than a lane admits (see `lane.rs`), so
//! that the first poll of a request queues it.

use super::reply::Answer;
use super::{Abilities, Fault, FaultKind};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(super) struct State {
    pub(super) link: Link,
    /// Counts connections, so that news of an old one do not end its successor.
    pub(super) epoch: u64,
    /// The connection of this epoch ended before the lane was brought up with it.
    pub(super) ended_early: Option<u64>,
}

pub(super) enum Link {
    /// Not tried yet since it is wanted.
    Starting,
    Up {
        connection: MultiplexedConnection,
        abilities: Abilities,
    },
    Down(Fault),
}

impl State {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    /// Builds the command and puts it into the connection's queue by a first poll.
    pub(super) fn queue(
        &self,
        waker: &Waker,
        build: impl FnOnce(Abilities) -> Arc<Cmd>,
    ) -> Result<Answer, Unsent> {
        let (mut connection, cmd) = match &self.link {
            Link::Up {
                connection,
                abilities,
            } => (connection.clone(), build(*abilities)),
            Link::Starting => return Err(Unsent::Fault(Fault::new(FaultKind::NotConnected))),
            Link::Down(fault) => return Err(Unsent::Fault(fault.clone())),
        };
        // Unconstrained: tokio's budget could make the first poll return before it has queued.
        let mut answer: Answer = Box::pin(tokio::task::unconstrained(async move {
            match connection.send_packed_command(&cmd).await? {
                // The usual answers need no look for an error inside.
                plain @ (Value::Okay | Value::Nil | Value::Int(_)) => Ok(plain),
                other => other.extract_error(),
            }
        }));
        match answer.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Ok(answer),
            // The queue takes nothing any more: the connection has ended.
            Poll::Ready(Err(error)) => Err(Unsent::Ended(Fault::from_redis(error))),
            Poll::Ready(Ok(value)) => Ok(Box::pin(std::future::ready(Ok(value)))),
        }
    }
}

/// Why a command was not queued.
pub(super) enum Unsent {
    Fault(Fault),
    /// The connection turned out to have ended.
    Ended(Fault),
}
