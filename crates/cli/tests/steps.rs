//! `acquire`, `extend`, `release` and `status`: the steps for scripts, their JSON, names that are any bytes, secrets, input.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorumlock_masters::{Fleet, Server};
use rustix::process::Signal;
use serde_json::Value;
use support::{PATIENCE, Running, SOON, Said, bare, on, on_urls, output, run, steal, words};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn the_steps_make_one_life() {
    let fleet = Fleet::start(3);
    let said = output(on(&fleet), words("acquire k --ttl 10s"));
    let token = said
        .expect(0)
        .out
        .lines()
        .next()
        .unwrap()
        .strip_prefix("token=")
        .unwrap()
        .to_owned();
    assert!(
        said.out.lines().nth(1).unwrap().starts_with("validity="),
        "{said:?}"
    );
    assert_eq!(
        fleet[0].get("k"),
        Some(token.clone().into_bytes()),
        "the lock stays when the command has ended"
    );
    let said = output(
        on(&fleet),
        words(&format!("extend k --token {token} --ttl 40s")),
    );
    assert!(said.expect(0).out.starts_with("validity=3"), "{said:?}");
    assert!(fleet[2].pttl("k").unwrap() > Duration::from_secs(30));
    assert_eq!(
        output(on(&fleet), words(&format!("release k --token {token}")))
            .expect(0)
            .out,
        ""
    );
    fleet.assert_no_key("k", SOON);
    output(on(&fleet), words(&format!("release k --token {token}"))).expect(76);
    output(
        on(&fleet),
        words(&format!("extend k --token {token} --ttl 1s")),
    )
    .expect(76);
    fleet.assert_no_key("k", Duration::ZERO);
}

#[test]
fn a_foreign_lock_is_left_alone_unless_forced() {
    let fleet = Fleet::start(3);
    steal(&fleet, "k", Duration::from_secs(60));
    output(on(&fleet), words("release k --token mine")).expect(76);
    output(on(&fleet), words("extend k --token mine --ttl 1s")).expect(76);
    output(on(&fleet), words("acquire k --ttl 1s --no-wait")).expect(75);
    output(on(&fleet), words("acquire k --ttl 1s --wait 100ms")).expect(75);
    assert_eq!(fleet[1].get("k"), Some(b"a-thief".to_vec()));
    let said = output(on(&fleet), words("release k --force --json"));
    assert_eq!(
        keys(&said.expect(0).json()),
        ["masters", "released", "resource"]
    );
    fleet.assert_no_key("k", SOON);
}

#[test]
fn a_wait_is_ended_by_a_signal_and_leaves_nothing() {
    let fleet = Fleet::start(3);
    steal(&fleet, "k", Duration::from_secs(60));
    let monitor = fleet[2].monitor().unwrap();
    let running = Running::start(on(&fleet), words("acquire k --ttl 30s --json"));
    assert!(
        quorumlock_masters::eventually(PATIENCE, || !monitor.lines_of("SET").is_empty()),
        "no attempt was seen"
    );
    running.signal(Signal::INT);
    let error = running.end().expect(130).json();
    assert_eq!(error["error"]["exit"], 130);
    // The third master had granted what the other two denied.
    assert!(quorumlock_masters::eventually(SOON, || !fleet[2].exists("k")));
}

#[test]
fn json_has_the_documented_fields() {
    let fleet = Fleet::start(3);
    let acquired = output(on(&fleet), words("--json acquire k --ttl 10s"))
        .expect(0)
        .json();
    assert_eq!(
        keys(&acquired),
        ["grants", "resource", "token", "validity_ms"]
    );
    let token = acquired["token"].as_str().unwrap();
    let status = output(on(&fleet), words("status k free --json"))
        .expect(0)
        .json();
    assert_eq!(keys(&status), ["resources"]);
    let (held, free) = (&status["resources"][0], &status["resources"][1]);
    assert_eq!(
        keys(held),
        [
            "held_on", "masters", "quorum", "resource", "token", "verdict"
        ]
    );
    assert_eq!(keys(held), keys(free));
    assert_eq!(
        (
            &held["verdict"],
            &held["token"],
            &held["held_on"],
            &held["quorum"]
        ),
        (&"held".into(), &token.into(), &3.into(), &2.into())
    );
    assert_eq!(
        keys(&held["masters"][0]),
        ["address", "detail", "index", "state", "token", "ttl_ms"]
    );
    assert_eq!(
        (&free["verdict"], &free["token"]),
        (&"free".into(), &Value::Null)
    );
    let extended = output(
        on(&fleet),
        words(&format!("extend k --token {token} --ttl 20s --json")),
    )
    .expect(0)
    .json();
    assert_eq!(keys(&extended), ["resource", "token", "validity_ms"]);
    let denied = output(on(&fleet), words("acquire k --ttl 9s --no-wait --json"))
        .expect(75)
        .json();
    assert_eq!(keys(&denied), ["error"]);
    assert_eq!(
        keys(&denied["error"]),
        ["exit", "kind", "masters", "message"]
    );
    assert_eq!(
        keys(&denied["error"]["masters"][0]),
        ["address", "answer", "detail", "index"]
    );
    let released = output(
        on(&fleet),
        words(&format!("release k --token {token} --json")),
    )
    .expect(0)
    .json();
    assert_eq!(keys(&released), ["released", "resource"]);
    let usage = output(on(&fleet), words("status --json")).expect(2).json();
    assert_eq!(usage["error"]["kind"], "usage");
}

