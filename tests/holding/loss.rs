//! Loss by silence: the signal comes in time, whatever becomes of the network (case 12, R15).

use crate::support::{Dropped, LATE, Network, SOON, ms};
use quorumlock::{ErrorKind, Guard, Loss, Redlock, RunError};
use quorumlock_masters::{Rule, Stopwatch};
use std::pin::pin;
use std::time::Duration;

const TTL: Duration = ms(1_000);
/// The per-master timeout that follows from the TTL.
const TIMEOUT: Duration = ms(100);

/// What becomes of two of three masters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    Stopped,
    Killed,
    Stolen,
    /// Bytes vanish in both directions, and nobody is told that the connection is gone.
    BlackHoled,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_two_of_three_are_stopped() {
    two_of_three(Blow::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_two_of_three_are_killed() {
    two_of_three(Blow::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_two_of_three_are_stolen() {
    two_of_three(Blow::Stolen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_two_of_three_vanish_without_a_reset() {
    two_of_three(Blow::BlackHoled).await;
}

async fn two_of_three(blow: Blow) {
    let network = Network::start(3);
    let redlock = network.connect().await;
    let cancelled = Dropped::default();
    let run = tokio::spawn(run_for_ever(redlock.clone(), cancelled.clone()));
    let guard = redlock.lock("a").ttl(TTL).acquire().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    strike(&network, blow);
    let watch = Stopwatch::start();
    let (loss, ends) = lost_and_deadline(&guard, &watch).await;
    let took = watch.elapsed();
    // The last good send was before the blow.
    assert!(took <= TTL + LATE, "{blow:?}: told after {took:?}");
    assert!(
        took <= ends + LATE,
        "{blow:?}: told after {took:?}, the validity ended after {ends:?}"
    );
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.loss(), Some(loss));
    if blow == Blow::Stolen {
        let stolen = Loss::NotOurs {
            missing: 0,
            foreign: 2,
        };
        assert_eq!(loss, stolen);
        assert!(took <= TTL / 3 + LATE, "proved only after {took:?}");
    } else {
        assert_eq!(loss, Loss::Expired);
        let early = ends.saturating_sub(took);
        assert!(early < ms(30), "{blow:?}: given up {early:?} early");
    }

    let result = run.await.unwrap();
    let took = watch.elapsed();
    assert!(result.unwrap_err().is_lost());
    assert!(cancelled.is_set(), "the work went on");
    assert!(took <= TTL + TIMEOUT + LATE, "run took {took:?}");
    let late = guard.extend(TTL).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Lost, "loss is final: {late}");
    drop(guard);
    mend(&network, blow);
}

/// Waits for the loss; says, too, when the validity ended as it was last seen.
async fn lost_and_deadline(guard: &Guard, watch: &Stopwatch) -> (Loss, Duration) {
    let mut ends = Duration::ZERO;
    let mut lost = pin!(guard.lost());
    loop {
        let seen = watch.elapsed();
        let left = guard.remaining();
        if !left.is_zero() {
            ends = seen + left;
        }
        if let Ok(loss) = tokio::time::timeout(ms(5), &mut lost).await {
            return (loss, ends);
        }
        assert!(watch.elapsed() < TTL * 3, "never told");
    }
}

/// Runs endless work, which says when it is dropped.
async fn run_for_ever(redlock: Redlock, cancelled: Dropped) -> Result<(), RunError<()>> {
    let work = |_held| async move {
        let _cancelled = cancelled.on_drop();
        std::future::pending().await
    };
    redlock.lock("b").ttl(TTL).run(work).await
}

fn strike(network: &Network, blow: Blow) {
    for index in 0..2 {
        match blow {
            Blow::Stopped => network[index].pause(),
            Blow::Killed => network[index].kill(),
            Blow::BlackHoled => network.relays[index].both(Rule::Drop),
            Blow::Stolen => {
                for key in ["a", "b"] {
                    let steal = ["SET", key, "thief", "PX", "60000"];
                    network[index].command(&steal).unwrap();
                }
            }
        }
    }
}

/// Brings the masters back, and looks that nothing of ours is left, and nobody else's touched.
fn mend(network: &Network, blow: Blow) {
    for index in 0..2 {
        match blow {
            Blow::Stopped => network[index].resume(),
            Blow::Killed => network[index].restart(),
            Blow::BlackHoled => network.relays[index].heal(),
            Blow::Stolen => {
                for key in ["a", "b"] {
                    assert_eq!(network[index].get(key).unwrap(), b"thief");
                    network[index].command(&["DEL", key]).unwrap();
                }
            }
        }
    }
    network.assert_no_key("a", SOON);
    network.assert_no_key("b", SOON);
}
