//! Masters that are of no use, each in its own way: scripted where that is enough, real servers where they differ.

use crate::{SOON, ms, secs};
use quorumlock_masters::{
    Close, ConnectFault, Fault, FaultRule, Relay, Reply, ScriptedMaster, Server, Wire, eventually,
};
use std::sync::{Arc, Mutex};

/// One master that is or goes bad, how it is mended, and whether it has a key.
pub(crate) struct Bad {
    pub(crate) url: String,
    spoil: Box<dyn Fn()>,
    mend: Box<dyn Fn()>,
    has_key: Box<dyn Fn(&str) -> bool>,
}

impl Bad {
    /// Turns bad, with clients already connected.
    pub(crate) fn spoil(&self) {
        (self.spoil)();
    }

    /// Turns good again, as far as it ever can.
    pub(crate) fn mend(&self) {
        (self.mend)();
    }

    pub(crate) fn has_key(&self, key: &str) -> bool {
        (self.has_key)(key)
    }

    /// Nothing is there at all.
    pub(crate) fn nowhere(url: String) -> Self {
        Self {
            url,
            spoil: Box::new(|| {}),
            mend: Box::new(|| {}),
            has_key: Box::new(|_| false),
        }
    }

    /// A port that was closed a moment ago.
    pub(crate) fn closed_port() -> Self {
        Self::nowhere(ScriptedMaster::start().url())
    }

    /// A scripted master that these rules strike from the first connection on.
    pub(crate) fn from_the_start(rule: FaultRule) -> Self {
        let master = ScriptedMaster::start();
        master.rule(rule);
        Self::scripted(master, None)
    }

    /// A scripted master that treats every connection so.
    pub(crate) fn on_connect(fault: ConnectFault) -> Self {
        let master = ScriptedMaster::start();
        master.on_connect(Some(fault));
        Self::scripted(master, None)
    }

    /// A scripted master that connects honestly, and then follows this rule.
    pub(crate) fn later(rule: FaultRule) -> Self {
        Self::scripted(ScriptedMaster::start(), Some(rule))
    }

    /// A scripted master that answers SET with this error line.
    pub(crate) fn error(text: &str) -> Self {
        Self::later(FaultRule::on("SET", Fault::error(text)))
    }

    fn scripted(master: ScriptedMaster, later: Option<FaultRule>) -> Self {
        Self::shared(Arc::new(master), later)
    }

    fn shared(master: Arc<ScriptedMaster>, later: Option<FaultRule>) -> Self {
        let (spoilt, mended, looked) = (Arc::clone(&master), Arc::clone(&master), master);
        Self {
            url: looked.url(),
            spoil: Box::new(move || {
                if let Some(rule) = later.clone() {
                    spoilt.rule(rule);
                }
            }),
            mend: Box::new(move || {
                mended.lift_all();
                mended.cut_all();
            }),
            has_key: Box::new(move |key| looked.exists(key)),
        }
    }

    /// A real server, spoilt and mended by what is done to it.
    pub(crate) fn real(
        server: Server,
        spoil: impl Fn(&Server) + 'static,
        mend: impl Fn(&Server) + 'static,
    ) -> Self {
        let server = Arc::new(server);
        let (spoilt, mended, looked) = (Arc::clone(&server), Arc::clone(&server), server);
        Self {
            url: looked.url(),
            spoil: Box::new(move || spoil(&spoilt)),
            mend: Box::new(move || mend(&mended)),
            has_key: Box::new(move |key| looked.exists(key)),
        }
    }

    /// The same master, reached by another URL.
    pub(crate) fn through(self, url: String) -> Self {
        Self { url, ..self }
    }
}

