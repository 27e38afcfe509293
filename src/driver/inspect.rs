//! Looking at keys: what stands on each master, for refusals, `status` and forced release.

use super::clock;
use super::pool::{Pool, Route};
use crate::master::{Fault, FaultKind, Need, Reply, ask};
use crate::quorum::Members;
use redis::Value;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// What a master has under a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyFound {
    /// Nothing.
    Free,
    /// A value and the time left to it; `None` if it never expires.
    Value(Vec<u8>, Option<Duration>),
    /// Another type than a string.
    OtherType,
    /// No usable answer.
    Failed(Fault),
}

/// Looks at the key on these masters, waiting at most `timeout` for all of them.
pub(crate) async fn look(
    pool: &Arc<Pool>,
    targets: Members,
    key: &[u8],
    timeout: Duration,
) -> Vec<KeyFound> {
    let route = pool.route();
    let values: [&[u8]; 2] = [b"GET", key];
    let expiries: [&[u8]; 2] = [b"PTTL", key];
    let (values, expiries) = (
        ask_some(pool, route, targets, &values),
        ask_some(pool, route, targets, &expiries),
    );
    let mut answers = gather(values.into_iter().chain(expiries).collect(), timeout).await;
    let expiries = answers.split_off(answers.len() / 2);
    answers
        .into_iter()
        .zip(expiries)
        .map(|(value, expiry)| found(value, expiry))
        .collect()
}

fn found(value: Result<Value, Fault>, expiry: Result<Value, Fault>) -> KeyFound {
    let value = match value {
        Ok(Value::Nil) => return KeyFound::Free,
        Ok(Value::BulkString(bytes)) => bytes,
        Ok(Value::SimpleString(text)) => text.into_bytes(),
        Ok(Value::Okay) => b"OK".to_vec(),
        Ok(_) => {
            return KeyFound::Failed(Fault::with_detail(FaultKind::Protocol, "no answer to GET"));
        }
        Err(fault) if fault.kind() == FaultKind::WrongType => return KeyFound::OtherType,
        Err(fault) => return KeyFound::Failed(fault),
    };
    match expiry {
        // The key went between the two commands.
        Ok(Value::Int(-2)) => KeyFound::Free,
        Ok(Value::Int(left)) => {
            KeyFound::Value(value, u64::try_from(left).ok().map(Duration::from_millis))
        }
        Ok(_) => KeyFound::Failed(Fault::with_detail(FaultKind::Protocol, "no answer to PTTL")),
        Err(fault) => KeyFound::Failed(fault),
    }
}

/// Asks every master the same, waiting at most `timeout` for all of them.
pub(crate) async fn ask_all(
    pool: &Arc<Pool>,
    route: Route,
    words: &[&[u8]],
    timeout: Duration,
) -> Vec<Result<Value, Fault>> {
    let all = (0..pool.masters.len()).collect();
    gather(ask_some(pool, route, all, words), timeout).await
}

fn ask_some(
    pool: &Arc<Pool>,
    route: Route,
    targets: Members,
    words: &[&[u8]],
) -> Vec<Result<Reply, Fault>> {
    targets
        .iter()
        .filter_map(|index| pool.masters.get(index))
        .map(|master| {
            master
                .lane(route)
                .send(Need::Change, Waker::noop(), |_| Arc::new(ask(words)))
        })
        .collect()
}

async fn gather(asked: Vec<Result<Reply, Fault>>, timeout: Duration) -> Vec<Result<Value, Fault>> {
    let mut open: Vec<Option<Reply>> = Vec::with_capacity(asked.len());
    let mut answers: Vec<Option<Result<Value, Fault>>> = Vec::with_capacity(asked.len());
    for sent in asked {
        match sent {
            Ok(reply) => {
                open.push(Some(reply));
                answers.push(None);
            }
            Err(fault) => {
                open.push(None);
                answers.push(Some(Err(fault)));
            }
        }
    }
    let mut timer = pin!(tokio::time::sleep(timeout));
    poll_fn(|cx| {
        for (slot, answer) in open.iter_mut().zip(&mut answers) {
            if let Some(reply) = slot
                && let Poll::Ready(result) = reply.poll(cx, clock::now)
            {
                *answer = Some(result);
                *slot = None;
            }
        }
        if open.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            timer.as_mut().poll(cx)
        }
    })
    .await;
    answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(|| Err(Fault::new(FaultKind::Timeout))))
        .collect()
}
