//! Server errors are told apart: what each stops, what it lets through, and what passes by.

use crate::spoilt::{run, url_of_user};
use crate::{SOON, connect, fault, faults, ms, secs};
use quorumlock::{ErrorKind, FaultKind, Released};
use quorumlock_masters::{Fault, FaultRule, Fleet, ScriptedMaster, Stopwatch, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_full_memory_stops_acquiring_but_neither_extension_nor_release() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").ttl(ms(600)).acquire().await.unwrap();
    let by_hand = redlock.lock("b").without_watchdog().acquire().await;
    let by_hand = by_hand.unwrap();
    assert!(eventually(SOON, || fleet.holders("b") == [0, 1, 2]));
    for server in fleet.iter() {
        run(server, &["CONFIG", "SET", "maxmemory", "1"]);
    }
    let error = redlock.lock("c").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.failed() >= 2, "{error}");
    for told in faults(&error).into_iter().flatten() {
        assert_eq!(told, FaultKind::OutOfMemory, "{error}");
    }
    let before = by_hand.remaining();
    by_hand.extend(secs(50)).await.unwrap();
    assert!(by_hand.remaining() > before + secs(10));
    assert_eq!(by_hand.release().await.unwrap(), Released::WasOurs);
    tokio::time::sleep(ms(900)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    for key in ["a", "b", "c"] {
        fleet.assert_no_key(key, SOON);
    }
}

/// All that a lock needs on a server that has no native compare-and-delete, but these.
fn all_but(missing: &[&str]) -> Vec<String> {
    let needed = [
        "hello", "auth", "client", "ping", "info", "set", "get", "pttl", "eval", "del", "pexpire",
    ];
    let rights = needed.iter().filter(|right| !missing.contains(right));
    std::iter::once("-@all".to_owned())
        .chain(rights.map(|right| format!("+{right}")))
        .collect()
}

fn urls_with_rights(fleet: &Fleet, rights: &[String]) -> Vec<String> {
    let rights: Vec<_> = rights.iter().map(String::as_str).collect();
    let url = |server| url_of_user(server, &rights);
    fleet.iter().map(url).collect()
}

/// The server's answer is a plain ERR here, and what it means is said all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_a_script_without_the_right_to_delete_is_no_permission() {
    let fleet = Fleet::start(3);
    let redlock = connect(&urls_with_rights(&fleet, &all_but(&["del"]))).await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    let watch = Stopwatch::start();
    let error = guard.release().await.unwrap_err();
    assert!(watch.elapsed() < secs(2), "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    for told in faults(&error) {
        assert!(
            matches!(told, Some(FaultKind::NoPermission | FaultKind::Timeout)),
            "{error}"
        );
    }
    let told = |index| fault(&error, index).map(ToString::to_string);
    let told: Vec<_> = (0..3).filter_map(told).collect();
    let says_why = |text: &&String| text.contains("executing the script");
    assert!(told.iter().filter(says_why).count() >= 2, "{error}");
    assert!(!guard.is_held(), "let go, whatever the masters say");
    // A refused release keeps the token: with the right it goes through by itself.
    for server in fleet.iter() {
        run(server, &["ACL", "SETUSER", "u", "+del"]);
    }
    fleet.assert_no_key("a", SOON);
    assert!(guard.release().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_a_script_without_the_right_to_extend_undoes_nothing() {
    let fleet = Fleet::start(3);
    let redlock = connect(&urls_with_rights(&fleet, &all_but(&["pexpire"]))).await;
    let lock = redlock.lock("a").ttl(secs(20));
    let guard = lock.without_watchdog().acquire().await.unwrap();
    let error = guard.extend(secs(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let told = faults(&error);
    let forbidden = |told: &&Option<FaultKind>| **told == Some(FaultKind::NoPermission);
    assert!(told.iter().filter(forbidden).count() >= 2, "{error}");
    assert!(guard.is_held() && guard.remaining() > secs(10));
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
}

/// What a server may forbid without harm: a lock needs neither INFO nor PTTL to be taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_a_server_may_forbid_what_is_only_useful() {
    let fleet = Fleet::start(3);
    let rights = all_but(&["info", "client", "pttl", "ping"]);
    let redlock = connect(&urls_with_rights(&fleet, &rights)).await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held, "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
}

/// An error that passes by is waited out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_loading_and_busy_pass_by() {
    for text in [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots, but it cannot.",
    ] {
        let masters: Vec<_> = (0..3).map(|_| ScriptedMaster::start()).collect();
        let urls: Vec<_> = masters.iter().map(ScriptedMaster::url).collect();
        let redlock = connect(&urls).await;
        let fault = Fault::error(text);
        let rules: Vec<_> = masters[1..]
            .iter()
            .map(|of| of.rule(FaultRule::on("SET", fault.clone()).times(3)))
            .collect();
        let lock = redlock.lock("a").wait(secs(20));
        let guard = lock.acquire().await.unwrap();
        // Two of three in the way: it was won when the first of them had said it three times. (The
        // other may have been connected later, and have said it less often.)
        let struck = [masters[1].struck(rules[0]), masters[2].struck(rules[1])];
        assert!(struck.contains(&3), "{text}: {struck:?}");
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        for master in &masters {
            assert!(eventually(SOON, || !master.exists("a")));
        }
    }
}

/// One master that never will, and one that only cannot now: the wait goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_a_lasting_fault_of_a_minority_does_not_end_the_wait() {
    let masters: Vec<_> = (0..3).map(|_| ScriptedMaster::start()).collect();
    let urls: Vec<_> = masters.iter().map(ScriptedMaster::url).collect();
    let redlock = connect(&urls).await;
    masters[1].reply_to("SET", Fault::error("NOPERM no right to 'set'"));
    masters[2].rule(FaultRule::on("SET", Fault::error("BUSY a script")).times(3));
    let lock = redlock.lock("a").wait(secs(20));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.grants(), 2);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    for master in &masters {
        assert!(eventually(SOON, || !master.exists("a")));
    }
}