pub(crate) fn run(server: &Server, words: &[&str]) -> Reply {
    server
        .command(words)
        .unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// `redis://USER:p@…`, for a user with all rights but these.
pub(crate) fn url_of_user(server: &Server, rights: &[&str]) -> String {
    let words = [
        "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all",
    ];
    run(server, &[&words, rights].concat());
    format!("redis://u:p@{}", server.address())
}

/// A real server that wants a password which the URL lacks, or has another of.
pub(crate) fn real_password(in_url: &str) -> Bad {
    let server = Server::builder().password("p").start().unwrap();
    let url = format!("redis://{in_url}{}", server.address());
    Bad::real(server, |_| {}, |_| {}).through(url)
}

/// A real server whose user lacks a right.
pub(crate) fn real_rights(rights: &[&str]) -> Bad {
    let server = Server::start();
    let url = url_of_user(&server, rights);
    Bad::real(server, |_| {}, |_| {}).through(url)
}

/// A real server without memory for a SET.
pub(crate) fn real_out_of_memory() -> Bad {
    let spoil = |server: &Server| drop(run(server, &["CONFIG", "SET", "maxmemory", "1"]));
    let mend = |server: &Server| drop(run(server, &["CONFIG", "SET", "maxmemory", "0"]));
    Bad::real(Server::start(), spoil, mend)
}

/// A real server that becomes a replica under its clients, of a master that is not there.
pub(crate) fn real_demoted() -> Bad {
    let spoil = |server: &Server| drop(run(server, &["REPLICAOF", "127.0.0.1", "1"]));
    let mend = |server: &Server| drop(run(server, &["REPLICAOF", "NO", "ONE"]));
    Bad::real(Server::start(), spoil, mend)
}

/// A real server whose snapshots fail, since its folder is gone.
pub(crate) fn real_misconfigured() -> Bad {
    let spoil = |server: &Server| {
        run(server, &["CONFIG", "SET", "save", "3600 1"]);
        std::fs::remove_dir_all(server.folder()).unwrap();
        run(server, &["BGSAVE"]);
        let refuses = || {
            let answer = server.command(&["SET", "probe", "1"]);
            answer.is_err_and(|error| error.to_string().contains("MISCONF"))
        };
        assert!(eventually(SOON, refuses));
    };
    let mend = |server: &Server| drop(run(server, &["CONFIG", "SET", "save", ""]));
    Bad::real(Server::start(), spoil, mend)
}

/// A real server with a script that does not end.
pub(crate) fn real_busy() -> Bad {
    let endless = Mutex::new(None);
    let spoil = move |server: &Server| {
        run(server, &["CONFIG", "SET", "lua-time-limit", "10"]);
        let mut wire = Wire::connect(server.address(), secs(30)).unwrap();
        let script = "while true do end";
        let request = format!(
            "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
            script.len()
        );
        wire.send(request.as_bytes()).unwrap();
        *endless.lock().unwrap() = Some(wire);
        let busy = || {
            let answer = server.command(&["PING"]);
            answer.is_err_and(|error| error.to_string().contains("BUSY"))
        };
        assert!(eventually(secs(5), busy));
    };
    let mend = |server: &Server| {
        // A second mending finds no script to end.
        drop(server.command(&["SCRIPT", "KILL"]));
        assert!(eventually(secs(5), || server.command(&["PING"]).is_ok()));
    };
    Bad::real(Server::start(), spoil, mend)
}

/// A real server that demands replicas which it has not.
pub(crate) fn real_without_replicas() -> Bad {
    let set = |server: &Server, least: &str| {
        run(server, &["CONFIG", "SET", "min-replicas-to-write", least]);
    };
    Bad::real(
        Server::start(),
        move |server| set(server, "1"),
        move |server| set(server, "0"),
    )
}

/// A real server that is stopped: connections stay, nothing is answered.
pub(crate) fn real_stopped() -> Bad {
    Bad::real(Server::start(), Server::pause, Server::resume)
}

/// A real server that is killed; mended, it runs again.
pub(crate) fn real_killed() -> Bad {
    Bad::real(Server::start(), Server::kill, Server::restart)
}

/// A real server behind a relay that spoils what passes.
pub(crate) fn relayed(spoil: impl Fn(&Relay) + 'static) -> Bad {
    let server = Server::start();
    let relay = Arc::new(Relay::to(server.address()));
    let (url, mended) = (relay.url(), Arc::clone(&relay));
    // What was swallowed stops its connection for good, so the mending makes an end of it.
    let mend = move |_: &Server| {
        mended.heal();
        mended.cut(Close::Reset);
    };
    Bad::real(server, move |_| spoil(&relay), mend).through(url)
}

/// A scripted master that is slow beyond every timeout; mended, it works off what it was sent.
pub(crate) fn slow() -> Bad {
    let master = Arc::new(ScriptedMaster::start());
    let mended = Arc::clone(&master);
    let rule = FaultRule::on("SET", Fault::Delay(ms(1500))).after_effect();
    Bad {
        mend: Box::new(move || mended.lift_all()),
        ..Bad::shared(master, Some(rule))
    }
}