#[test]
fn status_gives_the_verdict_and_each_masters_part() {
    let fleet = Fleet::start(3);
    let verdict = |key: &str, code: i32| {
        let said = output(on(&fleet), ["status", key, "--json"]);
        said.expect(code).json()["resources"][0]["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (index, server) in fleet.iter().enumerate() {
        server
            .command(&["SET", "split", &format!("t{index}"), "PX", "60000"])
            .unwrap();
    }
    steal(&fleet, "held", Duration::from_secs(60));
    assert_eq!(verdict("free", 0), "free");
    assert_eq!(verdict("held", 0), "held");
    assert_eq!(verdict("split", 0), "split");
    // Case 38: one that holds it is killed; it is still held, by what is left.
    fleet[2].kill();
    let text = output(on(&fleet), words("status held"))
        .expect(0)
        .out
        .clone();
    assert!(
        text.starts_with("held: held by a-thief on 2 of 3 masters"),
        "{text}"
    );
    assert!(text.contains("no answer"), "{text}");
    fleet[1].kill();
    assert_eq!(verdict("held", 69), "unknown");
}

#[test]
fn case_31_names_are_any_bytes() {
    let fleet = Fleet::start(3);
    let name = OsStr::from_bytes(&[0xff, 0x0a, 0x0d, 0x20, b'{', b'}']);
    let with_name = |verb: &str, rest: &str| {
        let mut args = vec![OsString::from(verb), name.to_owned()];
        args.extend(words(rest).into_iter().map(OsString::from));
        args
    };
    let acquired = output(on(&fleet), with_name("acquire", "--ttl 10s --json"))
        .expect(0)
        .json();
    assert_eq!(acquired["resource_base64"], "/woNIHt9");
    assert!(
        fleet[0].exists(name.as_bytes()),
        "the key is the very bytes"
    );
    let text = output(on(&fleet), with_name("status", ""))
        .expect(0)
        .out
        .clone();
    assert!(text.starts_with(r"\xff\n\r {}: held by"), "{text}");
    let token = acquired["token"].as_str().unwrap();
    output(
        on(&fleet),
        with_name("release", &format!("--token {token}")),
    )
    .expect(0);
    fleet.assert_no_key(name.as_bytes(), SOON);
    let mut command = with_name("run", "--report - -- sh -c");
    command.push(r#"printf %s "$QUORUMLOCK_RESOURCE" | od -An -tx1"#.into());
    let said = output(on(&fleet), command);
    assert_eq!(said.expect(0).out.trim(), "ff 0a 0d 20 7b 7d");
    assert_eq!(said.report()["resource_base64"], "/woNIHt9");
}

#[test]
fn the_prefix_makes_the_key() {
    let fleet = Fleet::start(1);
    let mut command = on(&fleet);
    command.env("QUORUMLOCK_PREFIX", "from-variable:");
    output(command, words("acquire k --ttl 10s")).expect(0);
    let mut command = on(&fleet);
    command.env("QUORUMLOCK_PREFIX", "from-variable:");
    output(command, words("acquire k --ttl 10s --prefix from-flag:")).expect(0);
    assert!(fleet[0].exists("from-variable:k") && fleet[0].exists("from-flag:k"));
}

#[test]
fn case_41_bad_input_is_refused_before_a_byte_is_sent() {
    let fleet = Fleet::start(1);
    let monitor = fleet[0].monitor().unwrap();
    let check = |line: &str, part: &str| {
        let said = output(on(&fleet), line.split(' '));
        assert!(said.expect(2).err.contains(part), "{line}: {said:?}");
        assert_eq!(said.out, "", "{line}");
    };
    check("acquire k --ttl 30", "'30' has no unit");
    check("acquire k --ttl 1.5s", "whole numbers");
    check(
        "acquire k --ttl 99999999999999999999h",
        "longer than can be counted",
    );
    check("acquire k --ttl 5000000h", "bad input");
    check("acquire k --ttl 0s", "bad input");
    check("acquire k --ttl 1ms", "bad input");
    check("acquire k --ttl 61s", "60s");
    check("acquire k", "--ttl");
    check("acquire  --ttl 9s", "empty");
    check("acquire quorumlock:member --ttl 9s", "quorumlock:");
    check(
        "acquire k --ttl 9s --wait 1s --no-wait",
        "cannot be used with",
    );
    check("release k", "--token");
    check("release k --token t --force", "cannot be used with");
    check("status", "RESOURCE");
    check("run k true", "COMMAND");
    check("run k --", "COMMAND");
    check("run k --fenced -- true", "--fenced");
    check("run k --ttl 10s --grace 6s -- true", "more than half");
    check("run k --ttl 50ms -- true", "too short");
    check("run k --conflict-exit 256 -- true", "256");
    check("nonsense k", "nonsense");
    check("status k --timeout 5", "has no unit");
    check("masters start --count 0", "0");
    let authority = if cfg!(feature = "tls") {
        "/ca.pem"
    } else {
        "without its feature 'tls'"
    };
    check("status k --tls-ca /ca.pem", authority);
    assert!(monitor.lines_of("SET").is_empty(), "{:?}", monitor.lines());
}

#[test]
fn a_key_that_is_no_lock_is_told() {
    let fleet = Fleet::start(1);
    fleet[0].command(&["LPUSH", "k", "x"]).unwrap();
    let said = output(on(&fleet), words("acquire k --ttl 9s --json"));
    assert_eq!(said.expect(1).json()["error"]["kind"], "not_a_lock");
    assert!(
        output(on(&fleet), words("status k"))
            .expect(0)
            .out
            .contains("not a lock")
    );
}

#[test]
fn masters_come_from_the_flag_the_variable_or_the_file() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("masters");
    std::fs::write(&file, format!("# ours\n\n{}\n", server.url())).unwrap();
    let file = file.to_str().unwrap();
    let said = output(bare(), words("status k"));
    for part in [
        "--masters",
        "QUORUMLOCK_MASTERS",
        "--masters-file",
        "masters start",
    ] {
        assert!(said.expect(2).err.contains(part), "{said:?}");
    }
    output(bare(), ["status", "k", "--masters", &server.url()]).expect(0);
    output(bare(), ["status", "k", "--masters-file", file]).expect(0);
    let mut command = bare();
    command.env("QUORUMLOCK_MASTERS_FILE", file);
    output(command, words("status k")).expect(0);
    // The flag beats the variable, also the other way of saying it.
    let mut command = on_urls(&["redis://127.0.0.1:1".to_owned()]);
    command.env("QUORUMLOCK_TIMEOUT", "");
    output(command, ["status", "k", "--masters-file", file]).expect(0);
    output(bare(), words("status k --masters-file /no/such/file")).expect(2);
}

#[test]
fn case_35_no_secret_is_printed() {
    let (server, folder) = (
        Server::builder().password("s3cret").start().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let port = server.port();
    let check = |said: &Said| {
        assert!(
            !said.out.contains("s3cret") && !said.err.contains("s3cret"),
            "{said:?}"
        );
    };
    let bad = [
        format!("redis://u:s3cret@127.0.0.1:{port}"),
        "redis://u:s3cret@127.0.0.1:1".to_owned(),
        "redis://u:s3cret@no.such.host.invalid:6379".to_owned(),
        "redis://u:s3cret@ho st".to_owned(),
        "redis://u:s3cret@host:999999".to_owned(),
        "http://u:s3cret@host".to_owned(),
        "u:s3cret@host".to_owned(),
        "redis://:s3cret@127.0.0.1:1,redis://:s3cret@127.0.0.1:1".to_owned(),
    ];
    for url in &bad {
        for options in [
            "status k",
            "status k --json",
            "acquire k --ttl 9s --no-wait --json",
        ] {
            let said = output(on_urls(std::slice::from_ref(url)), words(options));
            assert_ne!(said.code(), 0, "{url}");
            check(&said);
        }
        check(&output(bare(), ["status", "k", "--masters", url]));
        check(&output(bare(), ["status", "k", "--master", url]));
        check(&output(bare(), [url.as_str()]));
        let file = folder.path().join("masters");
        std::fs::write(&file, url).unwrap();
        check(&output(
            bare(),
            ["status", "k", "--masters-file", file.to_str().unwrap()],
        ));
    }
    let good = [format!("redis://:s3cret@127.0.0.1:{port}")];
    let said = output(on_urls(&good), run("k --report -", &["true"]));
    check(said.expect(0));
    let said = output(on_urls(&good), words("status k --json"));
    check(said.expect(0));
    check(output(on_urls(&good), words("--help")).expect(0));
}
