//! Extensions that fail on scripted masters: kept by the watchdog, harmless by hand (cases 10, 11).

use crate::support::{is_delete, is_extension, let_go, ms};
use quorumlock::{ErrorKind, Redlock};
use quorumlock_masters::{Fault, FaultRule, ScriptedMaster, Stopwatch, eventually};
use std::time::Duration;

const TTL: Duration = ms(1_500);
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

async fn three() -> (Vec<ScriptedMaster>, Redlock) {
    let masters: Vec<_> = (0..3).map(|_| ScriptedMaster::start()).collect();
    let redlock = Redlock::connect(masters.iter().map(ScriptedMaster::url)).await;
    (masters, redlock.unwrap())
}

/// The next extension on these masters is answered with BUSY.
fn busy_once(masters: &[ScriptedMaster]) -> Vec<quorumlock_masters::RuleId> {
    let once = || {
        FaultRule::on("EVAL", Fault::error(BUSY))
            .containing("PEXPIRE")
            .times(1)
    };
    masters.iter().map(|master| master.rule(once())).collect()
}

fn no_key(masters: &[ScriptedMaster]) {
    for master in masters {
        assert!(eventually(ms(500), || !master.exists("a")), "a key is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_one_failed_extension_does_not_end_the_watchdog() {
    let (masters, redlock) = three().await;
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    let rules = busy_once(&masters[..2]);
    let struck = || {
        (0..2)
            .map(|index| masters[index].struck(rules[index]))
            .sum::<u64>()
    };
    assert!(eventually(TTL, || struck() == 2), "no extension was sent");
    assert!(guard.is_held(), "one failure is no loss");
    let early = tokio::time::timeout(TTL * 2, guard.lost()).await;
    assert!(early.is_err(), "lost: {early:?}");
    assert!(guard.is_held() && guard.remaining() > TTL / 3);
    for master in &masters[..2] {
        let extensions = master.commands_of("EVAL");
        let times: Vec<_> = extensions.iter().filter(|r| is_extension(r)).collect();
        assert!(times.len() >= 3, "only {} extensions", times.len());
        let again = times[1].at.saturating_sub(times[0].at);
        assert!(again < TTL / 3, "the next try came after {again:?}");
    }
    let_go(&guard).await;
    no_key(&masters);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_11_a_failed_extension_destroys_nothing() {
    let (masters, redlock) = three().await;
    let lock = redlock.lock("a").ttl(TTL * 4).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    let rules = busy_once(&masters[..2]);
    let (watch, before) = (Stopwatch::start(), guard.remaining());
    let error = guard.extend(TTL * 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(
        error.failed(),
        2,
        "who was not waited for did not fail: {error}"
    );
    assert!(error.to_string().contains("BUSY"), "{error}");
    let after = guard.remaining();
    let moved = (after + watch.elapsed()).abs_diff(before);
    assert!(moved < ms(20), "the end of the validity moved by {moved:?}");
    assert!(guard.is_held() && guard.loss().is_none());
    assert_eq!(masters[0].struck(rules[0]), 1);

    let longer = guard.extend(TTL * 8).await.unwrap();
    assert!(longer >= TTL * 8, "{longer:?}");
    assert!(guard.remaining() > before);
    for master in &masters {
        assert!(master.exists("a"));
        let deletes: Vec<_> = master.commands().into_iter().filter(is_delete).collect();
        assert!(deletes.is_empty(), "{deletes:?}");
    }
    let_go(&guard).await;
    no_key(&masters);
}
