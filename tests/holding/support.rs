//! What these tests share: masters behind relays, a draw with a fixed seed, looks at what was sent.

use quorumlock::{Guard, Redlock, Released};
use quorumlock_masters::{Close, Fleet, Relay, Request, Rule, Stopwatch, eventually};
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Within this time an undo that nothing hinders is done, on a busy machine too.
pub(crate) const SOON: Duration = ms(1_500);
/// How late a wake-up may be on a busy machine.
pub(crate) const LATE: Duration = ms(400);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Real masters, each behind a relay.
pub(crate) struct Network {
    pub(crate) relays: Vec<Relay>,
    fleet: Fleet,
}

impl Network {
    pub(crate) fn start(count: usize) -> Self {
        let fleet = Fleet::start(count);
        let relays = fleet.iter().map(|server| Relay::to(server.address()));
        Self {
            relays: relays.collect(),
            fleet,
        }
    }

    /// A handle whose connections all go through the relays, and are all there.
    pub(crate) async fn connect(&self) -> Redlock {
        let redlock = Redlock::connect(self.relays.iter().map(Relay::url)).await;
        let redlock = redlock.unwrap();
        self.settle(&redlock).await;
        redlock
    }

    /// Uses a handle until every master votes, on both its connections; what was sent until then is forgotten.
    pub(crate) async fn settle(&self, redlock: &Redlock) {
        let all = self.relays.len();
        let watch = Stopwatch::start();
        loop {
            let guard = redlock.lock("warm").acquire().await.unwrap();
            let late = Stopwatch::start();
            while guard.grants() < all && late.elapsed() < ms(50) {
                tokio::time::sleep(ms(1)).await;
            }
            let grants = guard.grants();
            let_go(&guard).await;
            if grants == all {
                break;
            }
            assert!(watch.elapsed() < SOON * 2, "only {grants} masters vote");
        }
        self.assert_no_key("warm", SOON);
        self.await_both_lanes();
        self.clear_logs();
    }

    pub(crate) fn requests(&self, rule: Rule) {
        self.relays.iter().for_each(|relay| relay.requests(rule));
    }

    pub(crate) fn answers(&self, rule: Rule) {
        self.relays.iter().for_each(|relay| relay.answers(rule));
    }

    pub(crate) fn heal(&self) {
        self.relays.iter().for_each(Relay::heal);
    }

    pub(crate) fn cut(&self) {
        self.relays.iter().for_each(|relay| relay.cut(Close::Reset));
    }

    pub(crate) fn clear_logs(&self) {
        self.relays.iter().for_each(Relay::clear_log);
    }

    /// Waits until every master has the key, that of a late SET, too.
    #[track_caller]
    pub(crate) fn await_everywhere(&self, key: &str) {
        let everywhere = || self.holders(key).len() == self.relays.len();
        assert!(eventually(SOON, everywhere), "only on some masters");
    }

    /// Waits until both connections that a handle has to every master have said who they are.
    #[track_caller]
    fn await_both_lanes(&self) {
        for relay in &self.relays {
            let named = |request: &Request| request.text() == "INFO replication";
            let both = || relay.log().iter().filter(|request| named(request)).count() >= 2;
            assert!(eventually(SOON * 2, both), "one connection is missing");
        }
    }

    /// What was sent to any master and is like this, as text.
    pub(crate) fn sent(&self, like: impl Fn(&Request) -> bool) -> Vec<String> {
        let logs = self.relays.iter().flat_map(Relay::log);
        logs.filter(like).map(|request| request.text()).collect()
    }

    /// Waits until every master was sent something like this.
    #[track_caller]
    pub(crate) fn all_were_sent(&self, within: Duration, like: impl Fn(&Request) -> bool) {
        for (index, relay) in self.relays.iter().enumerate() {
            let found = relay.wait_for(within, &like);
            assert!(found.is_some(), "master {index} was not sent it");
        }
    }
}

impl Deref for Network {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

/// Releases, and asks again until it is answered: a busy machine may be late for the timeout.
pub(crate) async fn let_go(guard: &Guard) -> Released {
    let watch = Stopwatch::start();
    loop {
        match guard.release().await {
            Ok(released) => return released,
            Err(error) => {
                assert!(error.is_unreachable(), "{error}");
                assert!(watch.elapsed() < SOON * 2, "never answered: {error}");
            }
        }
        tokio::time::sleep(ms(10)).await;
    }
}

/// Whether a request compares and pushes an expiry.
pub(crate) fn is_extension(request: &Request) -> bool {
    request.mentions("PEXPIRE")
}

/// Whether a request compares and deletes.
pub(crate) fn is_delete(request: &Request) -> bool {
    match request.name().as_str() {
        "EVAL" | "EVALSHA" => !is_extension(request),
        name => name.starts_with("DEL"),
    }
}

/// Whether a request can create a key.
pub(crate) fn is_set(request: &Request) -> bool {
    request.name() == "SET"
}

/// Random numbers that are the same in every run (splitmix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Drops a future after so many polls; `None` if it was not complete by then.
pub(crate) async fn drop_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        left = left.saturating_sub(1);
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Says `true` once it was dropped: whether work was cancelled.
#[derive(Clone, Default)]
pub(crate) struct Dropped(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Dropped {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// What sets it when it goes out of scope.
    pub(crate) fn on_drop(&self) -> impl Drop + Send + use<> {
        struct Sets(Dropped);
        impl Drop for Sets {
            fn drop(&mut self) {
                self.0.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        Sets(self.clone())
    }
}
