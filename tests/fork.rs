//! After a fork, in the child, locks and handles are lost and send nothing (R30).
//!
//! The process that forks is this binary again, run for one test alone, so that few threads are cut off by the fork.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![cfg(unix)]

use fork::Fork;
use quorumlock::{ErrorKind, Guard, Loss, Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Stopwatch, eventually};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, exit};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const FORKING: &str = "QUORUMLOCK_TEST_FORKS";
const SOON: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn r30_a_forked_child_holds_nothing_and_sends_nothing() {
    let itself = std::env::current_exe().unwrap();
    let watch = Stopwatch::start();
    let run = Command::new(itself)
        .args(["--exact", "forks_when_asked_to", "--nocapture"])
        .env(FORKING, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let complaints = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{complaints}");
    assert!(said.contains("1 passed"), "{said}");
    assert!(watch.elapsed() < LONG * 2, "{:?}", watch.elapsed());
}

/// Not a test of its own: what the process does that is started above.
#[test]
fn forks_when_asked_to() {
    if std::env::var_os(FORKING).is_none() {
        return;
    }
    let fleet = Fleet::start(3);
    let relays: Vec<_> = fleet.iter().map(|of| Relay::to(of.address())).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (redlock, guard) = runtime.block_on(async {
        let urls = relays.iter().map(Relay::url);
        let redlock = Redlock::connect(urls).await.unwrap();
        let guard = redlock.lock("a").ttl(LONG).acquire().await.unwrap();
        (redlock, guard)
    });
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    // Once every connection is made nothing is sent until the first extension, a third of the
    // TTL later.
    let sent = || relays.iter().map(|relay| relay.log().len()).sum::<usize>();
    assert!(eventually(SOON, || {
        let before = sent();
        quorumlock_masters::pause(Duration::from_millis(200));
        before == sent()
    }));
    relays.iter().for_each(Relay::clear_log);
    let child = match fork::fork().unwrap() {
        Fork::Child => in_the_child(redlock, guard),
        Fork::Parent(child) => child,
    };
    let mut status = None;
    let ended = eventually(LONG / 4, || {
        status = fork::waitpid_nohang(child).unwrap();
        status.is_some()
    });
    assert!(ended, "the child hangs");
    assert_eq!(status, Some(0), "the child's status");
    for relay in &relays {
        let sent: Vec<_> = relay.log().iter().map(|request| request.text()).collect();
        assert!(sent.is_empty(), "{sent:?}");
        assert!(relay.connections().open >= 1, "a connection was closed");
    }
    assert!(guard.is_held());
    runtime.block_on(async {
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        let next = redlock.lock("b").acquire().await.unwrap();
        assert_eq!(next.release().await.unwrap(), Released::WasOurs);
    });
    fleet.assert_no_key("a", SOON);
    fleet.assert_no_key("b", SOON);
}

/// Checks everything, then ends this process without running what belongs to the parent.
fn in_the_child(redlock: Redlock, guard: Guard) -> ! {
    let checked = catch_unwind(AssertUnwindSafe(|| check_in_the_child(redlock, guard)));
    exit(i32::from(checked.is_err()));
}

fn check_in_the_child(redlock: Redlock, guard: Guard) {
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.loss(), Some(Loss::Forked));
    assert_eq!(at_once(guard.lost()), Loss::Forked);
    let held = guard.held();
    assert!(!held.is_held());
    assert_eq!(at_once(held.lost()), Loss::Forked);
    for _ in 0..2 {
        let error = at_once(guard.release()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(error.loss(), Some(Loss::Forked));
    }
    let error = at_once(guard.extend(SOON)).unwrap_err();
    assert!(error.is_lost(), "{error}");
    let error = at_once(redlock.lock("b").acquire()).unwrap_err();
    assert!(error.is_closed(), "{error}");
    let run = at_once(redlock.lock("b").run(|_| async {})).unwrap_err();
    assert!(run.not_acquired().unwrap().is_closed(), "{run}");
    let error = at_once(redlock.release("a", guard.token())).unwrap_err();
    assert!(error.is_closed(), "{error}");
    let error = at_once(redlock.force_release("a")).unwrap_err();
    assert!(error.is_closed(), "{error}");
    assert!(at_once(redlock.close(LONG)).is_empty());
    drop(held);
    drop(guard);
    drop(redlock);
}

/// The result of a future that must not wait for anything: there is no runtime here.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits for something"),
    }
}
