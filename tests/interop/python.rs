//! redis-py's `Lock`, driven over a pipe, against ours on one master.
//!
//! Debian's own python runs it, with the package `python3-redis`. Where that cannot be imported
//! the tests say so and do not run.

use crate::{SOON, TTL, assert_excluded, holder, ms};
use quorumlock::{Redlock, Released};
use quorumlock_masters::{Fleet, Server};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3";

/// Answers each line on its standard input with one line: what the lock said to that verb.
const DRIVER: &str = r#"
import sys, redis
from redis.exceptions import LockError, LockNotOwnedError
client = redis.Redis(port=int(sys.argv[1]))
locks = {}
def answer(verb, name, seconds):
    if verb == "try":
        locks[name] = client.lock(name, timeout=seconds)
        return str(locks[name].acquire(blocking=False))
    if verb == "wait":
        locks[name] = client.lock(name, timeout=10, sleep=0.01)
        return str(locks[name].acquire(blocking=True, blocking_timeout=seconds))
    if verb == "extend":
        return str(locks[name].extend(seconds, replace_ttl=True))
    if verb == "owned":
        return str(locks[name].owned())
    if verb == "release":
        locks[name].release()
        return "True"
for line in sys.stdin:
    verb, name, seconds = line.split()
    try:
        said = answer(verb, name, float(seconds))
    except LockNotOwnedError:
        said = "NotOwned"
    except LockError as error:
        said = "LockError: " + str(error)
    print(said, flush=True)
"#;

/// A python process with locks of its own.
struct RedisPy {
    child: Child,
    said: BufReader<ChildStdout>,
}

/// Whether redis-py can be imported here, and a word about it if not.
fn is_importable() -> bool {
    let import = ["-c", "import redis.lock"];
    let status = Command::new(PYTHON)
        .args(import)
        .stderr(Stdio::null())
        .status();
    let importable = status.is_ok_and(|status| status.success());
    if !importable {
        let text =
            format!("interop: {PYTHON} cannot import redis (python3-redis); it did not run\n");
        // Past the test runner, which keeps what a passing test prints to itself.
        std::io::stderr().write_all(text.as_bytes()).unwrap();
    }
    importable
}

impl RedisPy {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(PYTHON)
            .args(["-c", DRIVER, &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Says a verb without waiting for its answer.
    fn ask(&mut self, verb: &str, name: &str, time: Duration) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{verb} {name} {}", time.as_secs_f64()).unwrap();
        stdin.flush().unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn says(&mut self, verb: &str, name: &str, time: Duration) -> String {
        self.ask(verb, name, time);
        self.answer()
    }
}

impl Drop for RedisPy {
    fn drop(&mut self) {
        // Where it has ended by itself there is nothing to kill.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

/// One master, a client of ours and one of theirs.
async fn both() -> (Fleet, Redlock, RedisPy) {
    let fleet = Fleet::start(1);
    let python = RedisPy::start(&fleet[0]);
    let client = Redlock::connect(fleet.urls()).await.unwrap();
    (fleet, client, python)
}

#[tokio::test]
async fn a_lock_of_redis_py_excludes_ours_until_it_is_released() {
    if !is_importable() {
        return;
    }
    let (fleet, client, mut python) = both().await;
    assert_eq!(python.says("try", "job", ms(1_500)), "True");
    assert_eq!(holder(&client, "job").await, fleet[0].get("job").unwrap());
    assert_excluded(&client, "job").await;
    // Extended by them beyond what they first asked for.
    assert_eq!(python.says("extend", "job", TTL), "True");
    tokio::time::sleep(ms(1_600)).await;
    assert_excluded(&client, "job").await;
    assert_eq!(
        python.says("owned", "job", ms(0)),
        "True",
        "our refusals touched their lock"
    );
    // They publish nothing, and a waiter of ours gets it all the same.
    let waiting = tokio::spawn(client.lock("job").ttl(TTL).wait(SOON).acquire());
    assert_eq!(python.says("release", "job", ms(0)), "True");
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("job", SOON);
}

#[tokio::test]
async fn our_lock_excludes_redis_py_until_it_is_released() {
    if !is_importable() {
        return;
    }
    let (fleet, client, mut python) = both().await;
    let guard = client.lock("job").ttl(ms(400)).acquire().await.unwrap();
    assert_eq!(python.says("try", "job", TTL), "False");
    // Extended by the watchdog, several times over.
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(python.says("try", "job", TTL), "False");
    guard.extend(TTL).await.unwrap();
    assert_eq!(python.says("try", "job", TTL), "False");
    assert!(guard.is_held());
    python.ask("wait", "job", SOON);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert_eq!(
        python.answer(),
        "True",
        "their waiter did not get what we released"
    );
    assert_excluded(&client, "job").await;
    assert_eq!(python.says("release", "job", ms(0)), "True");
    fleet.assert_no_key("job", SOON);
}

#[tokio::test]
async fn case_06_our_late_release_spares_a_lock_of_redis_py() {
    if !is_importable() {
        return;
    }
    let (fleet, client, mut python) = both().await;
    let lock = client.lock("job").ttl(ms(150)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(python.says("wait", "job", SOON), "True");
    assert!(!guard.is_held(), "two holders");
    assert!(guard.extend(TTL).await.unwrap_err().is_lost());
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
    drop(guard);
    assert!(client.close(SOON).await.is_empty());
    assert_eq!(python.says("owned", "job", ms(0)), "True");
    assert_eq!(python.says("release", "job", ms(0)), "True");
    fleet.assert_no_key("job", SOON);
}

#[tokio::test]
async fn case_06_a_late_release_of_redis_py_spares_ours() {
    if !is_importable() {
        return;
    }
    let (fleet, client, mut python) = both().await;
    assert_eq!(python.says("try", "job", ms(400)), "True");
    let guard = client
        .lock("job")
        .ttl(TTL)
        .wait(SOON)
        .acquire()
        .await
        .unwrap();
    assert_eq!(python.says("owned", "job", ms(0)), "False", "two holders");
    assert_eq!(python.says("extend", "job", TTL), "NotOwned");
    assert_eq!(python.says("release", "job", ms(0)), "NotOwned");
    assert_eq!(holder(&client, "job").await, guard.token().as_bytes());
    guard.extend(TTL).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("job", SOON);
}
