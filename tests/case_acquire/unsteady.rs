//! Masters whose connections break again and again: nobody is refused by what was left of an earlier attempt.

use crate::{SOON, connect, faults, ms, secs};
use quorumlock::{FaultKind, Guard, Redlock, Released};
use quorumlock_masters::{Close, Fleet, Relay, Stopwatch, eventually, pause};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Cuts the relays in turn until it is dropped, by FIN and by RST.
struct Cutter {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl Cutter {
    fn start(relays: Vec<Arc<Relay>>, every: Duration) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = thread::spawn(move || {
            let mut cuts = 0;
            for relay in relays.iter().cycle() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // Uneven, so that it meets every moment of a cycle in the course of time.
                pause(every + ms(u64::from(cuts * 7 % 11)));
                let how = [Close::Finish, Close::Reset][usize::from(cuts % 2 == 1)];
                relay.cut(how);
                cuts += 1;
            }
            cuts
        });
        Self {
            end,
            thread: Some(thread),
        }
    }

    /// Ends it; how many cuts there were.
    fn stop(mut self) -> u32 {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

fn relays(fleet: &Fleet) -> Vec<Arc<Relay>> {
    let relay = |server: &quorumlock_masters::Server| Arc::new(Relay::to(server.address()));
    fleet.iter().map(relay).collect()
}

/// Lets go, again where the answers were cut off.
async fn release(guard: &Guard) -> Released {
    let watch = Stopwatch::start();
    loop {
        match guard.release().await {
            Ok(released) => return released,
            Err(error) => assert!(watch.elapsed() < secs(10), "{error}"),
        }
        // Where no master is connected the error comes at once.
        tokio::time::sleep(ms(5)).await;
    }
}

/// The SET is done and its answer lost, after any number of its bytes, on one master and on two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_an_answer_that_is_cut_leaves_nothing_in_the_way() {
    let fleet = Fleet::start(3);
    let relays = relays(&fleet);
    let urls: Vec<_> = relays.iter().map(|relay| relay.url()).collect();
    let redlock = connect(&urls).await;
    for bytes in 0..5 {
        let all_connected = async || redlock.status("a").await.unwrap().answered() == 3;
        let watch = Stopwatch::start();
        while !all_connected().await {
            assert!(watch.elapsed() < secs(10), "after {bytes} bytes");
        }
        relays[2].cut_mid_answer(bytes);
        let guard = redlock.lock("a").try_acquire().await.unwrap();
        assert_eq!(release(&guard).await, Released::WasOurs);
        fleet.assert_no_key("a", SOON);

        while !all_connected().await {
            assert!(watch.elapsed() < secs(10), "after {bytes} bytes");
        }
        relays[1].cut_mid_answer(bytes);
        relays[2].cut_mid_answer(bytes);
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        let lost = Some(FaultKind::ConnectionLost);
        assert_eq!(faults(&error)[1..], [lost, lost], "{bytes} bytes: {error}");
        // Both have the key now, with a TTL of 30 s; the wait is shorter.
        let guard = redlock.lock("a").wait(secs(5)).acquire().await.unwrap();
        assert_eq!(release(&guard).await, Released::WasOurs);
        fleet.assert_no_key("a", SOON);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_a_master_that_breaks_off_again_and_again_costs_no_attempt() {
    let fleet = Fleet::start(3);
    let relays = relays(&fleet);
    let urls = [fleet[0].url(), fleet[1].url(), relays[2].url()];
    let redlock = connect(&urls).await;
    let cutter = Cutter::start(vec![Arc::clone(&relays[2])], ms(10));
    let watch = Stopwatch::start();
    let mut cycles = 0;
    while watch.elapsed() < secs(4) || cycles < 100 {
        let lock = redlock.lock("a");
        let guard = lock.try_acquire().await.unwrap_or_else(|error| {
            panic!("cycle {cycles}: {error}");
        });
        if cycles % 3 == 0 {
            drop(guard);
        } else {
            assert_eq!(release(&guard).await, Released::WasOurs, "cycle {cycles}");
        }
        cycles += 1;
    }
    assert!(cutter.stop() > 20, "it was hardly unsteady");
    fleet.assert_no_key("a", SOON);
}

/// One after another, each breaking off in its turn: a ghost would stand in the way for 30 s.
async fn cycles(redlock: Redlock, resource: String, least: Duration) -> u32 {
    let watch = Stopwatch::start();
    let mut cycles = 0;
    while watch.elapsed() < least || cycles < 10 {
        let lock = redlock.lock(&resource).wait(secs(8));
        let guard = lock.acquire().await.unwrap_or_else(|error| {
            panic!("{resource}, cycle {cycles}: {error}");
        });
        match cycles % 3 {
            0 => drop(guard),
            _ => drop(release(&guard).await),
        }
        cycles += 1;
    }
    cycles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_masters_that_all_break_off_in_turn_leave_no_ghost() {
    let fleet = Fleet::start(3);
    let relays = relays(&fleet);
    let urls: Vec<_> = relays.iter().map(|relay| relay.url()).collect();
    let redlock = connect(&urls).await;
    let cutter = Cutter::start(relays.clone(), ms(15));
    let tasks: Vec<_> = (0..6)
        .map(|task| tokio::spawn(cycles(redlock.clone(), format!("a{task}"), secs(5))))
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    assert!(cutter.stop() > 50, "it was hardly unsteady");
    assert!(done > 60, "{done}");
    let left = || {
        fleet
            .iter()
            .map(|server| server.keys().len())
            .sum::<usize>()
    };
    assert!(
        eventually(secs(4), || left() == 0),
        "{} keys are left",
        left()
    );
}

/// A master that is killed and started again, empty, while locks come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_18_a_master_that_crashes_again_and_again_costs_no_attempt() {
    let fleet = Arc::new(Fleet::start(3));
    let redlock = connect(&fleet.urls()).await;
    let end = Arc::new(AtomicBool::new(false));
    let (crashing, ended) = (Arc::clone(&fleet), Arc::clone(&end));
    let crashes = thread::spawn(move || {
        for _ in 0..8 {
            pause(ms(60));
            crashing[2].kill();
            pause(ms(60));
            crashing[2].restart();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let mut cycles = 0;
    while !end.load(Ordering::Relaxed) {
        let guard = redlock
            .lock("a")
            .try_acquire()
            .await
            .unwrap_or_else(|error| {
                panic!("cycle {cycles}: {error}");
            });
        assert_eq!(release(&guard).await, Released::WasOurs, "cycle {cycles}");
        cycles += 1;
    }
    crashes.join().unwrap();
    assert!(cycles > 20, "{cycles}");
    fleet.assert_no_key("a", SOON);
}
