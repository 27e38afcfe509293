//! `quorumlock run`: what COMMAND gets, what is reported, cases 39, 41 and 42.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use quorumlock_masters::{Fleet, Relay, Rule, Stopwatch, eventually};
use rustix::process::Signal;
use support::{PATIENCE, Running, SEEN_LATE, SOON, Said, Witness, on, on_urls, output, run, steal};

#[test]
fn command_gets_the_streams_and_the_environment_as_they_are() {
    let fleet = Fleet::start(3);
    let script =
        r#"cat; echo "$QUORUMLOCK_RESOURCE $MINE $1"; echo to-err >&2; echo "$QUORUMLOCK_TOKEN""#;
    let mut command = on(&fleet);
    command
        .args(run("the-name", &["sh", "-c", script, "sh", "an argument"]))
        .env("MINE", "mine");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    said.expect(0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[..2], ["through", "the-name mine an argument"]);
    assert_eq!(lines[2].len(), 32, "a token: {said:?}");
    assert_eq!(said.err, "to-err\n");
    fleet.assert_no_key("the-name", SOON);
}

#[test]
fn command_inherits_nothing_of_ours() {
    let fleet = Fleet::start(3);
    // What the test itself passes on is there with and without us.
    let list = "ls /proc/self/fd | wc -l";
    let without = std::process::Command::new("sh")
        .args(["-c", list])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = output(on(&fleet), run("k", &["sh", "-c", list]));
    assert_eq!(
        said.expect(0).out,
        String::from_utf8(without.stdout).unwrap()
    );
}

#[test]
fn the_lock_is_held_while_command_runs_and_free_afterwards() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let running = Running::start(
        on(&fleet),
        run("k --ttl 1s", &witness.script("echo ready; sleep 3")),
    );
    witness.expect("ready");
    output(on(&fleet), run("k --no-wait", &["true"])).expect(75);
    // Three times the TTL later it is still ours: extended.
    assert!(witness.ended(PATIENCE).is_empty());
    running.end().expect(0);
    fleet.assert_no_key("k", SOON);
    output(on(&fleet), run("k --no-wait", &["true"])).expect(0);
}

#[test]
fn case_39_the_shell_dies_and_its_children_do_not_run_on() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let ttl = Duration::from_secs(6);
    let witness = Witness::new(folder.path(), "w");
    let script = witness.script("echo ready; sleep 100 & setsid sleep 100 & sleep 100");
    let running = Running::start(on(&fleet), run("k --ttl 6s --report -", &script));
    witness.expect("ready");
    steal(&fleet, "k", ttl);
    let stolen = Stopwatch::start();
    witness.ended(PATIENCE);
    // The last extension was sent before the theft, so the deadline is less than a TTL after it.
    assert!(
        stolen.elapsed() < ttl + SEEN_LATE,
        "the deadline had passed: {:?}",
        stolen.elapsed()
    );
    let said = running.end();
    let report = said.expect(76).report();
    assert_eq!(
        (report["outcome"].as_str(), report["exit"].as_u64()),
        (Some("lost"), Some(76)),
        "{report}"
    );
    assert!(said.err.contains("lost"), "{said:?}");
    assert_eq!(
        fleet[0].get("k"),
        Some(b"a-thief".to_vec()),
        "the thief's key is not ours to delete"
    );
}

#[test]
fn case_39_term_ends_the_command_and_frees_the_lock() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let running = Running::start(
        on(&fleet),
        run("k", &witness.script("echo ready; sleep 100 & sleep 100")),
    );
    witness.expect("ready");
    running.signal(Signal::TERM);
    witness.ended(PATIENCE);
    running.end().expect(143);
    fleet.assert_no_key("k", SOON);
}

#[test]
fn what_command_leaves_running_is_ended_before_the_lock() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let script = witness.script(r#"(trap "" TERM; sleep 100) & setsid sleep 100 & exit 3"#);
    let said = output(on(&fleet), run("k --ttl 8s --grace 200ms", &script));
    witness.ended(Duration::ZERO);
    said.expect(3);
    fleet.assert_no_key("k", SOON);
}

