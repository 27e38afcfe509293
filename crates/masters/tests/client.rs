//! What the masters of this crate say is understood by a client that others wrote.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorumlock_masters::{Relay, ScriptedMaster, Server};
use redis::Commands;

/// Sets, reads and deletes, plainly and by a script.
fn check(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_connection().unwrap();
    let set: Option<String> = redis::cmd("SET")
        .arg("k")
        .arg("v")
        .arg("NX")
        .arg("PX")
        .arg(60_000)
        .query(&mut connection)
        .unwrap();
    assert_eq!(set.as_deref(), Some("OK"), "{url}");
    let value: Option<String> = connection.get("k").unwrap();
    assert_eq!(value.as_deref(), Some("v"), "{url}");
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
    let deleted: i64 = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("k")
        .arg("v")
        .query(&mut connection)
        .unwrap();
    assert_eq!(deleted, 1, "{url}");
    let value: Option<String> = connection.get("k").unwrap();
    assert_eq!(value, None, "{url}");
}

#[test]
fn a_foreign_client_works_with_each_kind_of_master() {
    let (server, scripted) = (Server::start(), ScriptedMaster::start());
    let relay = Relay::to(server.address());
    for url in [server.url(), relay.url(), scripted.url()] {
        check(&url);
        check(&format!("{url}/?protocol=resp3"));
    }
    assert_eq!(relay.log_of("SET").len(), 2);
    assert_eq!(scripted.commands_of("HELLO").len(), 1);
}

#[test]
fn a_foreign_client_works_over_a_password_and_a_unix_socket() {
    let server = Server::builder()
        .password("s3cret")
        .unix_socket()
        .start()
        .unwrap();
    check(&server.url());
    check(&format!(
        "unix://{}?pass=s3cret",
        server.socket().unwrap().display()
    ));
}
