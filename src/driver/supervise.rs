//! Keeps one lane connected: tries in the background, with backoff, for as long as it is wanted.
//!
//! Supervisors run in the service thread. A home lane's socket belongs to the application's
//! runtime, so its connecting is spawned there.

use super::clock;
use super::pool::{Pool, Route};
use super::random;
use crate::master::{Abilities, Connected, Fault, FaultKind, Lane, connect, delete};
use crate::quorum::{Mending, Retry};
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The first pause after a failed connection is below this, the last below the other: a master
/// that comes back votes again within a second, and one that is gone costs two small attempts
/// a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// The last pause where waiting alone mends nothing (a wrong password, a server that is too old):
/// the server's log is not filled with attempts.
const LASTING_PAUSE: Duration = Duration::from_secs(5);
/// How long a connection must last to count as one.
const PROVEN_AFTER: Duration = Duration::from_secs(1);
/// How many brief connections in a row are followed by another without a pause: a server that
/// restarts breaks one, a server that closes on every command breaks all.
const FREE_RECONNECTIONS: u32 = 3;
/// The longest pause before the next one: enough that it is no busy loop, little enough that a
/// network which cuts again and again is still used between its cuts.
const BRIEF_PAUSE: Duration = Duration::from_millis(20);
/// How long an undo may take on a connection that serves for nothing else.
const PAY_TIMEOUT: Duration = Duration::from_millis(500);
/// How long beyond its own timeout a connection attempt in the application's runtime may take:
/// a runtime that is not run does not answer.
const RUNTIME_GRACE: Duration = Duration::from_millis(500);

/// Keeps the lane of this master on this route connected, for as long as the future is polled.
pub(crate) async fn supervise(pool: Arc<Pool>, index: usize, route: Route) {
    let passing = Retry::new(FIRST_PAUSE, LAST_PAUSE);
    let lasting = Retry::new(FIRST_PAUSE, LASTING_PAUSE);
    let lane = Arc::clone(pool.masters[index].lane(route));
    let mut failures = 0_u32;
    // How many connections in a row ended as soon as they were made.
    let mut brief = 0_u32;
    let mut up_since = None;
    loop {
        if lane.is_up() || !pool.is_wanted(route) {
            lane.wake.notified().await;
            pool.changed.notify_waiters();
            continue;
        }
        if let Some(since) = up_since.take() {
            let lasted = clock::now().since(since) >= PROVEN_AFTER;
            brief = if lasted { 0 } else { brief.saturating_add(1) };
        }
        if brief > FREE_RECONNECTIONS {
            let pause = Retry::new(BRIEF_PAUSE, BRIEF_PAUSE).pause(brief, random::draw());
            tokio::time::sleep(pause).await;
        }
        let epoch = lane.begin();
        let tried = try_once(&pool, &lane, epoch, index, route).await;
        let fault = match tried {
            Ok(()) => {
                failures = 0;
                up_since = Some(clock::now());
                pool.changed.notify_waiters();
                continue;
            }
            Err(fault) => fault,
        };
        let retry = match fault.kind().mending() {
            Mending::Passing => passing,
            Mending::Lasting => lasting,
        };
        lane.fail(epoch, fault);
        failures = failures.saturating_add(1);
        pool.changed.notify_waiters();
        let pause = retry.pause(failures, random::draw());
        // Woken early where the lane was restarted for another runtime.
        if tokio::time::timeout(pause, lane.wake.notified())
            .await
            .is_ok()
        {
            failures = 0;
        }
    }
}

async fn try_once(
    pool: &Arc<Pool>,
    lane: &Arc<Lane>,
    epoch: u64,
    index: usize,
    route: Route,
) -> Result<(), Fault> {
    let info = pool.masters[index].info.clone();
    let timeout = pool.connect_timeout;
    let weak = Arc::downgrade(lane);
    let on_end = move || {
        if let Some(lane) = weak.upgrade() {
            lane.end(epoch, Fault::new(FaultKind::ConnectionLost), clock::now());
        }
    };
    let connected = match route {
        Route::Service => connect(&info, timeout, on_end).await?,
        Route::Home => {
            let home = pool
                .home()
                .ok_or_else(|| Fault::new(FaultKind::NotConnected))?;
            in_home(&home, timeout, async move {
                connect(&info, timeout, on_end).await
            })
            .await?
        }
    };
    let Connected {
        connection,
        abilities,
        identity,
    } = connected;
    if let Some(objection) = pool.identify(index, identity) {
        pay(lane, connection, abilities).await;
        return Err(objection);
    }
    if !lane.bring_up(epoch, connection, abilities, clock::now()) {
        return Err(Fault::new(FaultKind::ConnectionLost));
    }
    pool.wake_sweeper();
    Ok(())
}

/// Sends what is owed on a connection that may not vote, since no other may ever come.
///
/// A duplicate entry's undos reach the server they are owed to; a compare-and-delete harms nobody.
async fn pay(lane: &Lane, mut connection: MultiplexedConnection, abilities: Abilities) {
    let mut owed = lane.take_owed().into_iter();
    while let Some(undo) = owed.next() {
        let cmd = delete(abilities, &undo.key, &undo.token);
        let answer = connection.send_packed_command(&cmd);
        let answered = tokio::time::timeout(PAY_TIMEOUT, answer).await;
        // A server's error is a value here: it has deleted nothing.
        let paid = answered.is_ok_and(|answer| answer.and_then(Value::extract_error).is_ok());
        if !paid {
            std::iter::once(undo)
                .chain(owed)
                .for_each(|undo| lane.owe(undo, clock::now()));
            return;
        }
    }
}

/// Connects in the application's runtime, which may have ended or may not be running.
async fn in_home(
    home: &Handle,
    timeout: Duration,
    work: impl Future<Output = Result<Connected, Fault>> + Send + 'static,
) -> Result<Connected, Fault> {
    let task = home.spawn(work);
    let abort = task.abort_handle();
    match tokio::time::timeout(timeout.saturating_add(RUNTIME_GRACE), task).await {
        Ok(Ok(connected)) => connected,
        Ok(Err(_)) => Err(Fault::with_detail(
            FaultKind::NotConnected,
            "its runtime has ended",
        )),
        Err(_) => {
            abort.abort();
            Err(Fault::with_detail(
                FaultKind::NotConnected,
                "its runtime is not running",
            ))
        }
    }
}
