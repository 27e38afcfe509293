//! A guard can be dropped anywhere: no panic, no hang, and the key is gone (case 24, R22).
//!
//! The TTL stays at its 30 s, so a key that is gone was deleted. Each way is tried with a handle
//! that lives on, and with the guard as the last that keeps the handle alive.

use crate::support::ms;
use quorumlock::{Guard, Redlock};
use quorumlock_masters::{Fleet, Stopwatch};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A drop hangs for 50 ms at most; the rest is for a busy machine.
const DROP: Duration = ms(50 + 200);
/// A key is gone after 200 ms; the rest is for a busy machine.
const GONE: Duration = ms(200 + 400);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn acquire(fleet: &Fleet, key: &str) -> (Redlock, Guard) {
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let guard = redlock.lock(key).acquire().await.unwrap();
    let everywhere = || fleet.holders(key).len() == 3;
    while !everywhere() {
        tokio::time::sleep(ms(1)).await;
    }
    (redlock, guard)
}

/// What is measured: that this took no longer than a drop may.
#[track_caller]
fn drops_in_time<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let watch = Stopwatch::start();
    let output = act();
    let took = watch.elapsed();
    assert!(took <= DROP, "{what} took {took:?}");
    output
}

/// Drops a guard in this way, with and without another handle beside it.
#[track_caller]
fn each_way(dropped_by: impl Fn(Guard)) {
    for key in ["kept", "last"] {
        let fleet = Fleet::start(3);
        let runtime = current_thread();
        let (redlock, guard) = runtime.block_on(acquire(&fleet, key));
        let kept = (key == "kept").then_some(redlock);
        runtime.block_on(async { drops_in_time("the drop", || dropped_by(guard)) });
        fleet.assert_no_key(key, GONE);
        drops_in_time("the handle's drop", || drop(kept));
    }
}

#[test]
fn case_24_in_a_current_thread_runtime() {
    each_way(drop);
}

#[test]
fn case_24_while_unwinding() {
    each_way(|guard| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(caught.is_err());
    });
}

#[test]
fn case_24_on_a_thread_without_a_runtime() {
    each_way(|guard| std::thread::spawn(move || drop(guard)).join().unwrap());
}

#[test]
fn case_24_in_another_runtime() {
    each_way(|guard| {
        let other = move || current_thread().block_on(async move { drop(guard) });
        std::thread::spawn(other).join().unwrap();
    });
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn case_24_in_a_thread_local_destructor() {
    each_way(|guard| {
        let thread = std::thread::spawn(move || KEPT.set(Some(guard)));
        thread.join().unwrap();
    });
}

/// As [`each_way`], where the guard ends with its runtime, or after it.
#[track_caller]
fn with_its_runtime(multi_thread: bool, end: impl Fn(Runtime, Guard)) {
    for key in ["kept", "last"] {
        let fleet = Fleet::start(3);
        let runtime = if multi_thread {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(2).enable_all().build().unwrap()
        } else {
            current_thread()
        };
        let (redlock, guard) = runtime.block_on(acquire(&fleet, key));
        let kept = (key == "kept").then_some(redlock);
        end(runtime, guard);
        fleet.assert_no_key(key, GONE);
        drops_in_time("the handle's drop", || drop(kept));
    }
}

#[test]
fn case_24_at_the_end_of_block_on() {
    for multi_thread in [false, true] {
        with_its_runtime(multi_thread, |runtime, guard| {
            drops_in_time("block_on", || {
                runtime.block_on(async move {
                    let _dropped_last = guard;
                });
            });
            drops_in_time("the runtime's drop", || drop(runtime));
        });
    }
}

#[test]
fn case_24_after_the_runtime_is_gone() {
    for multi_thread in [false, true] {
        with_its_runtime(multi_thread, |runtime, guard| {
            drop(runtime);
            drops_in_time("the drop", || drop(guard));
        });
    }
}

#[test]
fn case_24_in_a_task_that_dies_with_its_runtime() {
    for multi_thread in [false, true] {
        with_its_runtime(multi_thread, |runtime, guard| {
            let task = async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            };
            drop(runtime.spawn(task));
            runtime.block_on(tokio::task::yield_now());
            drops_in_time("the runtime's drop", || drop(runtime));
        });
    }
}

#[test]
fn case_24_in_an_aborted_task() {
    for multi_thread in [false, true] {
        with_its_runtime(multi_thread, |runtime, guard| {
            let task = async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            };
            runtime.block_on(async {
                let task = tokio::spawn(task);
                tokio::task::yield_now().await;
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            });
            drop(runtime);
        });
    }
}

/// The runtime shuts down without waiting, as `shutdown_background` does.
#[test]
fn case_24_while_the_runtime_shuts_down_in_the_background() {
    with_its_runtime(true, |runtime, guard| {
        let (started, wait) = std::sync::mpsc::channel();
        let task = async move {
            let _guard = guard;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        drop(runtime.spawn(task));
        wait.recv().unwrap();
        runtime.shutdown_background();
    });
}
