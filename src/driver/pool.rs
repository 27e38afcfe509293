//! The masters of one handle, their two lanes each, and which lane an operation takes.

use super::clock;
use crate::master::{Fault, FaultKind, Identity, Lane, Undo};
use crate::quorum::{Members, Moment, Tally, Terms};
use redis::ConnectionInfo;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What a pool is made of.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where the masters are, with the addresses as they are shown.
    pub(crate) masters: Vec<(ConnectionInfo, String)>,
    pub(crate) terms: Terms,
    pub(crate) connect_timeout: Duration,
}

/// Which of a master's lanes an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Connections in the application's runtime: no thread is crossed.
    Home,
    /// Connections in our own thread, which runs whatever becomes of the application's.
    Service,
}

/// One master, as a handle sees it.
pub(crate) struct Master {
    pub(crate) info: ConnectionInfo,
    pub(crate) address: Arc<str>,
    home: Arc<Lane>,
    service: Arc<Lane>,
    identity: Mutex<Option<Identity>>,
}

impl Master {
    pub(crate) fn lane(&self, route: Route) -> &Arc<Lane> {
        match route {
            Route::Home => &self.home,
            Route::Service => &self.service,
        }
    }
}

/// One master's answer as it is reported.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted,
    Denied,
    Failed(Fault),
    /// No answer had come when it was decided.
    Unanswered,
}

/// Every master's answer, in the order of the list.
pub(crate) type Answers = Vec<Answer>;

/// What a round reports of every master; where time is up, who is silent has failed.
pub(crate) fn answers(tally: &Tally, faults: &[(usize, Fault)], timed_out: bool) -> Answers {
    let answer = |index| {
        if tally.granted().contains(index) {
            Answer::Granted
        } else if tally.denied().contains(index) {
            Answer::Denied
        } else if let Some((_, fault)) = faults.iter().find(|(at, _)| *at == index) {
            Answer::Failed(fault.clone())
        } else if timed_out {
            Answer::Failed(Fault::new(FaultKind::Timeout))
        } else {
            Answer::Unanswered
        }
    };
    (0..tally.masters()).map(answer).collect()
}

