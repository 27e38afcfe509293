//! A master that does what the test says.
//!
//! By default it is honest and tiny: strings with expiry, publish/subscribe, the commands of a connection's start, two
//! kinds of script. Rules turn single commands into errors, silence, garbage or lost answers. It has no Lua, no
//! persistence, no transactions, one database, and accepts every password (it logs them).
//!
//! Invariants
//! 1. Every command is logged before anything is done about it.
//! 2. A command has its effect entirely or not at all, and commands do not interleave.

mod answer;
mod fault;
mod scripts;
mod session;
mod store;
mod world;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::fault::{ConnectFault, Fault, FaultRule};
pub use self::scripts::ScriptCall;
pub use self::store::{Store, WRONG_TYPE};
use self::world::World;
use crate::clock::poll;
use crate::log::Request;
use crate::ports::free_listener;
use crate::resp::Reply;
use crate::{fail, lock};

/// Names a rule, to lift it or to ask how often it struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

/// A listener that speaks RESP2 and RESP3, honest until told otherwise.
#[derive(Debug)]
pub struct ScriptedMaster {
    port: u16,
    world: Arc<Mutex<World>>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedMaster {
    /// Starts an honest one on a free port.
    ///
    /// # Panics
    /// There is no free port or no thread; [`ScriptedMaster::try_start`] gives the error instead.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::try_start()
            .unwrap_or_else(|error| fail(&format!("starting a scripted master: {error}")))
    }

    /// As [`ScriptedMaster::start`], with an error instead of a panic.
    ///
    /// # Errors
    /// There is no free port, or no thread could be made.
    pub fn try_start() -> io::Result<Self> {
        let (listener, port) = free_listener().ok_or_else(|| io::Error::other("no free port"))?;
        let world = Arc::new(Mutex::new(World::new(port)));
        let served = Arc::clone(&world);
        let thread = std::thread::Builder::new()
            .name(format!("scripted-{port}"))
            .spawn(move || accept(&listener, &served))?;
        Ok(Self {
            port,
            world,
            thread: Some(thread),
        })
    }

    /// Strikes a command always, in place of its effect; shorthand for [`ScriptedMaster::rule`].
    pub fn reply_to(&self, command: &str, fault: Fault) -> RuleId {
        self.rule(FaultRule::on(command, fault))
    }

    /// Adds a rule; of several that strike, the newest does.
    pub fn rule(&self, rule: FaultRule) -> RuleId {
        RuleId(lock(&self.world).add_rule(rule))
    }

    /// Lifts one rule.
    pub fn lift(&self, id: RuleId) {
        lock(&self.world).rules.remove(&id.0);
    }

    /// Lifts every rule, those for new connections too.
    pub fn lift_all(&self) {
        let mut world = lock(&self.world);
        world.rules.clear();
        world.on_connect = None;
    }

    /// How often a rule has struck; zero for one that was lifted.
    #[must_use]
    pub fn struck(&self, id: RuleId) -> u64 {
        lock(&self.world)
            .rules
            .get(&id.0)
            .map_or(0, |rule| rule.struck)
    }

    /// How new connections are treated from now on; none for honestly.
    pub fn on_connect(&self, fault: Option<ConnectFault>) {
        lock(&self.world).on_connect = fault;
    }

    /// Runs this in place of every script whose text is liked; of several, the first registered.
    pub fn on_script(
        &self,
        likes: impl Fn(&str) -> bool + Send + 'static,
        effect: impl Fn(&mut Store, &ScriptCall) -> Reply + Send + 'static,
    ) {
        lock(&self.world)
            .scripts
            .register(Box::new(likes), Box::new(effect));
    }

    /// Offers `DELIFEQ` (as Valkey 9) or not.
    pub fn offer_delifeq(&self, offered: bool) {
        lock(&self.world).delifeq = offered;
    }

    /// Offers `DELEX` (as Redis 8.4) or not.
    pub fn offer_delex(&self, offered: bool) {
        lock(&self.world).delex = offered;
    }

    /// Changes or adds a field of INFO: `run_id`, `redis_version`, `role`, `master_host` …
    pub fn set_info(&self, field: &str, value: &str) {
        lock(&self.world).set_info(field, value);
    }

    /// Looks into the memory, or changes it.
    pub fn with_store<T>(&self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut lock(&self.world).store)
    }

    /// Closes every present connection.
    pub fn cut_all(&self) {
        lock(&self.world).cut_all();
    }

    /// Forgets the commands so far; their numbers go on.
    pub fn clear_log(&self) {
        lock(&self.world).journal.requests.clear();
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Every command so far, in the order of arrival.
    #[must_use]
    pub fn commands(&self) -> Vec<Request> {
        lock(&self.world).journal.requests.clone()
    }

    /// The commands of one name, in any case.
    #[must_use]
    pub fn commands_of(&self, command: &str) -> Vec<Request> {
        self.commands()
            .into_iter()
            .filter(|request| request.name().eq_ignore_ascii_case(command))
            .collect()
    }

    /// Waits for a command like this, and gives the first; also one that came before.
    #[must_use]
    pub fn wait_for(&self, within: Duration, like: impl Fn(&Request) -> bool) -> Option<Request> {
        poll(within, || {
            lock(&self.world)
                .journal
                .requests
                .iter()
                .find(|request| like(request))
                .cloned()
        })
    }

    /// The time on the clock of the log.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        lock(&self.world).journal.elapsed()
    }

    /// Every key, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.with_store(Store::keys)
    }

    /// The string at a key; none if it is missing or no string.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.with_store(|store| store.get(key.as_ref()).ok().flatten())
    }

    /// Whether the key exists.
    #[must_use]
    pub fn exists(&self, key: impl AsRef<[u8]>) -> bool {
        self.with_store(|store| store.exists(key.as_ref()))
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        lock(&self.world).connections.len()
    }
}

impl Drop for ScriptedMaster {
    fn drop(&mut self) {
        let mut world = lock(&self.world);
        world.end = true;
        world.cut_all();
        drop(world);
        // Wakes the thread out of accept; where that fails, it is left waiting rather than the test.
        if TcpStream::connect(self.address()).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, world: &Arc<Mutex<World>>) {
    for client in listener.incoming() {
        if lock(world).end {
            return;
        }
        let Ok(client) = client else { continue };
        let started = session::start(client, Arc::clone(world));
        if let Err(client) = started {
            drop(client.shutdown(Shutdown::Both));
        }
    }
}
