//! The relay: what passes, what is late, what is lost, and what it logs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use quorumlock_masters::{
    Close, CommandError, Relay, Reply, Rule, Server, Stopwatch, Wire, eventually,
};

const SOON: Duration = Duration::from_secs(10);
const MS_100: Duration = Duration::from_millis(100);

fn wire(relay: &Relay, timeout: Duration) -> Wire {
    Wire::connect(relay.address(), timeout).unwrap()
}

fn encoded(args: &[&str]) -> Vec<u8> {
    Reply::Array(args.iter().map(Reply::bulk).collect()).encode(false)
}

#[test]
fn it_passes_and_logs() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut first = wire(&relay, SOON);
    let mut second = wire(&relay, SOON);
    let odd: &[u8] = b"\x00\xff\r\n ";
    let big = vec![b'x'; 1 << 20];
    first.call(&[b"SET", odd, &big]).unwrap();
    assert_eq!(
        second.call(&[b"GET".as_slice(), odd]).unwrap(),
        Reply::Bulk(big)
    );
    let log = relay.log();
    assert_eq!(
        log.iter()
            .map(|request| (request.seq, request.name()))
            .collect::<Vec<_>>(),
        [(0, "SET".into()), (1, "GET".into())]
    );
    assert_eq!(log[0].args[1], odd);
    assert!(log[0].at <= log[1].at && log[1].at <= relay.elapsed());
    assert_ne!(log[0].connection, log[1].connection);
    assert_eq!(
        (relay.connections().open, relay.connections().total),
        (2, 2)
    );
    drop(first);
    assert!(eventually(SOON, || relay.connections().open == 1));
    relay.clear_log();
    second.call(&["PING"]).unwrap();
    assert_eq!(relay.log()[0].seq, 2);
    assert_eq!(relay.log_of("ping").len(), 1);
}

#[test]
fn delays_overlap_and_keep_the_order() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut wire = wire(&relay, SOON);
    relay.answers(Rule::Delay(MS_100));
    let watch = Stopwatch::start();
    for number in 0..20 {
        wire.send(&encoded(&["ECHO", &number.to_string()])).unwrap();
        assert!(
            relay
                .wait_for(SOON, |request| request.mentions(number.to_string()))
                .is_some()
        );
    }
    relay.answers(Rule::Pass);
    for number in 0..20 {
        assert_eq!(wire.receive().unwrap().text(), number.to_string());
    }
    let took = watch.elapsed();
    assert!(took >= MS_100 && took < MS_100 * 10, "{took:?}");
}

#[test]
fn held_requests_arrive_later_even_from_a_client_that_left() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut wire = wire(&relay, MS_100);
    relay.requests(Rule::Hold);
    assert!(matches!(
        wire.call(&["SET", "k", "v"]),
        Err(CommandError::Io(_))
    ));
    drop(wire);
    assert!(eventually(SOON, || relay.connections().open == 0));
    assert!(!server.exists("k"));
    relay.heal();
    assert!(eventually(SOON, || server.exists("k")));
}

#[test]
fn held_answers_mean_the_effect_is_done() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut wire = wire(&relay, SOON);
    relay.answers(Rule::Hold);
    wire.send(&encoded(&["SET", "k", "v"])).unwrap();
    assert!(eventually(SOON, || server.exists("k")));
    relay.answers(Rule::Pass);
    assert_eq!(wire.receive().unwrap(), Reply::ok());
}

#[test]
fn a_connection_that_lost_bytes_stays_silent_and_a_new_one_works() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut old = wire(&relay, MS_100);
    relay.requests(Rule::Drop);
    assert!(old.call(&["SET", "k", "v"]).is_err());
    relay.heal();
    assert!(old.call(&["SET", "k", "v"]).is_err());
    assert!(!server.exists("k"));
    assert_eq!(relay.log().len(), 2);
    wire(&relay, SOON).call(&["SET", "k", "v"]).unwrap();
}

#[test]
fn cuts_close_now() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    for how in [Close::Finish, Close::Reset] {
        let mut wire = wire(&relay, SOON);
        wire.call(&["PING"]).unwrap();
        relay.cut(how);
        assert_eq!(relay.connections().open, 0);
        let error = wire.receive().unwrap_err();
        assert_eq!(
            error.kind() == std::io::ErrorKind::ConnectionReset,
            how == Close::Reset,
            "{error}"
        );
    }
    wire(&relay, SOON).call(&["PING"]).unwrap();
}

#[test]
fn an_answer_is_cut_in_the_middle_or_lost_whole() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    for (bytes, key) in [(3, "half"), (0, "none")] {
        relay.cut_mid_answer(bytes);
        assert!(matches!(
            wire(&relay, SOON).call(&["SET", key, "v"]),
            Err(CommandError::Io(_))
        ));
        assert!(server.exists(key));
        wire(&relay, SOON).call(&["PING"]).unwrap();
    }
}

#[test]
fn a_refusing_relay_is_a_closed_port() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut present = wire(&relay, SOON);
    present.call(&["PING"]).unwrap();
    relay.refuse(true);
    let refused = Wire::connect(relay.address(), SOON).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    present.call(&["PING"]).unwrap();
    relay.heal();
    wire(&relay, SOON).call(&["PING"]).unwrap();
}

#[test]
fn a_master_that_is_gone_and_back() {
    let server = Server::start();
    let relay = Relay::to(server.address());
    let mut old = wire(&relay, SOON);
    old.call(&["PING"]).unwrap();
    server.kill();
    assert!(old.receive().is_err());
    // The relay may close the connection before the client has finished making it.
    let answer = Wire::connect(relay.address(), SOON).map_err(CommandError::Io);
    assert!(answer.and_then(|mut wire| wire.call(&["PING"])).is_err());
    server.restart();
    wire(&relay, SOON).call(&["PING"]).unwrap();
}
