//! One bad master spoils nothing, two of three are told as what they are: the whole matrix.

use crate::spoilt::{
    Bad, real_busy, real_demoted, real_killed, real_misconfigured, real_out_of_memory,
    real_password, real_rights, real_stopped, real_without_replicas, relayed, slow,
};
use crate::{SOON, connect, faults, ms, secs};
use quorumlock::{ErrorKind, FaultKind, KeyState, Redlock, Released, Status};
use quorumlock_masters::{
    ConnectFault, Fault, FaultRule, Fleet, Reply, Rule, Stopwatch, eventually,
};
use std::time::Duration;

/// How much slower an acquisition may be for one bad master, by the median; on a machine that is
/// busy with other things, as much again as without it.
const SLOWER: Duration = Duration::from_millis(10);
const ROUNDS: usize = 15;

/// One acquisition and release, and how long the former took.
async fn cycle(redlock: &Redlock, resource: &str, expected_grants: usize) -> Duration {
    let watch = Stopwatch::start();
    let guard = redlock.lock(resource).try_acquire().await.unwrap();
    let took = watch.elapsed();
    assert!(guard.grants() >= 2 && guard.grants() <= expected_grants);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Every master has been tried: what can be connected is.
async fn settle(redlock: &Redlock) {
    let watch = Stopwatch::start();
    let untried = |status: &Status| {
        let not_yet = |state: &KeyState| matches!(state, KeyState::Failed(fault) if fault.kind() == FaultKind::NotConnected);
        status.masters().iter().any(|of| not_yet(of.state()))
    };
    while untried(&redlock.status("a").await.unwrap()) && watch.elapsed() < secs(5) {}
}

/// M3 is bad: won with 2 of 3, and no slower after the first call.
async fn check_one(bad: &Bad, grants: usize) {
    let fleet = Fleet::start(3);
    let healthy = connect(&fleet.urls()).await;
    let urls = [&fleet[0].url(), &fleet[1].url(), &bad.url];
    // A timeout that is never waited for: the bad one costs nothing.
    let builder = Redlock::builder().masters(urls).attempt_timeout(secs(10));
    let spoilt = builder.connect().await.unwrap();
    settle(&spoilt).await;
    bad.spoil();
    cycle(&spoilt, "a", grants).await;
    let (mut good, mut with_bad) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        good.push(cycle(&healthy, "healthy", 3).await);
        with_bad.push(cycle(&spoilt, "a", grants).await);
    }
    let (good, with_bad) = (median(good), median(with_bad));
    assert!(
        with_bad <= good * 2 + SLOWER,
        "{with_bad:?}, healthy {good:?}"
    );
    bad.mend();
    assert!(eventually(SOON, || !bad.has_key("a")));
    fleet.assert_no_key("a", SOON);
}

/// M2 and M3 are bad: refused in time, both reasons told, nothing left on M1.
async fn check_two(bad: [Bad; 2], expected: &[FaultKind], lasting: bool) {
    let fleet = Fleet::start(1);
    let redlock = connect(&[&fleet[0].url(), &bad[0].url, &bad[1].url]).await;
    settle(&redlock).await;
    bad.iter().for_each(Bad::spoil);
    let watch = Stopwatch::start();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    // The per-master timeout of a TTL of 30 s is one second.
    assert!(watch.elapsed() < secs(2), "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    check_reasons(&error, expected);
    fleet.assert_no_key("a", SOON);

    let watch = Stopwatch::start();
    let patience = if lasting { secs(20) } else { ms(400) };
    let error = redlock
        .lock("a")
        .wait(patience)
        .acquire()
        .await
        .unwrap_err();
    assert!(watch.elapsed() < secs(3), "{:?}", watch.elapsed());
    let kind = if lasting {
        ErrorKind::Unreachable
    } else {
        ErrorKind::GaveUp
    };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_unreachable(), "{error}");
    // A master that broke off may not yet have heard the rollback of the attempt before.
    check_reasons(&error, &[expected, &[FaultKind::BehindOwnUndo]].concat());
    fleet.assert_no_key("a", SOON);
    bad.iter().for_each(Bad::mend);
    for master in &bad {
        assert!(eventually(SOON, || !master.has_key("a")));
    }
}

