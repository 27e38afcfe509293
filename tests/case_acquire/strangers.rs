//! Servers that are no masters of their own: replicas, and one server behind two names.

use crate::{SOON, connect, fault, faults, ms, secs};
use quorumlock::{Error, ErrorKind, FaultKind, KeyState, Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Server, Stopwatch, eventually};

/// Makes one server a replica of another, and waits until it follows.
fn replicate(of: &Server, replica: &Server) {
    let port = of.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let follows = || {
        let info = replica.command(&["INFO", "replication"]).unwrap().text();
        info.contains("master_link_status:up")
    };
    assert!(eventually(secs(20), follows), "{}", replica.log());
}

#[track_caller]
fn check_replica(error: &Error, index: usize, of: &Server) {
    let fault = fault(error, index).unwrap_or_else(|| panic!("{error}"));
    assert_eq!(fault.kind(), FaultKind::Replica, "{error}");
    let port = of.port().to_string();
    assert!(fault.to_string().contains(&port), "{fault}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_33_a_replica_is_no_master() {
    let fleet = Fleet::start(3);
    replicate(&fleet[0], &fleet[1]);
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    // The key comes to the replica by replication, which makes it no vote.
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    assert_eq!(guard.grants(), 2);
    let status = redlock.status("a").await.unwrap();
    let replica = status.masters()[1].state();
    assert!(
        matches!(replica, KeyState::Failed(fault) if fault.kind() == FaultKind::Replica),
        "{replica:?}"
    );
    guard.extend(secs(30)).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);

    fleet[2].kill();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    check_replica(&error, 1, &fleet[0]);
    fleet.assert_no_key("a", SOON);

    // Promoted, it is a master and joins by itself.
    fleet[1].command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let guard = redlock.lock("a").wait(secs(10)).acquire().await.unwrap();
    assert_eq!(fleet.holders("a"), [0, 1]);
    guard.release().await.unwrap();
    fleet.assert_no_key("a", SOON);
}

/// A replica of an empty server answers 0 to a compare-and-delete, and that is no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_33_a_replicas_zero_does_not_say_that_the_lock_was_lost() {
    let fleet = Fleet::start(4);
    let redlock = connect(&fleet.urls()[..3]).await;
    let guard = redlock.lock("a").without_watchdog();
    let guard = guard.try_acquire().await.unwrap();
    for replica in &fleet[1..3] {
        replicate(&fleet[3], replica);
        // As a sentinel does when it turns a server into a replica.
        replica
            .command(&["CLIENT", "KILL", "TYPE", "normal"])
            .unwrap();
    }
    let failed = async || {
        let status = redlock.status("a").await.unwrap();
        status
            .masters()
            .iter()
            .filter(|of| matches!(of.state(), KeyState::Failed(fault) if fault.kind() == FaultKind::Replica))
            .count()
    };
    let watch = Stopwatch::start();
    while failed().await < 2 {
        assert!(watch.elapsed() < secs(10), "the replicas are not noticed");
    }
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    check_replica(&error, 1, &fleet[3]);
    check_replica(&error, 2, &fleet[3]);
    fleet.assert_no_key("a", SOON);
}

/// Our key on a master that is a replica for a while goes when that is over, not with its TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_33_what_a_demoted_master_is_owed_is_paid_when_it_is_promoted() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    // Of a master that is not there, so that it keeps its data.
    let demoted = &fleet[1];
    demoted.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    demoted
        .command(&["CLIENT", "KILL", "TYPE", "normal"])
        .unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(eventually(SOON, || fleet.holders("a") == [1]));
    // Several attempts to connect find a replica.
    tokio::time::sleep(ms(1_500)).await;
    demoted.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    fleet.assert_no_key("a", SOON);
}

/// Demoted under a living connection, it refuses writes, and two of three go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_33_a_master_that_becomes_a_replica_stops_nothing() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    replicate(&fleet[0], &fleet[1]);
    guard.extend(secs(30)).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert_eq!(guard.grants(), 2);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet[2].kill();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    let told = faults(&error)[1];
    assert!(
        matches!(told, Some(FaultKind::ReadOnly | FaultKind::Replica)),
        "{error}"
    );
    fleet.assert_no_key("a", SOON);
}

fn by_name(server: &Server) -> String {
    format!("redis://localhost:{}", server.port())
}

/// Refused, and both entries are named, by their hosts and ports.
async fn check_refused(urls: &[String]) {
    let error = Redlock::connect(urls).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadConfiguration, "{error}");
    let text = error.to_string();
    let named = urls
        .iter()
        .map(|url| url.trim_start_matches("redis://").trim_end_matches("/1"))
        .filter(|address| text.contains(*address))
        .count();
    assert!(named >= 2, "both are named: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_34_the_same_server_twice_is_refused() {
    let fleet = Fleet::start(2);
    let relay = Relay::to(fleet[0].address());
    let (one, other) = (fleet[0].url(), fleet[1].url());
    check_refused(&[one.clone(), by_name(&fleet[0]), other.clone()]).await;
    check_refused(&[one.clone(), one.clone(), one.clone()]).await;
    check_refused(&[one.clone(), format!("{one}/1"), other.clone()]).await;
    check_refused(&[one.clone(), relay.url(), other.clone()]).await;
    check_refused(&[relay.url(), other.clone(), by_name(&fleet[0])]).await;
    let local = Server::builder().unix_socket().start().unwrap();
    let socket = format!("unix://{}", local.socket().unwrap().display());
    let error = Redlock::connect([local.url(), one.clone(), socket.clone()]).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains(&local.address().to_string()), "{text}");
    assert!(
        text.contains(socket.trim_start_matches("unix://")),
        "{text}"
    );
    assert_eq!(fleet.total_keys(), 0);
    // With the refused handle its connections have ended.
    assert!(eventually(SOON, || relay.connections().open == 0));
    let redlock = connect(&[one, other]).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    drop((redlock, guard));
    fleet.assert_no_key("a", SOON);
}
