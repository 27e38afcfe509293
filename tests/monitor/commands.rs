//! MONITOR on every kind of server: which commands an acquisition, an extension and a release are.

use crate::{Deed, deed, eventually, from_clients, ms, token};
use quorumlock::{Guard, Redlock, Released};
use quorumlock_masters::{Flavour, Fleet, Monitor, Server};
use std::io::Write;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

/// Three servers of one kind, each under MONITOR, and a client that is connected to all.
struct Watched {
    flavour: Flavour,
    fleet: Fleet,
    monitors: Vec<Monitor>,
    client: Redlock,
}

impl Watched {
    async fn start(flavour: Flavour) -> Self {
        let fleet = Fleet::with(3, |_| Server::builder().flavour(flavour.clone())).unwrap();
        let client = Redlock::connect(fleet.urls()).await.unwrap();
        // Asks all three, so that every connection is made and has introduced itself.
        assert_eq!(client.status("k").await.unwrap().answered(), 3);
        let monitors = fleet
            .iter()
            .map(|server| server.monitor().unwrap())
            .collect();
        Self {
            flavour,
            fleet,
            monitors,
            client,
        }
    }

    /// What every server was sent for the lock, once it is so many commands and no more.
    ///
    /// That is what came on the connection that carried the SET. A second one may repeat the
    /// delete, where a busy machine has left the first unanswered for long, and nothing else.
    async fn commands(&self, count: usize) -> Vec<Vec<Vec<String>>> {
        let all = || self.monitors.iter().map(own).collect::<Vec<_>>();
        let came = eventually(|| all().iter().all(|commands| commands.len() >= count)).await;
        let all = all();
        let exact = all.iter().all(|commands| commands.len() == count);
        assert!(came && exact, "{:?}: {all:#?}", self.flavour);
        all
    }

    /// The end of a test: nothing more is sent, and no key is left.
    async fn end(self, count: usize) {
        assert!(self.client.close(ms(2_000)).await.is_empty());
        self.commands(count).await;
        self.fleet.assert_no_key("k", ms(1_000));
        assert_eq!(self.fleet.total_keys(), 0);
    }

    /// The command that compares and deletes there.
    fn check_delete(&self, command: &[String], guard: &Guard) {
        let token = guard.token();
        match self.flavour {
            Flavour::Valkey9 => assert_eq!(command, ["DELIFEQ", "k", token]),
            _ => {
                assert_eq!(command[0], "EVAL");
                assert_eq!(command[2..], ["1", "k", token]);
            }
        }
    }

    /// What scripts ran, on any server.
    fn run_by_scripts(&self) -> Vec<String> {
        let lines = self.monitors.iter().flat_map(Monitor::lines);
        lines.filter(|line| line.contains(" lua] ")).collect()
    }
}

/// The commands on the connection that sent the SET.
fn own(monitor: &Monitor) -> Vec<Vec<String>> {
    let sent = from_clients(monitor);
    let Some(set) = sent.iter().find(|sent| sent.words[0] == "SET").cloned() else {
        return Vec::new();
    };
    let (own, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(|sent| sent.from == set.from);
    for other in others {
        assert_eq!(deed(&other.words), Some(Deed::Delete), "{other:?}");
    }
    own.into_iter().map(|sent| sent.words).collect()
}

/// Every kind of server that can be had, and a word about those that cannot.
async fn on_all<F: Future<Output = ()>>(run: impl Fn(Watched) -> F) {
    for flavour in [Flavour::Redis, Flavour::Redis8, Flavour::Valkey9] {
        if flavour.available().is_some() {
            run(Watched::start(flavour).await).await;
        } else {
            // Past the test runner, which keeps what a passing test prints to itself.
            let text = format!(
                "monitor: {flavour:?} cannot be had here; it did not run
"
            );
            std::io::stderr().write_all(text.as_bytes()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_is_one_set_and_a_release_one_command() {
    on_all(|watched| async move {
        let guard = watched.client.lock("k").ttl(TTL).acquire().await.unwrap();
        for commands in watched.commands(1).await {
            assert_eq!(
                commands[0],
                ["SET", "k", guard.token(), "NX", "PX", "10000"]
            );
        }
        assert!(
            watched.run_by_scripts().is_empty(),
            "an acquisition ran a script"
        );
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        for commands in watched.commands(2).await {
            watched.check_delete(&commands[1], &guard);
        }
        let by_script = watched.run_by_scripts();
        assert_eq!(
            by_script.is_empty(),
            watched.flavour == Flavour::Valkey9,
            "{by_script:#?}"
        );
        // Neither the dropped guard nor the second call sends anything more.
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        drop(guard);
        watched.end(2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_is_one_command() {
    on_all(|watched| async move {
        let guard = watched.client.lock("k").ttl(TTL).acquire().await.unwrap();
        watched.commands(1).await;
        drop(guard);
        let commands = watched.commands(2).await;
        assert!(
            commands
                .iter()
                .all(|commands| commands[1].contains(&"k".to_owned()))
        );
        watched.end(2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_by_hand_is_one_command() {
    on_all(|watched| async move {
        let guard = watched.client.lock("k").ttl(TTL).acquire().await.unwrap();
        watched.commands(1).await;
        guard.extend(TTL).await.unwrap();
        for commands in watched.commands(2).await {
            assert_eq!(commands[1][0], "EVAL");
            assert_eq!(commands[1][2..5], ["1", "k", guard.token()]);
        }
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        watched.end(3).await;
    })
    .await;
}

/// Back to back on one resource: each SET is followed by its own delete before the next one comes.
/// One that was not yet written when its hold ended is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_are_sets_and_deletes_in_turn() {
    on_all(|watched| async move {
        for _ in 0..50 {
            let guard = watched
                .client
                .lock("k")
                .ttl(TTL)
                .try_acquire()
                .await
                .unwrap();
            assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        }
        assert!(watched.client.close(ms(2_000)).await.is_empty());
        let mut sets = 0;
        for commands in watched.monitors.iter().map(own) {
            for (place, command) in commands
                .iter()
                .enumerate()
                .filter(|(_, words)| words[0] == "SET")
            {
                let next = &commands[place + 1];
                assert_eq!(deed(next), Some(Deed::Delete), "{commands:#?}");
                assert_eq!(token(next), token(command), "{commands:#?}");
                sets += 1;
            }
        }
        assert!(sets >= 100, "a quorum of 50 holds is {sets} SETs");
        assert_eq!(watched.fleet.total_keys(), 0);
    })
    .await;
}