/// The masters of one handle.
pub(crate) struct Pool {
    pub(crate) masters: Vec<Master>,
    pub(crate) terms: Terms,
    pub(crate) connect_timeout: Duration,
    /// The runtime in which the home lanes live.
    home: RwLock<Option<Home>>,
    /// Whether the service lanes are to be connected.
    service_wanted: AtomicBool,
    /// Told whenever a lane comes up or goes down.
    pub(crate) changed: Notify,
    /// When a home lane was last seen to have answered anything: its runtime runs.
    home_moved: AtomicU64,
    /// Whether the sweeper is at work; it sleeps when nothing is unanswered.
    sweeping: AtomicBool,
    pub(crate) sweep: Notify,
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let masters = settings.masters.into_iter().map(|(info, address)| Master {
            info,
            address: Arc::from(address),
            home: Lane::new(),
            service: Lane::new(),
            identity: Mutex::new(None),
        });
        Arc::new(Self {
            masters: masters.collect(),
            terms: settings.terms,
            connect_timeout: settings.connect_timeout,
            home: RwLock::new(None),
            service_wanted: AtomicBool::new(false),
            changed: Notify::new(),
            home_moved: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            sweep: Notify::new(),
        })
    }

    /// The lanes to take from here: home in the runtime they live in, else the service's.
    ///
    /// A runtime that called after the one before it has ended becomes the new home.
    pub(crate) fn route(&self) -> Route {
        let Ok(current) = Handle::try_current() else {
            self.want_service();
            return Route::Service;
        };
        let known = self.home.read().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref() {
            Some(home) if home.runtime.id() == current.id() => Route::Home,
            Some(home) if home.is_alive() => {
                drop(known);
                self.want_service();
                Route::Service
            }
            Some(_) | None => {
                drop(known);
                self.move_home(current)
            }
        }
    }

    /// Makes this runtime the home, unless another thread has done so meanwhile.
    fn move_home(&self, current: Handle) -> Route {
        let mut home = self.home.write().unwrap_or_else(PoisonError::into_inner);
        match home.as_ref() {
            Some(known) if known.runtime.id() == current.id() => return Route::Home,
            Some(known) if known.is_alive() => {
                drop(home);
                self.want_service();
                return Route::Service;
            }
            Some(_) | None => *home = Some(Home::new(current)),
        }
        drop(home);
        let now = clock::now();
        for master in &self.masters {
            master.home.restart(now);
        }
        Route::Home
    }

    /// The runtime of the home lanes, if it is known.
    pub(crate) fn home(&self) -> Option<Handle> {
        let home = self.home.read().unwrap_or_else(PoisonError::into_inner);
        home.as_ref().map(|home| home.runtime.clone())
    }

    /// Connects the service lanes, if they are not yet.
    pub(crate) fn want_service(&self) {
        if !self.service_wanted.swap(true, Ordering::AcqRel) {
            for master in &self.masters {
                master.service.wake.notify_one();
            }
        }
    }

    /// Whether a lane of this route is to be connected.
    pub(crate) fn is_wanted(&self, route: Route) -> bool {
        match route {
            Route::Home => self.home().is_some(),
            Route::Service => self.service_wanted.load(Ordering::Acquire),
        }
    }

    /// Whether a quorum of lanes is up, or every lane has been tried.
    pub(crate) fn is_ready(&self, route: Route) -> bool {
        let up = self
            .masters
            .iter()
            .filter(|master| master.lane(route).is_up())
            .count();
        up >= self.terms.quorum() || self.is_settled(route)
    }

    /// Whether every lane of the route has been tried.
    pub(crate) fn is_settled(&self, route: Route) -> bool {
        self.masters
            .iter()
            .all(|master| !master.lane(route).is_starting())
    }

    /// Waits until `done` holds of the lanes, at most so long.
    pub(crate) async fn wait_for(&self, at_most: Duration, done: impl Fn(&Self) -> bool) {
        if done(self) {
            return;
        }
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if done(self) {
                    return;
                }
                changed.await;
            }
        };
        // Ready or not, the round that follows reports each master's state.
        tokio::time::timeout(at_most, wait).await.unwrap_or(());
    }

    /// Takes down who a master says it is; an objection means that it may not vote.
    pub(crate) fn identify(&self, index: usize, identity: Identity) -> Option<Fault> {
        let objection = identity.objection();
        let run_id = identity.run_id.clone();
        if let Some(master) = self.masters.get(index) {
            *master
                .identity
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(identity);
        }
        objection.or_else(|| {
            let twin = self.twin_of(index, run_id.as_deref()?)?;
            let now = clock::now();
            for route in [Route::Home, Route::Service] {
                self.masters[twin]
                    .lane(route)
                    .bring_down(self.duplicate_fault(index), now);
            }
            Some(self.duplicate_fault(twin))
        })
    }

    /// Two entries that were seen to reach one server (R2).
    pub(crate) fn duplicates(&self) -> Option<(usize, usize)> {
        (0..self.masters.len()).find_map(|index| {
            let run_id = self.run_id(index)?;
            self.twin_of(index, &run_id)
                .map(|twin| (index.min(twin), index.max(twin)))
        })
    }

    fn twin_of(&self, index: usize, run_id: &str) -> Option<usize> {
        (0..self.masters.len())
            .find(|other| *other != index && self.run_id(*other).as_deref() == Some(run_id))
    }

    fn run_id(&self, index: usize) -> Option<String> {
        let identity = self.masters[index]
            .identity
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        identity.as_ref()?.run_id.clone()
    }

    fn duplicate_fault(&self, of: usize) -> Fault {
        let address = &self.masters[of].address;
        Fault::with_detail(
            FaultKind::Duplicate,
            format!("master {}, {address}", of + 1),
        )
    }

    /// Sends an undo that nobody waits for, on this route.
    pub(crate) fn undo(&self, route: Route, targets: Members, undo: &Undo, now: Moment) {
        for index in targets.iter() {
            if let Some(master) = self.masters.get(index) {
                master.lane(route).undo(undo.clone(), now);
            }
        }
        self.wake_sweeper();
    }

    /// A home lane was seen to have answered.
    pub(crate) fn note_home_moved(&self, now: Moment) {
        self.home_moved.store(now.as_nanos(), Ordering::Release);
    }

    /// When a home lane was last seen to have answered.
    pub(crate) fn home_moved(&self) -> Moment {
        Moment::from_nanos(self.home_moved.load(Ordering::Acquire))
    }

    /// Something is unanswered: the sweeper looks after it.
    pub(crate) fn wake_sweeper(&self) {
        if !self.sweeping.swap(true, Ordering::AcqRel) {
            self.sweep.notify_one();
        }
    }

    /// The sweeper goes to sleep; what comes now wakes it.
    pub(crate) fn sweeper_sleeps(&self) {
        self.sweeping.store(false, Ordering::Release);
    }

    /// Waits until earlier undos of this key on the other lanes bar no quorum any more (R21).
    ///
    /// Who used a resource in another runtime just before must not be refused by its own past.
    /// Says which masters are still barred: to them no SET for this key may be sent now.
    pub(crate) async fn wait_for_own_undos(
        &self,
        route: Route,
        key: &[u8],
        patience: impl FnOnce(Moment) -> Duration,
    ) -> Members {
        let mut barred = self.barred(route, key, Moment::ZERO);
        if barred.is_empty() {
            return barred;
        }
        let bearable = self.terms.masters - self.terms.quorum();
        let now = clock::now();
        let end = now.plus(patience(now));
        while barred.len() > bearable && clock::now() < end {
            tokio::time::sleep(Duration::from_millis(1)).await;
            barred = self.barred(route, key, clock::now());
        }
        barred
    }

    /// The masters on whose other lane an undo of this key is unanswered.
    fn barred(&self, route: Route, key: &[u8], now: Moment) -> Members {
        let other = match route {
            Route::Home if !self.service_wanted.load(Ordering::Acquire) => return Members::NONE,
            Route::Home => Route::Service,
            Route::Service => Route::Home,
        };
        let unanswered = |index: &usize| self.masters[*index].lane(other).has_unanswered(key, now);
        (0..self.masters.len()).filter(unanswered).collect()
    }
}

/// The runtime of the home lanes, with a task in it that ends when it does.
struct Home {
    runtime: Handle,
    sentinel: AbortHandle,
}

impl Home {
    fn new(runtime: Handle) -> Self {
        let sentinel = runtime.spawn(std::future::pending::<()>()).abort_handle();
        Self { runtime, sentinel }
    }

    /// Whether the runtime has not been shut down.
    fn is_alive(&self) -> bool {
        !self.sentinel.is_finished()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.sentinel.abort();
    }
}
