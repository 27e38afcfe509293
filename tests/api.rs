//! What the compiler must accept: the bounds of types and futures, and the shape in which users write.
//!
//! Most of it is shown by compiling; where a lock is taken all the same, it is on servers of the test's own.

use quorumlock::{
    Answer, BadInput, Builder, Error, Fault, Guard, Held, KeyState, Lock, Loss, MasterAddress,
    MasterAnswer, MasterStatus, Parts, Redlock, Released, Remaining, RunError, Status, Verdict,
};
use quorumlock_masters::{Fleet, Stopwatch};
use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;

const SOON: Duration = Duration::from_secs(2);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn is_shared<T: 'static + Send + Sync + fmt::Debug>() {}

#[test]
fn all_that_users_touch_is_static_send_and_sync() {
    is_shared::<Redlock>();
    is_shared::<Builder>();
    is_shared::<Lock>();
    is_shared::<Guard>();
    is_shared::<Held>();
    is_shared::<Parts>();
    is_shared::<MasterAddress>();
    is_shared::<Released>();
    is_shared::<Remaining>();
    is_shared::<(Status, MasterStatus, KeyState, Verdict)>();
    is_shared::<(Error, MasterAnswer, Answer, Fault, Loss, BadInput)>();
    is_shared::<RunError<u8>>();
}

#[test]
fn handles_requests_and_views_are_cheap_to_clone() {
    fn is_clone<T: Clone>() {}
    is_clone::<(Redlock, Builder, Lock, Held, Parts)>();
    is_clone::<(Error, RunError<u8>)>();
}

fn is_error<E: StdError + 'static + Send + Sync>(_: &E) {}

#[test]
fn every_error_fits_into_a_box() {
    let error = Redlock::builder().build().unwrap_err();
    is_error(&error);
    is_error(&RunError::<u8>::NotAcquired(error));
    is_error(&BadInput::EmptyResource);
}

/// Can be spawned: it borrows nothing and moves between threads.
fn is_spawnable<F: Future + Send + 'static>(_: F) {}

fn is_send<F: Future + Send>(_: F) {}

#[test]
fn futures_of_a_handle_and_a_request_can_move_between_threads() {
    let redlock = Redlock::builder()
        .master("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let lock = || redlock.lock("a");
    is_spawnable(Redlock::connect(["redis://10.0.0.1", "redis://10.0.0.2"]));
    is_spawnable(Redlock::builder().connect());
    is_spawnable(lock().acquire());
    is_spawnable(lock().try_acquire());
    is_spawnable(lock().run(|held| async move { held.is_held() }));
    is_spawnable(lock().try_run(|held| async move { work(held).await }));
    is_send(redlock.adopt(Parts::new("a", "token")));
    is_send(redlock.release("a", "token"));
    is_send(redlock.force_release("a"));
    is_send(redlock.status("a"));
    is_send(redlock.close(SOON));
}

/// Never run: it is enough that a guard's futures are Send.
async fn use_guard(guard: Guard) -> Result<(), Error> {
    is_send(guard.lost());
    is_send(guard.extend(SOON));
    is_send(guard.release());
    let held = guard.held();
    is_send(held.lost());
    is_send(held.changed());
    is_spawnable(async move { held.lost().await });
    guard.release().await.map(drop)
}

async fn work(held: Held) -> Result<u8, Failure> {
    held.is_held().then_some(1).ok_or(Failure)
}

#[derive(Debug)]
struct Failure;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work's own error")
    }
}

impl StdError for Failure {}

impl<T> From<RunError<T>> for Failure {
    fn from(_: RunError<T>) -> Self {
        Self
    }
}

/// The work borrows what is here and holds what belongs to this thread.
#[tokio::test]
async fn work_needs_neither_send_nor_static() {
    let fleet = Fleet::start(1);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let notes = Rc::new(RefCell::new(Vec::new()));
    let mut counted = 0;
    let local = LocalSet::new();
    let length = local
        .run_until(async {
            let (lock, other) = (redlock.lock("a"), redlock.lock("b"));
            let run = lock.run(|held| {
                let notes = Rc::clone(&notes);
                let counted = &mut counted;
                async move {
                    *counted += 1;
                    let inner = Rc::clone(&notes);
                    let noting = tokio::task::spawn_local(async move {
                        inner.borrow_mut().push("noted");
                    });
                    noting.await.unwrap();
                    assert!(held.is_held());
                    // A result that cannot leave this thread either.
                    notes
                }
            });
            let notes: Rc<RefCell<Vec<&str>>> = run.await.unwrap();
            let tried = other.try_run(|held| {
                let notes = Rc::clone(&notes);
                async move {
                    notes.borrow_mut().push("tried");
                    work(held).await
                }
            });
            assert_eq!(tried.await.unwrap(), 1);
            notes.borrow().len()
        })
        .await;
    assert_eq!((length, counted), (2, 1));
    assert_eq!(*notes.borrow(), ["noted", "tried"]);
    fleet.assert_no_key("a", SOON);
    fleet.assert_no_key("b", SOON);
}

#[derive(Debug, PartialEq)]
struct Receipt(u64);

async fn charge(held: Held) -> Result<Receipt, Failure> {
    work(held).await.map(|amount| Receipt(u64::from(amount)))
}

/// As the design shows it, but for the servers.
#[expect(
    clippy::redundant_closure,
    reason = "written as a reader of the documentation would"
)]
async fn as_users_write_it(
    masters: [String; 3],
) -> Result<Receipt, Box<dyn StdError + Send + Sync>> {
    let redlock = Redlock::connect(masters).await?;

    // the usual way: run the work under the lock
    let receipt = redlock
        .lock("payment:4821")
        .wait(secs(5))
        .run(|held| charge(held))
        .await??;

    // by hand
    let guard = redlock.lock("payment:4821").ttl(secs(30)).acquire().await?;
    guard.release().await?;

    // given up here, taken up elsewhere
    let guard = redlock.lock("payment:4821").acquire().await?;
    let parts = guard.into_parts();
    use_guard(redlock.adopt(parts).await?).await?;
    Ok(receipt)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_samples_of_the_design_work() {
    let fleet = Fleet::start(3);
    let masters = [fleet[0].url(), fleet[1].url(), fleet[2].url()];
    let watch = Stopwatch::start();
    let receipt = tokio::spawn(as_users_write_it(masters)).await.unwrap();
    assert_eq!(receipt.unwrap(), Receipt(1));
    assert!(watch.elapsed() < secs(5), "no step of it waits for a TTL");
    fleet.assert_no_key("payment:4821", SOON);
}
