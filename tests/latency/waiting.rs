//! Waits end when they were told to, say who was in the way, and load nobody (cases 25, 27).

use crate::{SOON, alone, ms};
use quorumlock::{ErrorKind, Redlock};
use quorumlock_masters::{Fleet, Server, Stopwatch, eventually, pause};
use std::time::Duration;

const PATIENCE: Duration = ms(300);

/// A handle that pauses for a second between attempts, far beyond the patience.
async fn connect(urls: Vec<String>) -> Redlock {
    let builder = Redlock::builder().masters(urls).retry(ms(1_000), ms(1_000));
    builder.connect().await.unwrap()
}

/// Waits several times, and checks when it was back: never early, and on time.
async fn gives_up_in_time(redlock: &Redlock) -> quorumlock::Error {
    let mut last = None;
    let mut times = Vec::new();
    for _ in 0..5 {
        let watch = Stopwatch::start();
        let error = redlock.lock("a").wait(PATIENCE).acquire().await;
        times.push(watch.elapsed());
        last = Some(error.unwrap_err());
    }
    times.sort();
    assert!(times[0] >= ms(280), "back too early: {times:?}");
    assert!(times[2] <= ms(320), "back too late: {times:?}");
    assert!(times[4] < ms(1_000), "it paused to the end: {times:?}");
    last.unwrap()
}

#[test]
fn case_25_a_wait_ends_at_its_deadline_and_says_who_was_in_the_way() {
    alone(async {
        let fleet = Fleet::start(3);
        let holder = Redlock::connect(fleet.urls()).await.unwrap();
        let guard = holder.lock("a").acquire().await.unwrap();
        let redlock = connect(fleet.urls()).await;
        let error = gives_up_in_time(&redlock).await;
        assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
        assert!(error.is_gave_up() && error.is_held() && !error.is_unreachable());
        assert!(error.denied() >= 2, "{error}");
        assert!(error.to_string().contains("gave up"), "{error}");
        guard.release().await.unwrap();
        fleet.assert_no_key("a", SOON);
    });
}

/// The same where nobody answers, and where nobody is there: told apart from a holder.
#[test]
fn case_25_a_wait_for_masters_that_are_away() {
    alone(async {
        let fleet = Fleet::start(3);
        let redlock = connect(fleet.urls()).await;
        for server in &fleet[1..] {
            server.kill();
        }
        let error = gives_up_in_time(&redlock).await;
        assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
        assert!(error.is_unreachable() && !error.is_held(), "{error}");
        assert_eq!(error.failed(), 2, "{error}");
        for server in &fleet[1..] {
            server.restart();
            server.pause();
        }
        let error = gives_up_in_time(&redlock).await;
        assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
        assert!(error.is_unreachable() && !error.is_held(), "{error}");
        fleet[1..].iter().for_each(Server::resume);
        fleet.assert_no_key("a", SOON);
    });
}

/// The last try is made shortly before the deadline, and wins what became free meanwhile.
#[test]
fn case_25_the_last_try_wins_what_became_free() {
    alone(async {
        let fleet = Fleet::start(3);
        let holder = Redlock::connect(fleet.urls()).await.unwrap();
        let redlock = connect(fleet.urls()).await;
        let mut won = 0;
        for _ in 0..5 {
            let guard = holder.lock("a").acquire().await.unwrap();
            let watch = Stopwatch::start();
            let waiter = tokio::spawn(redlock.lock("a").wait(PATIENCE).acquire());
            tokio::time::sleep(ms(100)).await;
            drop(guard);
            // A busy machine may be late for a last try of 10 ms.
            won += u32::from(waiter.await.unwrap().is_ok());
            assert!(watch.elapsed() < ms(1_000), "it paused to the end");
            fleet.assert_no_key("a", SOON);
        }
        assert!(won > 0, "no last try won");
    });
}

/// A cancelled wait is no error of any kind, and leaves nothing behind that could win later.
#[test]
fn case_25_a_cancelled_wait_wins_nothing_later() {
    alone(async {
        let fleet = Fleet::start(3);
        let holder = Redlock::connect(fleet.urls()).await.unwrap();
        let guard = holder.lock("a").acquire().await.unwrap();
        let waiter = Redlock::connect(fleet.urls()).await.unwrap();
        let cancelled = tokio::time::timeout(ms(100), waiter.lock("a").acquire()).await;
        assert!(cancelled.is_err());
        guard.release().await.unwrap();
        fleet.assert_no_key("a", SOON);
        let watch = Stopwatch::start();
        while watch.elapsed() < ms(700) {
            assert!(fleet.holders("a").is_empty(), "the cancelled wait went on");
            pause(ms(5));
        }
    });
}

/// How often a server was sent this command.
fn calls(server: &Server, command: &str) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).unwrap().text();
    let field = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&field));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Pauses average 125 ms once they have grown, so a waiter tries eight times a second, and a
/// little more often in the first. A try is a SET to each master, and at most one delete more to
/// one that had not answered when the others had refused.
#[test]
fn case_27_fifty_waiters_try_less_than_500_times_a_second() {
    alone(async {
        const WAITERS: u64 = 50;
        const SECONDS: u64 = 5;
        let fleet = Fleet::start(3);
        let holder = Redlock::connect(fleet.urls()).await.unwrap();
        let guard = holder.lock("a").acquire().await.unwrap();
        let redlock = Redlock::connect(fleet.urls()).await.unwrap();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| tokio::spawn(redlock.lock("a").acquire()))
            .collect();
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        for server in fleet.iter() {
            let sets = calls(server, "set");
            assert!(sets / SECONDS < 500, "{sets} tries");
            assert!(sets / SECONDS > WAITERS * 2, "nobody waits: {sets} tries");
            let deletes = calls(server, "eval");
            assert!(deletes <= sets, "{deletes} deletes for {sets} tries");
            let looks = calls(server, "pttl");
            assert!(looks <= 2 * WAITERS, "{looks} looks at the holder");
        }
        guard.release().await.unwrap();
        let next = || fleet.holders("a").len() == 3;
        assert!(eventually(SOON, next), "nobody took what became free");
        for waiter in &waiters {
            waiter.abort();
        }
        for waiter in waiters {
            drop(waiter.await);
        }
        fleet.assert_no_key("a", SOON);
    });
}
