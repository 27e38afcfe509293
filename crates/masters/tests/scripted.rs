//! The scripted master: honest by default, dishonest as told.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use quorumlock_masters::{
    CommandError, ConnectFault, Fault, FaultRule, Fleet, Reply, ScriptedMaster, Server, Stopwatch,
    Wire, eventually, pause,
};

const SOON: Duration = Duration::from_secs(10);
const MS_100: Duration = Duration::from_millis(100);
const DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const EXTEND: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end";

fn wire(master: &ScriptedMaster, timeout: Duration) -> Wire {
    Wire::connect(master.address(), timeout).unwrap()
}

fn refused(answer: Result<Reply, CommandError>) -> String {
    match answer.unwrap_err() {
        CommandError::Server(text) => text,
        CommandError::Io(error) => error.to_string(),
    }
}

/// The same commands to a real server and to a scripted one have the same answers.
#[test]
fn it_answers_as_a_real_master() {
    let (server, master) = (Server::start(), ScriptedMaster::start());
    let mut real = Wire::connect(server.address(), SOON).unwrap();
    let mut scripted = wire(&master, SOON);
    let commands: &[&[&str]] = &[
        &["PING"],
        &["PING", "x"],
        &["ECHO", "x"],
        &["SET", "k", "a", "NX", "PX", "60000"],
        &["SET", "k", "b", "NX", "PX", "60000"],
        &["GET", "k"],
        &["GET", "none"],
        &["PTTL", "none"],
        &["TYPE", "k"],
        &["TYPE", "none"],
        &["EXISTS", "k", "none"],
        &["SET", "k", "c", "XX", "GET", "PX", "60000"],
        &["SET", "k", "c", "PX", "0"],
        &["SET", "k", "c", "PX", "x"],
        &["SET", "k"],
        &["SET", "k", "c", "IFEQ", "b"],
        &["DELIFEQ", "k", "c"],
        &["EVAL", DELETE, "1", "k", "b"],
        &["EVAL", EXTEND, "1", "k", "c", "90000"],
        &["EVAL", DELETE, "1", "k", "c"],
        &["EVAL", DELETE, "1", "k", "c"],
        &["SCRIPT", "LOAD", DELETE],
        &["EVALSHA", "ffff", "1", "k", "b"],
        &["INCR", "n"],
        &["INCR", "n"],
        &["SET", "n", "x"],
        &["INCR", "n"],
        &["DEL", "n", "k"],
        &["DBSIZE"],
        &["PEXPIRE", "none", "5"],
        &["PUBLISH", "c", "m"],
        &["PUBSUB", "CHANNELS"],
        &["CLIENT", "SETNAME", "x"],
        &["SELECT", "0"],
    ];
    for command in commands {
        let show = |answer: Result<Reply, CommandError>| match answer {
            Ok(reply) => reply.text(),
            Err(error) => error
                .to_string()
                .split(" command")
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        assert_eq!(
            show(scripted.call(command)),
            show(real.call(command)),
            "{command:?}"
        );
    }
    assert_eq!(master.commands().len(), commands.len());
}

#[test]
fn keys_expire_and_types_differ() {
    let master = ScriptedMaster::start();
    let mut wire = wire(&master, SOON);
    wire.call(&["SET", "k", "v", "PX", "50"]).unwrap();
    assert!((1..=50).contains(&wire.call(&["PTTL", "k"]).unwrap().as_int().unwrap()));
    assert!(master.exists("k"));
    pause(Duration::from_millis(60));
    assert_eq!(wire.call(&["GET", "k"]).unwrap(), Reply::Nil);
    assert!(master.keys().is_empty());
    master.with_store(|store| store.set_other_type(b"list"));
    assert!(refused(wire.call(&["GET", "list"])).starts_with("WRONGTYPE"));
    assert!(refused(wire.call(&["EVAL", DELETE, "1", "list", "v"])).starts_with("WRONGTYPE"));
    assert_eq!(wire.call(&["SET", "list", "v", "NX"]).unwrap(), Reply::Nil);
}

#[test]
fn an_extension_never_brings_the_expiry_nearer() {
    let master = ScriptedMaster::start();
    let mut wire = wire(&master, SOON);
    let mut extend = |ttl: &str| {
        wire.call(&["EVAL", EXTEND, "1", "k", "v", ttl])
            .unwrap()
            .as_int()
            .unwrap()
    };
    assert_eq!(extend("1000"), -1);
    master.with_store(|store| store.set(b"k", b"v", Some(SOON)));
    assert_eq!(extend("20"), 1);
    assert!(master.with_store(|store| store.pttl(b"k")) > 1000);
    assert_eq!(extend("60000"), 1);
    assert!(master.with_store(|store| store.pttl(b"k")) > 20_000);
    master.with_store(|store| store.set(b"k", b"other", None));
    assert_eq!(extend("1000"), 0);
}

#[test]
fn hello_speaks_resp3_and_info_can_be_changed() {
    let master = ScriptedMaster::start();
    master.set_info("run_id", "abc");
    master.set_info("role", "slave");
    master.set_info("master_host", "10.0.0.9");
    let mut wire = wire(&master, SOON);
    assert!(
        matches!(wire.call(&["HELLO", "3", "AUTH", "u", "p"]).unwrap(), Reply::Map(pairs) if pairs.contains(&(Reply::bulk("proto"), Reply::Int(3))))
    );
    wire.send(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").unwrap();
    assert_eq!(wire.receive().unwrap(), Reply::Nil);
    let info = wire.call(&["INFO"]).unwrap().text();
    assert!(
        info.contains("run_id:abc\r\n")
            && info.contains("role:slave\r\n")
            && info.contains("master_host:10.0.0.9\r\n")
    );
    assert!(
        !wire
            .call(&["INFO", "replication"])
            .unwrap()
            .text()
            .contains("run_id:")
    );
    assert!(refused(wire.call(&["HELLO", "4"])).starts_with("NOPROTO"));
}

#[test]
fn native_deletes_when_offered() {
    let master = ScriptedMaster::start();
    let mut wire = wire(&master, SOON);
    master.offer_delifeq(true);
    master.offer_delex(true);
    assert!(
        matches!(wire.call(&["COMMAND", "INFO", "delifeq"]).unwrap(), Reply::Array(items) if items[0] != Reply::Nil)
    );
    for (command, answer) in [
        (["DELIFEQ", "k", "x"].as_slice(), 0),
        (&["DELIFEQ", "k", "v"], 1),
        (&["DELEX", "k", "IFEQ", "v"], 1),
    ] {
        master.with_store(|store| store.set(b"k", b"v", None));
        assert_eq!(
            wire.call(command).unwrap(),
            Reply::Int(answer),
            "{command:?}"
        );
    }
}

#[test]
fn registered_scripts_run_over_the_store() {
    let master = ScriptedMaster::start();
    master.on_script(
        |text| text.contains("fence"),
        |store, call| {
            store
                .incr(&call.keys[0], 1)
                .map_or_else(|text| Reply::Error(text.into()), Reply::Int)
        },
    );
    let mut wire = wire(&master, SOON);
    assert_eq!(
        wire.call(&["EVAL", "-- fence", "1", "c"]).unwrap(),
        Reply::Int(1)
    );
    let hash = wire.call(&["SCRIPT", "LOAD", "-- fence"]).unwrap().text();
    assert_eq!(
        wire.call(&["EVALSHA", &hash, "1", "c"]).unwrap(),
        Reply::Int(2)
    );
    wire.call(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(refused(wire.call(&["EVALSHA", &hash, "1", "c"])).starts_with("NOSCRIPT"));
}

#[test]
fn errors_strike_as_often_as_told_and_leave_no_effect() {
    let master = ScriptedMaster::start();
    let mut wire = wire(&master, SOON);
    let busy = master.rule(
        FaultRule::on("set", Fault::error("BUSY Redis is busy"))
            .skip(1)
            .times(2),
    );
    let answers: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|key| wire.call(&["SET", key, "v"]).is_ok())
        .collect();
    assert_eq!(answers, [true, false, false, true]);
    assert_eq!(master.keys(), [b"a", b"d"]);
    assert_eq!(master.struck(busy), 2);
    master.rule(FaultRule::on("EVAL", Fault::error("NOPERM no")).containing("pexpire"));
    assert!(refused(wire.call(&["EVAL", EXTEND, "1", "a", "v", "9"])).starts_with("NOPERM"));
    let hash = wire.call(&["SCRIPT", "LOAD", EXTEND]).unwrap().text();
    assert!(refused(wire.call(&["EVALSHA", &hash, "1", "a", "v", "9"])).starts_with("NOPERM"));
    assert_eq!(
        wire.call(&["EVAL", DELETE, "1", "a", "v"]).unwrap(),
        Reply::Int(1)
    );
    let all = master.rule(FaultRule::any(Fault::error(
        "LOADING Redis is loading the dataset in memory",
    )));
    assert!(refused(wire.call(&["PING"])).starts_with("LOADING"));
    master.lift(all);
    assert!(wire.call(&["PING"]).is_ok());
    master.lift_all();
    assert!(wire.call(&["EVAL", EXTEND, "1", "d", "v", "9"]).is_ok());
}

#[test]
fn answers_are_spoilt_in_every_way() {
    for (fault, after_effect, effect) in [
        (Fault::error("OOM no"), true, true),
        (Fault::Garbage(b"hello\r\n".to_vec()), false, false),
        (Fault::Answer(Reply::Nil), false, false),
        (Fault::HalfThenSilence, false, true),
        (Fault::HalfThenCut, false, true),
        (Fault::Silence, false, false),
        (Fault::Silence, true, true),
        (Fault::Cut, false, false),
        (Fault::Cut, true, true),
    ] {
        let master = ScriptedMaster::start();
        let rule = FaultRule::on("SET", fault.clone()).times(1);
        master.rule(if after_effect {
            rule.after_effect()
        } else {
            rule
        });
        let mut wire = wire(&master, MS_100);
        let answer = wire.call(&["SET", "k", "v"]);
        assert!(
            !matches!(&answer, Ok(reply) if *reply == Reply::ok()),
            "{fault:?}: {answer:?}"
        );
        assert_eq!(
            master.exists("k"),
            effect,
            "{fault:?} after effect: {after_effect}"
        );
        let quiet = matches!(fault, Fault::HalfThenSilence | Fault::Silence);
        let closed = matches!(fault, Fault::HalfThenCut | Fault::Cut);
        assert_eq!(wire.call(&["PING"]).is_err(), quiet || closed, "{fault:?}");
        assert!(
            eventually(SOON, || (master.connections() == 0) == closed),
            "{fault:?}"
        );
        assert_eq!(
            master.commands_of("ping").len(),
            usize::from(!closed),
            "{fault:?}"
        );
    }
}

#[test]
fn a_delay_comes_before_or_after_the_effect() {
    let master = ScriptedMaster::start();
    for (key, after_effect) in [("before", false), ("after", true)] {
        let rule = FaultRule::on("SET", Fault::Delay(MS_100 * 3)).times(1);
        master.rule(if after_effect {
            rule.after_effect()
        } else {
            rule
        });
        let mut wire = wire(&master, SOON);
        let watch = Stopwatch::start();
        wire.send(&Reply::Array(["SET", key, "v"].iter().map(Reply::bulk).collect()).encode(false))
            .unwrap();
        assert!(
            master
                .wait_for(SOON, |request| request.mentions(key))
                .is_some()
        );
        assert_eq!(eventually(MS_100, || master.exists(key)), after_effect);
        assert_eq!(wire.receive().unwrap(), Reply::ok());
        assert!(watch.elapsed() >= MS_100 * 3 && master.exists(key));
    }
}

#[test]
fn connections_can_be_closed_silent_or_garbage() {
    let master = ScriptedMaster::start();
    for (fault, said) in [
        (ConnectFault::Close, ""),
        (ConnectFault::Silence, ""),
        (
            ConnectFault::Garbage(b"SSH-2.0-x\r\n".to_vec()),
            "no RESP: SSH-2.0-x",
        ),
    ] {
        master.on_connect(Some(fault.clone()));
        let error = wire(&master, MS_100).call(&["PING"]).unwrap_err();
        assert!(
            matches!(&error, CommandError::Io(error) if error.to_string().contains(said)),
            "{fault:?}: {error}"
        );
    }
    master.lift_all();
    let mut good = wire(&master, SOON);
    good.call(&["PING"]).unwrap();
    master.cut_all();
    assert!(good.call(&["PING"]).is_err());
}

#[test]
fn messages_reach_subscribers() {
    let master = ScriptedMaster::start();
    let (mut listener, mut speaker) = (wire(&master, SOON), wire(&master, SOON));
    listener.call(&["SUBSCRIBE", "free"]).unwrap();
    assert_eq!(
        speaker.call(&["PUBLISH", "free", "now"]).unwrap(),
        Reply::Int(1)
    );
    assert_eq!(listener.receive().unwrap().text(), "message free now");
    listener.call(&["UNSUBSCRIBE"]).unwrap();
    assert_eq!(
        speaker.call(&["PUBLISH", "free", "now"]).unwrap(),
        Reply::Int(0)
    );
}

#[test]
fn a_fleet_and_a_scripted_master_live_side_by_side() {
    let (fleet, master) = (Fleet::start(2), ScriptedMaster::start());
    assert!(fleet.iter().all(|server| server.port() != master.port()));
    drop(master);
}
