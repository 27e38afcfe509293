//! A quorum is one of the configured masters, and an error says who was in the way.

use crate::{SOON, connect, fault, faults, ms, secs};
use quorumlock::{Answer, ErrorKind, FaultKind, KeyState, Redlock, Released, Verdict};
use quorumlock_masters::{Fleet, Relay, Stopwatch, eventually};
use std::error::Error as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_01_two_of_five_are_no_quorum_though_they_are_all_that_answer() {
    let fleet = Fleet::start(5);
    for server in &fleet[2..] {
        server.kill();
    }
    let redlock = connect(&fleet.urls()).await;
    let watch = Stopwatch::start();
    let lock = redlock.lock("a").ttl(secs(30));
    let error = lock.clone().try_acquire().await.unwrap_err();
    assert!(watch.elapsed() < secs(3), "{:?}", watch.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!((error.failed(), error.quorum()), (3, 3), "{error}");
    assert_eq!(faults(&error)[2..], [Some(FaultKind::Unreachable); 3]);
    assert_eq!(faults(&error)[..2], [None; 2]);
    let error = lock.wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
    assert!(error.is_unreachable() && !error.is_held(), "{error}");
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_01_a_master_that_comes_up_later_joins_by_itself() {
    let fleet = Fleet::start(5);
    fleet[3].kill();
    fleet[4].kill();
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert_eq!(guard.grants(), 3);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);

    fleet[3].restart();
    fleet[0].kill();
    let guard = redlock.lock("a").wait(secs(10)).acquire().await.unwrap();
    assert_eq!(fleet.holders("a"), [1, 2, 3], "only with M4 is it a quorum");
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
}

/// A handle may be built before any of its masters: it says so at once, and works when they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_01_masters_that_all_come_up_later_join_by_themselves() {
    let fleet = Fleet::start(3);
    fleet.iter().for_each(|server| server.kill());
    let watch = Stopwatch::start();
    let redlock = connect(&fleet.urls()).await;
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(watch.elapsed() < secs(3), "{:?}", watch.elapsed());
    assert_eq!(error.failed(), 3, "{error}");
    let waiting = tokio::spawn(redlock.lock("a").wait(secs(20)).acquire());
    fleet.iter().for_each(|server| server.restart());
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_17_a_retry_is_not_blocked_by_its_own_earlier_attempt() {
    let fleet = Fleet::start(3);
    let relay = Relay::to(fleet[2].address());
    let urls = [fleet[0].url(), fleet[1].url(), relay.url()];
    let builder = Redlock::builder().masters(urls).retry(ms(100), ms(100));
    let redlock = builder.connect().await.unwrap();
    for server in &fleet[..2] {
        server
            .command(&["SET", "a", "another", "PX", "250"])
            .unwrap();
    }
    // Its own SET on M3 would stand there for 5 s: longer than the wait.
    let lock = redlock.lock("a").ttl(secs(5)).wait(secs(3));
    let waiting = tokio::spawn(lock.acquire());
    let first = relay.wait_for(SOON, |request| request.name() == "SET");
    assert!(first.is_some_and(|request| request.mentions("a")));
    fleet[0].kill();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(fleet.holders("a"), [1, 2]);
    for server in &fleet[1..] {
        assert_eq!(server.get("a").unwrap(), guard.token().as_bytes());
    }
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn case_20_acquired_in_one_task_released_in_another() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    for round in 0..100 {
        let lock = redlock.lock("a");
        let guard = tokio::spawn(lock.try_acquire()).await.unwrap().unwrap();
        let released = tokio::spawn(async move {
            assert!(guard.is_held());
            guard.release().await.unwrap()
        });
        assert_eq!(released.await.unwrap(), Released::WasOurs, "round {round}");
    }
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    fleet.assert_no_key("a", SOON);
}

/// How many of three masters are taken and how many down, and what is made of it.
async fn check_in_the_way(taken: usize, down: usize, expected: ErrorKind) -> String {
    let fleet = Fleet::start(3);
    for server in &fleet[..taken] {
        server
            .command(&["SET", "a", "another", "PX", "60000"])
            .unwrap();
    }
    for server in &fleet[3 - down..] {
        server.kill();
    }
    let redlock = connect(&fleet.urls()).await;
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
    assert_eq!(error.failed(), down, "{error}");
    assert_eq!(error.is_held(), down < 2, "{error}");
    for master in &error.masters()[..3 - down] {
        assert!(!matches!(master.answer(), Answer::Failed(_)), "{error}");
    }
    // The chain goes down to what the operating system said.
    let mut cause = error.source();
    let mut refused = false;
    while let Some(inner) = cause {
        refused |= inner
            .downcast_ref::<redis::RedisError>()
            .is_some_and(redis::RedisError::is_connection_refusal);
        cause = inner.source();
    }
    assert!(refused, "{error:?}");
    for server in fleet.iter().filter(|server| server.is_running()) {
        assert_eq!(server.get("a").unwrap(), b"another");
    }
    let waited = redlock.lock("a").wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::GaveUp, "{waited}");
    assert_eq!(waited.is_held(), waited.denied() > 0, "{waited}");
    assert!(down == 2 || waited.is_held() == (down < 2), "{waited}");
    assert_eq!(waited.is_unreachable(), down >= 2, "{waited}");
    assert!(fault(&waited, 2).is_some(), "{waited}");
    let answers = error.to_string();
    let (_, answers) = answers.split_once(';').unwrap();
    answers.replace(|c: char| c.is_ascii_digit(), "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_37_taken_and_down_are_told_apart() {
    let two_taken = check_in_the_way(2, 1, ErrorKind::Held).await;
    let two_down = check_in_the_way(1, 2, ErrorKind::Unreachable).await;
    let all_down = check_in_the_way(0, 3, ErrorKind::Unreachable).await;
    assert_ne!(two_taken, two_down);
    assert_ne!(two_down, all_down);
    assert_ne!(two_taken, all_down);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_the_holder_is_known_while_a_master_is_down() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    let guard = redlock.lock("a").acquire().await.unwrap();
    assert!(eventually(SOON, || fleet.holders("a") == [0, 1, 2]));
    fleet[0].kill();
    for asked in [redlock.clone(), connect(&fleet.urls()).await] {
        let status = asked.status("a").await.unwrap();
        let held = Verdict::Held {
            token: guard.token().into(),
            masters: 2,
        };
        assert_eq!(status.verdict(), held);
        assert_eq!((status.answered(), status.quorum()), (2, 2));
        let states: Vec<_> = status.masters().iter().map(|of| of.state()).collect();
        assert!(
            matches!(states[0], KeyState::Failed(fault) if fault.kind() != FaultKind::Timeout),
            "{states:?}"
        );
        for state in &states[1..] {
            let KeyState::Held { token, ttl_left } = state else {
                panic!("{state:?}");
            };
            assert_eq!(token, guard.token().as_bytes());
            assert!(
                *ttl_left > secs(20) && *ttl_left <= secs(30),
                "{ttl_left:?}"
            );
        }
    }
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("a", SOON);
    assert_eq!(
        redlock.status("a").await.unwrap().verdict(),
        Verdict::Free,
        "two of three are free"
    );
}