/// A script that says that it got a signal, in the command and in a child of its process group.
const TRAPS: &str = r#"
    trap 'echo command got it; exit 9' HUP INT QUIT USR1 USR2 ALRM TERM
    sh -c 'trap "echo child got it; exit" HUP INT QUIT USR1 USR2 ALRM TERM; echo ready; sleep 100 & wait'; :"#;

#[test]
fn case_42_signals_reach_the_whole_group() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let signals = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TERM,
    ];
    std::thread::scope(|scope| {
        for signal in signals {
            let (fleet, folder) = (&fleet, &folder);
            scope.spawn(move || {
                let name = format!("k{}", signal.as_raw());
                let witness = Witness::new(folder.path(), &name);
                let running = Running::start(on(fleet), run(&name, &witness.script(TRAPS)));
                witness.expect("ready");
                running.signal(signal);
                assert_eq!(
                    witness.ended(PATIENCE),
                    ["child got it", "command got it"],
                    "{signal:?}"
                );
                running.end().expect(9);
                fleet.assert_no_key(&name, SOON);
            });
        }
    });
}

#[test]
fn case_42_during_the_wait_signals_end_the_wait() {
    let fleet = Fleet::start(3);
    let token = acquire(&fleet, "k", "30s");
    for signal in [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::TERM,
    ] {
        let monitor = fleet[0].monitor().unwrap();
        let running = Running::start(on(&fleet), run("k --report -", &["true"]));
        assert!(
            eventually(PATIENCE, || !monitor.lines_of("SET").is_empty()),
            "no attempt was seen"
        );
        running.signal(signal);
        let said = running.end();
        let report = said.expect(128 + signal.as_raw()).report();
        assert_eq!(report["error"]["kind"], "signal");
        drop(monitor);
    }
    output(on(&fleet), ["release", "k", "--token", &token]).expect(0);
    fleet.assert_no_key("k", SOON);
}

#[test]
fn case_41_statuses_of_command_are_its_own() {
    let fleet = Fleet::start(3);
    let check = |script: &str, code: i32| {
        let said = output(on(&fleet), run("k", &["sh", "-c", script]));
        assert_eq!(said.code(), code, "{script}: {said:?}");
        assert_eq!(said.err, "", "{script}");
    };
    check("exit 0", 0);
    check("exit 1", 1);
    check("exit 75", 75);
    check("exit 255", 255);
    check("kill -KILL $$", 137);
    check("kill -TERM $$", 143);
    fleet.assert_no_key("k", SOON);
}

#[test]
fn case_41_a_command_that_cannot_run_locks_nothing() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let file = folder.path().join("no-program");
    std::fs::write(&file, "\0\0\0\0").unwrap();
    let monitor = fleet[0].monitor().unwrap();
    output(on(&fleet), run("k", &["no-such-program-anywhere"])).expect(127);
    output(on(&fleet), run("k", &["/no/such/program"])).expect(127);
    output(on(&fleet), run("k", &[file.to_str().unwrap()])).expect(126);
    output(on(&fleet), run("k", &["/"])).expect(126);
    assert!(monitor.lines_of("SET").is_empty(), "{:?}", monitor.lines());
    // Found and executable, but the system refuses to execute it: known only once the lock is held.
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = output(on(&fleet), run("k", &[file.to_str().unwrap()]));
    assert!(
        said.expect(127).err.contains("could not be executed"),
        "{said:?}"
    );
    fleet.assert_no_key("k", SOON);
}

