//! A site: masters of one kind, how clients reach them, and how a test looks into them.

use quorumlock::{MasterAddress, Redlock};
use quorumlock_masters::{Flavour, Fleet, ScriptedMaster, Server, ServerBuilder, Stopwatch, Wire};
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

/// How long something that is under way may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(3);

/// What a scripted master says it is, and can do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Imitation {
    Redis7,
    Redis84,
    Valkey9,
}

enum Masters {
    Servers(Fleet),
    Scripted(Vec<ScriptedMaster>),
}

/// Masters of one kind.
pub(crate) struct Site {
    pub(crate) name: String,
    masters: Masters,
    /// Where clients are sent.
    urls: Vec<String>,
    /// What stands before a resource's name in its key.
    prefix: &'static str,
    /// One connection of the test's own to each master.
    wires: Vec<Mutex<Wire>>,
}

impl Site {
    /// Servers with their default settings.
    pub(crate) fn servers(flavour: &Flavour, size: usize) -> Self {
        Self::set_up(flavour, size, |builder| builder)
    }

    /// Servers with other settings.
    pub(crate) fn set_up(
        flavour: &Flavour,
        size: usize,
        settings: impl Fn(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let builder = |_| settings(Server::builder().flavour(flavour.clone()));
        let fleet = Fleet::with(size, builder).unwrap();
        let wires = fleet.iter().map(|server| wire(server.address())).collect();
        Self {
            name: format!("{size} × {flavour:?}"),
            urls: fleet.urls(),
            masters: Masters::Servers(fleet),
            prefix: "",
            wires,
        }
    }

    pub(crate) fn scripted(imitation: Imitation, size: usize) -> Self {
        let masters: Vec<_> = (0..size).map(|_| imitate(imitation)).collect();
        Self {
            name: format!("{size} × scripted {imitation:?}"),
            urls: masters.iter().map(ScriptedMaster::url).collect(),
            wires: masters
                .iter()
                .map(|master| wire(master.address()))
                .collect(),
            masters: Masters::Scripted(masters),
            prefix: "",
        }
    }

    /// The same masters, reached by other URLs.
    pub(crate) fn by(mut self, what: &str, url: impl Fn(&Server) -> String) -> Self {
        self.urls = self.fleet().iter().map(url).collect();
        self.name = format!("{}, by {what}", self.name);
        self
    }

    pub(crate) fn prefixed(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Sends this on the test's own connections: a login, a database.
    pub(crate) fn after(self, words: &[&str]) -> Self {
        for master in 0..self.size() {
            self.call(master, words);
        }
        self
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        match &self.masters {
            Masters::Servers(fleet) => fleet,
            Masters::Scripted(_) => panic!("{} has no servers", self.name),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.wires.len()
    }

    pub(crate) fn quorum(&self) -> usize {
        self.size() / 2 + 1
    }

    pub(crate) fn all(&self) -> std::ops::Range<usize> {
        0..self.size()
    }

    /// As many masters as can be missing: the last ones.
    pub(crate) fn minority(&self) -> std::ops::Range<usize> {
        self.quorum()..self.size()
    }

    /// So many masters that the others make no quorum: the first ones.
    pub(crate) fn blocking(&self) -> std::ops::Range<usize> {
        0..self.size() - self.quorum() + 1
    }

    /// A client with connections of its own.
    pub(crate) async fn client(&self) -> Redlock {
        let masters = self
            .urls
            .iter()
            .map(|url| MasterAddress::from(url.as_str()));
        Redlock::builder()
            .masters(masters)
            .prefix(self.prefix)
            .connect()
            .await
            .unwrap()
    }

    pub(crate) fn key(&self, resource: impl AsRef<[u8]>) -> Vec<u8> {
        [self.prefix.as_bytes(), resource.as_ref()].concat()
    }

    pub(crate) fn call<A: AsRef<[u8]>>(
        &self,
        master: usize,
        words: &[A],
    ) -> quorumlock_masters::Reply {
        let mut wire = self.wires[master].lock().unwrap();
        wire.call(words)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// What a master has under a resource's key.
    pub(crate) fn value(&self, master: usize, resource: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let reply = self.call(master, &[b"GET".as_slice(), &self.key(resource)]);
        reply.as_bytes().map(<[u8]>::to_vec)
    }

    /// The masters that have this token under the resource's key.
    pub(crate) fn with_token(&self, resource: impl AsRef<[u8]>, token: &str) -> usize {
        let has =
            |master: &usize| self.value(*master, &resource).as_deref() == Some(token.as_bytes());
        self.all().filter(has).count()
    }

    /// What PTTL says: milliseconds, −1 for ever, −2 missing.
    pub(crate) fn pttl(&self, master: usize, resource: &str) -> i64 {
        self.call(master, &[b"PTTL".as_slice(), &self.key(resource)])
            .as_int()
            .unwrap()
    }

    /// Puts somebody else's lock there, whatever was there before.
    pub(crate) fn steal(&self, masters: impl Iterator<Item = usize>, resource: &str, token: &str) {
        for master in masters {
            self.call(
                master,
                &[
                    b"SET".as_slice(),
                    &self.key(resource),
                    token.as_bytes(),
                    b"PX",
                    b"60000",
                ],
            );
        }
    }

    pub(crate) fn delete(&self, masters: impl Iterator<Item = usize>, resource: &str) {
        for master in masters {
            self.call(master, &[b"DEL".as_slice(), &self.key(resource)]);
        }
    }

    /// Deletes every key.
    pub(crate) fn clear(&self) {
        for master in self.all() {
            self.call(master, &["FLUSHDB"]);
        }
    }

    /// Puts something under the key that is no string.
    pub(crate) fn set_other_type(&self, masters: impl Iterator<Item = usize>, resource: &str) {
        for master in masters {
            let key = self.key(resource);
            match &self.masters {
                Masters::Servers(_) => drop(self.call(master, &[b"RPUSH".as_slice(), &key, b"x"])),
                Masters::Scripted(masters) => {
                    masters[master].with_store(|store| store.set_other_type(&key))
                }
            }
        }
    }

    /// Every key of every master, as text.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        for master in self.all() {
            let quorumlock_masters::Reply::Array(keys) = self.call(master, &["KEYS", "*"]) else {
                panic!("KEYS is answered by a list");
            };
            found.extend(
                keys.iter()
                    .map(|key| format!("master {master} has {}", key.text())),
            );
        }
        found
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn wire(address: SocketAddr) -> Mutex<Wire> {
    Mutex::new(Wire::connect(address, Duration::from_secs(10)).unwrap())
}

fn imitate(imitation: Imitation) -> ScriptedMaster {
    let master = ScriptedMaster::start();
    match imitation {
        Imitation::Redis7 => {}
        Imitation::Redis84 => {
            master.set_info("redis_version", "8.4.0");
            master.offer_delex(true);
        }
        Imitation::Valkey9 => {
            // A field that the scripted master does not know stands in another section of INFO, so
            // this one is told behind one that it knows.
            master.set_info("redis_version", "7.2.4\r\nvalkey_version:9.0.0");
            master.offer_delifeq(true);
        }
    }
    master
}

/// Waits, without stopping the runtime, until the condition holds.
pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let watch = Stopwatch::start();
    while !condition() {
        if watch.elapsed() > SOON {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    true
}

/// Fails, and says for what, what should have ended by itself.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(SOON, future).await else {
        panic!("{what} took longer than {SOON:?}");
    };
    value
}

/// Says it beside the test runner, which keeps what a passing test prints to itself.
pub(crate) fn say(text: &str) {
    std::io::stderr()
        .write_all(format!("{text}\n").as_bytes())
        .unwrap();
}
