//! One direction of one connection: a reader that never waits for the writer, and a writer that obeys the rules.
//!
//! The reader asks the rule when bytes arrive (a delay counts from then), the writer when they are due (holding).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::accept::Open;
use super::rules::{Close, Rule, Rules, Shared, Way};
use crate::clock::timer_now;
use crate::lock;
use crate::resp::CommandParser;

enum Part {
    Bytes(Vec<u8>),
    End,
}

/// Moves bytes until the source has ended and all is delivered.
///
/// An error says that the whole connection is to be closed, and how.
pub(super) async fn pipe(
    id: u64,
    from: &TcpStream,
    to: &TcpStream,
    way: Way,
    shared: &Shared,
    rules: watch::Receiver<Rules>,
    open: Option<Open>,
) -> Result<(), Close> {
    let (queue, queued) = mpsc::unbounded_channel();
    let lost = AtomicBool::new(false);
    let reader = async {
        read(id, from, way, shared, &rules, queue, &lost).await;
        drop(open);
        Ok(())
    };
    let writer = write(to, way, shared, rules.clone(), queued, &lost);
    tokio::try_join!(reader, writer).map(|_| ())
}

async fn read(
    id: u64,
    from: &TcpStream,
    way: Way,
    shared: &Shared,
    rules: &watch::Receiver<Rules>,
    queue: mpsc::UnboundedSender<(Instant, Part)>,
    lost: &AtomicBool,
) {
    let mut parser = CommandParser::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from
            .ready(Interest::READABLE)
            .await
            .and_then(|_| from.try_read(&mut buffer))
        {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => 0,
            Ok(count) => count,
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if way == Way::Requests {
            for args in parser.push(bytes) {
                lock(&shared.log).note(id, args);
            }
        }
        let rule = rules.borrow().of(way);
        let arrived = timer_now();
        let due = if let Rule::Delay(time) = rule {
            arrived + time
        } else {
            arrived
        };
        if rule == Rule::Drop {
            lost.store(true, Ordering::Relaxed);
        }
        let part = if count == 0 {
            Part::End
        } else {
            Part::Bytes(bytes.to_vec())
        };
        if !lost.load(Ordering::Relaxed) && queue.send((due, part)).is_err() {
            return;
        }
        if count == 0 {
            return;
        }
    }
}

async fn write(
    to: &TcpStream,
    way: Way,
    shared: &Shared,
    mut rules: watch::Receiver<Rules>,
    mut queue: mpsc::UnboundedReceiver<(Instant, Part)>,
    lost: &AtomicBool,
) -> Result<(), Close> {
    let mut broken = false;
    while let Some((due, part)) = queue.recv().await {
        tokio::time::sleep_until(due).await;
        let Ok(rule) = rules
            .wait_for(|rules| rules.of(way) != Rule::Hold)
            .await
            .map(|rules| rules.of(way))
        else {
            return Err(Close::Finish);
        };
        if rule == Rule::Drop {
            lost.store(true, Ordering::Relaxed);
        }
        // A receiver that is gone does not stop the other direction, so the rest is drained.
        if broken || lost.load(Ordering::Relaxed) {
            continue;
        }
        broken = match part {
            Part::End => shut(to),
            Part::Bytes(bytes) => {
                let (sent, cut) = if way == Way::Answers {
                    within_budget(shared, &bytes)
                } else {
                    (bytes.as_slice(), false)
                };
                let failed = write_all(to, sent).await;
                if cut {
                    return Err(Close::Finish);
                }
                failed
            }
        };
    }
    Ok(())
}

/// How much of an answer may still pass, and whether the connection is closed behind it.
fn within_budget<'a>(shared: &Shared, bytes: &'a [u8]) -> (&'a [u8], bool) {
    let mut budget = lock(&shared.answer_budget);
    match *budget {
        None => (bytes, false),
        Some(left) if bytes.len() < left => {
            *budget = Some(left - bytes.len());
            (bytes, false)
        }
        Some(left) => {
            *budget = None;
            (bytes.get(..left).unwrap_or(bytes), true)
        }
    }
}

/// Writes all; true if the other side is gone.
async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to
            .ready(Interest::WRITABLE)
            .await
            .and_then(|_| to.try_write(bytes))
        {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}

/// Passes the end of the stream on; true if the other side is gone.
fn shut(to: &TcpStream) -> bool {
    rustix::net::shutdown(to, Shutdown::Write).is_err()
}