#[test]
fn case_41_not_acquired_is_told_apart() {
    let fleet = Fleet::start(3);
    let token = acquire(&fleet, "k", "30s");
    output(on(&fleet), run("k --no-wait", &["true"])).expect(75);
    output(on(&fleet), run("k --wait 200ms", &["true"])).expect(75);
    output(on(&fleet), run("k --wait 0s --conflict-exit 0", &["true"])).expect(0);
    let said = output(
        on(&fleet),
        run("k --no-wait --conflict-exit 42 --report -", &["true"]),
    );
    let error = &said.expect(42).report()["error"];
    assert_eq!(
        (error["kind"].as_str(), error["exit"].as_u64()),
        (Some("held"), Some(42))
    );
    assert_eq!(error["masters"].as_array().unwrap().len(), 3, "{error}");
    // Two that are gone, and nobody who denies: not contended, but unreachable.
    fleet[1].kill();
    fleet[2].kill();
    output(
        on(&fleet),
        run("other --no-wait --conflict-exit 42", &["true"]),
    )
    .expect(69);
    let said = output(on(&fleet), run("other --wait 200ms", &["true"]));
    assert!(
        said.expect(69)
            .err
            .contains(&fleet[2].address().to_string()),
        "each master's answer: {said:?}"
    );
    drop(token);
}

#[test]
fn the_report_goes_where_it_is_asked_for() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let file = folder.path().join("report.json");
    let said = output(
        on(&fleet),
        run(
            &format!("k --report {}", file.display()),
            &["sh", "-c", "exit 4"],
        ),
    );
    assert_eq!(said.expect(4).err, "");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let fields: Vec<&str> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "exit",
        "grants",
        "held_ms",
        "lost",
        "outcome",
        "released",
        "resource",
        "signal",
        "status",
        "token",
        "waited_ms",
    ];
    assert_eq!(fields, expected);
    assert_eq!(
        (report["status"].as_u64(), report["outcome"].as_str()),
        (Some(4), Some("exited"))
    );
    assert_eq!(
        (report["resource"].as_str(), report["released"].as_bool()),
        (Some("k"), Some(true))
    );
    let said = output(on(&fleet), run("k --json", &["echo", "child"]));
    assert_eq!(
        (said.out.as_str(), said.report()["exit"].as_u64()),
        ("child\n", Some(0))
    );
}

#[test]
fn the_longest_hold_ends_command_in_time() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let running = Running::start(
        on(&fleet),
        run(
            "k --ttl 1s --max-hold 1500ms",
            &witness.script("echo ready; sleep 100"),
        ),
    );
    witness.expect("ready");
    witness.ended(PATIENCE);
    running.end().expect(76);
    fleet.assert_no_key("k", SOON);
}

/// Acquires by the command; gives the token.
fn acquire(fleet: &Fleet, key: &str, ttl: &str) -> String {
    let said = output(on(fleet), ["acquire", key, "--ttl", ttl, "--json"]);
    said.expect(0).json()["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_hundred_refused_runs_leave_nothing_on_the_minority_that_granted() {
    let fleet = Fleet::start(3);
    steal(&fleet, "k", Duration::from_secs(600));
    for _ in 0..100 {
        output(on(&fleet), run("k --no-wait", &["true"])).expect(75);
    }
    assert!(
        eventually(SOON, || !fleet[2].exists("k")),
        "a refused attempt left its key"
    );
}

#[test]
fn masters_that_are_too_slow_for_the_ttl_are_told() {
    let fleet = Fleet::start(3);
    let relays: Vec<Relay> = fleet
        .iter()
        .map(|server| Relay::to(server.address()))
        .collect();
    let urls: Vec<String> = relays.iter().map(Relay::url).collect();
    relays
        .iter()
        .for_each(|relay| relay.answers(Rule::Delay(Duration::from_millis(120))));
    let line = "run k --ttl 200ms --no-wait --timeout 5s --report - -- true";
    // A quorum grants, but less than the grace and 50 ms is then left.
    let said = output(on_urls(&urls), line.split(' '));
    assert_eq!(said.expect(69).report()["error"]["kind"], "too_slow");
    fleet.assert_no_key("k", SOON);
}

#[test]
fn a_stopped_minority_does_not_hold_up_the_command() {
    let fleet = Fleet::start(3);
    fleet[2].pause();
    let watch = Stopwatch::start();
    output(on(&fleet), run("k", &["true"])).expect(0);
    // Connecting, acquiring and releasing wait for nobody; closing waits 100 ms at most.
    assert!(
        watch.elapsed() < Duration::from_secs(2),
        "{:?}",
        watch.elapsed()
    );
    fleet[2].resume();
    fleet.assert_no_key("k", SOON);
}
