//! Ties and silent majorities are settled, at once or at the per-master timeout (case 22).

use crate::{LATE, SOON, alone, ms};
use quorumlock::{ErrorKind, Redlock};
use quorumlock_masters::{Fleet, Stopwatch};
use std::time::Duration;

const TTL: Duration = ms(20_000);
/// The per-master timeout that follows from the TTL.
const TIMEOUT: Duration = ms(1_000);

/// One try where this many of the masters are taken by somebody else and this many are silent.
async fn one_try(masters: usize, taken: usize, silent: usize) -> (ErrorKind, Duration) {
    let fleet = Fleet::start(masters);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    for server in &fleet[..taken] {
        let set = server.command(&["SET", "a", "other", "PX", "30000"]);
        set.unwrap();
    }
    for server in &fleet[taken..taken + silent] {
        server.pause();
    }
    let watch = Stopwatch::start();
    let error = redlock.lock("a").ttl(TTL).try_acquire().await.unwrap_err();
    let took = watch.elapsed();
    assert_eq!(error.denied(), taken, "{error}");
    for server in &fleet[taken..taken + silent] {
        server.resume();
    }
    let others: Vec<_> = (0..taken).collect();
    let rolled_back = quorumlock_masters::eventually(SOON, || fleet.holders("a") == others);
    assert!(rolled_back, "on {:?}", fleet.holders("a"));
    for server in &fleet[..taken] {
        assert_eq!(server.get("a").unwrap(), b"other");
    }
    (error.kind(), took)
}

#[test]
fn case_22_a_tie_is_refused_at_once() {
    alone(async {
        for (masters, taken) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            let (kind, took) = one_try(masters, taken, 0).await;
            assert_eq!(kind, ErrorKind::Held, "{taken} of {masters}");
            assert!(took < LATE, "{taken} of {masters} taken: {took:?}");
        }
    });
}

#[test]
fn case_22_a_silent_majority_is_an_answer_at_the_timeout() {
    alone(async {
        for (masters, silent) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            let (kind, took) = one_try(masters, 0, silent).await;
            assert_eq!(kind, ErrorKind::Unreachable, "{silent} of {masters}");
            assert!(
                took + ms(5) >= TIMEOUT && took <= TIMEOUT + LATE,
                "{silent} of {masters} silent: {took:?}"
            );
        }
    });
}

/// Neither the taken nor the silent alone settle it: it takes the timeout and not more.
#[test]
fn case_22_taken_and_silent_masters_together() {
    alone(async {
        let (_, took) = one_try(3, 1, 1).await;
        assert!(took <= TIMEOUT + LATE, "{took:?}");
        let (_, took) = one_try(4, 1, 1).await;
        assert!(took <= TIMEOUT + LATE, "{took:?}");
        let (_, took) = one_try(5, 2, 1).await;
        assert!(took <= TIMEOUT + LATE, "{took:?}");
    });
}

/// Half of the keys stolen: no quorum can be shown any more, so it is lost, and released at once.
#[test]
fn case_22_a_tie_while_holding() {
    alone(async {
        for masters in [2, 4] {
            let fleet = Fleet::start(masters);
            let redlock = Redlock::connect(fleet.urls()).await.unwrap();
            let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
            let everywhere = || fleet.holders("a").len() == masters;
            assert!(quorumlock_masters::eventually(SOON, everywhere));
            for server in &fleet[..masters / 2] {
                let set = server.command(&["SET", "a", "other", "PX", "30000"]);
                set.unwrap();
            }
            let watch = Stopwatch::start();
            let error = guard.extend(TTL).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            guard.release().await.unwrap();
            assert!(watch.elapsed() < LATE, "{:?}", watch.elapsed());
            let ours_is_gone = || fleet.holders("a").len() == masters / 2;
            assert!(quorumlock_masters::eventually(SOON, ours_is_gone));
            assert_eq!(fleet[0].get("a").unwrap(), b"other");
        }
    });
}