fn check_reasons(error: &quorumlock::Error, expected: &[FaultKind]) {
    let paragraph = error.to_string();
    assert!(!paragraph.contains(['\r', '\n']), "{paragraph:?}");
    let told = faults(error);
    assert_eq!(told[0], None, "M1 is well: {error}");
    for fault in &told[1..] {
        let fault = fault.unwrap_or_else(|| panic!("no reason is told: {error}"));
        assert!(expected.contains(&fault), "not {expected:?}: {error}");
    }
}

async fn check(make: impl Fn() -> Bad, expected: &[FaultKind]) {
    check_one(&make(), 2).await;
    check_two([make(), make()], expected, false).await;
}

/// As `check`, for what waiting cannot mend.
async fn check_lasting(make: impl Fn() -> Bad, expected: &[FaultKind]) {
    check_one(&make(), 2).await;
    check_two([make(), make()], expected, true).await;
}

/// Writes one test of the matrix: its name, the way of checking, the bad master, the faults told.
macro_rules! behaviours {
    ($($name:ident: $check:ident($make:expr) tells $($fault:ident)|+;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $check(|| $make, &[$(FaultKind::$fault),+]).await;
            }
        )+
    };
}

behaviours! {
    case_18_closed_port: check(Bad::closed_port()) tells Unreachable;
    case_18_killed: check(real_killed()) tells Unreachable | ConnectionLost;
    case_18_garbage_as_greeting: check(Bad::on_connect(ConnectFault::Garbage(http()))) tells Protocol;
    case_18_garbage_as_answer: check(on_set(Fault::Garbage(http()))) tells Protocol | ConnectionLost;
    case_18_garbage_always: check(always(Fault::Garbage(http()))) tells Protocol;
    case_18_another_answer: check(on_set(Fault::Answer(Reply::Int(7)))) tells Protocol;
    case_18_half_an_answer: check(on_set(Fault::HalfThenSilence)) tells Timeout | Unresponsive;
    case_18_cut_in_mid_answer: check(on_set(Fault::HalfThenCut)) tells ConnectionLost;
    case_18_cut_before_the_answer: check(on_set(Fault::Cut)) tells ConnectionLost;
    case_18_done_and_cut: check(
        Bad::later(FaultRule::on("SET", Fault::Cut).after_effect())
    ) tells ConnectionLost;
    case_18_closes_at_once: check(
        Bad::on_connect(ConnectFault::Close)
    ) tells ConnectionLost | Unreachable;
    case_18_silent_from_the_start: check(
        Bad::on_connect(ConnectFault::Silence)
    ) tells Timeout | NotConnected;
    case_18_silent_later: check(on_set(Fault::Silence)) tells Timeout | Unresponsive;
    case_18_stopped: check(real_stopped()) tells Timeout | Unresponsive;
    case_18_black_hole_real: check(
        relayed(|relay| relay.both(Rule::Drop))
    ) tells Timeout | Unresponsive;
    case_18_answers_swallowed_real: check(
        relayed(|relay| relay.answers(Rule::Drop))
    ) tells Timeout | Unresponsive;
    case_18_noauth: check_lasting(always(noauth())) tells Auth;
    case_18_noauth_real: check_lasting(real_password("")) tells Auth;
    case_18_wrongpass_real: check_lasting(real_password(":other@")) tells Auth;
    case_18_noauth_later: check_lasting(on_set(noauth())) tells Auth;
    case_18_noperm: check_lasting(
        Bad::error("NOPERM User u has no permissions to run the 'set' command")
    ) tells NoPermission;
    case_18_noperm_real: check_lasting(real_rights(&["-set"])) tells NoPermission;
    case_18_noperm_for_the_key_real: check_lasting(
        real_rights(&["resetkeys", "~other:*"])
    ) tells NoPermission;
    case_18_loading: check(Bad::error("LOADING Redis is loading the dataset in memory")) tells Loading;
    case_18_loading_from_the_start: check(
        always(Fault::error("LOADING Redis is loading the dataset in memory"))
    ) tells Loading;
    case_18_readonly: check(
        Bad::error("READONLY You can't write against a read only replica.")
    ) tells ReadOnly;
    case_18_readonly_real: check(real_demoted()) tells ReadOnly | Replica;
    case_18_oom: check(
        Bad::error("OOM command not allowed when used memory > 'maxmemory'.")
    ) tells OutOfMemory;
    case_18_oom_real: check(real_out_of_memory()) tells OutOfMemory;
    case_18_misconf: check(
        Bad::error("MISCONF Redis is configured to save RDB snapshots, but it cannot.")
    ) tells Misconfigured;
    case_18_misconf_real: check(real_misconfigured()) tells Misconfigured;
    case_18_busy: check(Bad::error("BUSY Redis is busy running a script.")) tells Busy;
    case_18_busy_real: check(real_busy()) tells Busy;
    case_18_noreplicas_real: check(real_without_replicas()) tells Server;
    case_18_an_error_of_no_known_kind: check(Bad::error("NEWCODE something else")) tells Server;
}

fn http() -> Vec<u8> {
    b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()
}

fn noauth() -> Fault {
    Fault::error("NOAUTH Authentication required.")
}

fn on_set(fault: Fault) -> Bad {
    Bad::later(FaultRule::on("SET", fault))
}

fn always(fault: Fault) -> Bad {
    Bad::from_the_start(FaultRule::any(fault))
}

/// A master that is merely slow grants in the end, but nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_slow() {
    check_one(&slow(), 3).await;
    let expected = [FaultKind::Timeout, FaultKind::Unresponsive];
    check_two([slow(), slow()], &expected, false).await;
}

/// Two hosts that no name server knows: the names must differ, or they are one entry twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_unknown_host() {
    let unknown = |host: &str| Bad::nowhere(format!("redis://{host}.invalid:6379"));
    check_one(&unknown("none"), 2).await;
    // Where a name server is silent, the attempt to connect ends by its own timeout.
    let expected = [
        FaultKind::Unreachable,
        FaultKind::Timeout,
        FaultKind::NotConnected,
    ];
    check_two([unknown("none"), unknown("nobody")], &expected, false).await;
}

/// A key of another type on two masters is no lock of anybody, and waiting does not make it one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_wrongtype_real() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    fleet[2].command(&["RPUSH", "a", "1"]).unwrap();
    cycle(&redlock, "a", 2).await;
    fleet[1].command(&["RPUSH", "a", "1"]).unwrap();
    let watch = Stopwatch::start();
    let lock = redlock.lock("a").wait(secs(20));
    let error = lock.acquire().await.unwrap_err();
    assert!(watch.elapsed() < secs(3), "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    assert!(error.is_not_a_lock() && !error.is_held(), "{error}");
    assert!(eventually(SOON, || !fleet[0].exists("a")));
    for server in &fleet[1..] {
        let left = server.command(&["LRANGE", "a", "0", "-1"]).unwrap();
        assert_eq!(left, Reply::Array(vec![Reply::bulk("1")]), "left alone");
    }
}

/// Two masters that answer WRONGTYPE to the SET itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_wrongtype_as_an_answer() {
    let fleet = Fleet::start(1);
    let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
    check_one(&Bad::error(text), 2).await;
    let bad = [Bad::error(text), Bad::error(text)];
    let redlock = connect(&[&fleet[0].url(), &bad[0].url, &bad[1].url]).await;
    bad.iter().for_each(Bad::spoil);
    let watch = Stopwatch::start();
    let lock = redlock.lock("a").wait(secs(20));
    let error = lock.acquire().await.unwrap_err();
    assert!(watch.elapsed() < secs(3), "{:?}", watch.elapsed());
    assert_eq!(faults(&error)[1..], [Some(FaultKind::WrongType); 2]);
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    fleet.assert_no_key("a", SOON);
}
