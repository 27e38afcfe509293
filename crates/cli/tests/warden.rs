//! The warden: COMMAND ends in time also when `quorumlock`, or the warden itself, is killed or stopped.
//!
//! COMMAND ignores TERM where that makes it harder, and leaves its process group and session.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use quorumlock_masters::{Fleet, Stopwatch, eventually};
use rustix::process::{Pid, Signal, kill_process};
use support::{PATIENCE, Running, SEEN_LATE, SOON, Witness, on, output, run, steal};

/// Three processes that ignore TERM, one of them in a session of its own.
const STUBBORN: &str = r#"trap "" TERM; sleep 100 & setsid sleep 100 & echo ready; sleep 100"#;
/// The same, but TERM ends them.
const MEEK: &str = "sleep 100 & setsid sleep 100 & echo ready; sleep 100";

/// A run of a script under a lock of its own, started.
struct Case {
    fleet: Fleet,
    witness: Witness,
    running: Running,
    _folder: tempfile::TempDir,
}

fn start(options: &str, script: &str) -> Case {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let running = Running::start(
        on(&fleet),
        run(&format!("k {options}"), &witness.script(script)),
    );
    witness.expect("ready");
    Case {
        fleet,
        witness,
        running,
        _folder: folder,
    }
}

impl Case {
    /// The process between `quorumlock` and COMMAND.
    fn warden(&self) -> Pid {
        let raw = self.running.pid().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{raw}/task/{raw}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }
}

/// Everything must be gone before the validity ends: less than a TTL after the last extension.
fn check_gone_in_time(ttl: Duration, script: &str, harm: impl Fn(&Case)) {
    let case = start(&format!("--ttl {}ms", ttl.as_millis()), script);
    harm(&case);
    let since = Stopwatch::start();
    case.witness.ended(PATIENCE);
    assert!(
        since.elapsed() < ttl + SEEN_LATE,
        "gone only after {:?}",
        since.elapsed()
    );
}

#[test]
fn case_39_quorumlock_is_killed_and_command_with_it() {
    let ttl = Duration::from_secs(20);
    let case = start("--ttl 20s", MEEK);
    case.running.signal(Signal::KILL);
    let since = Stopwatch::start();
    case.witness.ended(PATIENCE);
    // At once by TERM, long before the deadline or the grace of 5 s.
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "gone only after {:?}",
        since.elapsed()
    );
    assert!(
        case.fleet.total_keys() > 0,
        "nobody was there to release; the TTL of {ttl:?} does"
    );
}

#[test]
fn quorumlock_is_killed_and_command_ignores_term() {
    check_gone_in_time(Duration::from_secs(4), STUBBORN, |case| {
        case.running.signal(Signal::KILL)
    });
}

#[test]
fn quorumlock_is_stopped_and_the_warden_acts_alone() {
    check_gone_in_time(Duration::from_secs(4), STUBBORN, |case| {
        case.running.signal(Signal::STOP)
    });
}

#[test]
fn quorumlock_that_was_stopped_too_long_says_so_when_it_goes_on() {
    let case = start("--ttl 2s --report -", MEEK);
    case.running.signal(Signal::STOP);
    case.witness.ended(PATIENCE);
    case.running.signal(Signal::CONT);
    let said = case.running.end();
    assert_eq!(said.expect(76).report()["outcome"], "lost");
}

#[test]
fn the_warden_is_killed_and_command_with_it() {
    let case = start("--ttl 20s", STUBBORN);
    kill_process(case.warden(), Signal::KILL).unwrap();
    let since = Stopwatch::start();
    case.witness.ended(PATIENCE);
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "gone only after {:?}",
        since.elapsed()
    );
    let said = case.running.end();
    assert!(
        said.expect(137).err.contains("warden was killed"),
        "{said:?}"
    );
    case.fleet.assert_no_key("k", SOON);
}

#[test]
fn the_warden_is_stopped_and_quorumlock_does_its_work() {
    let ttl = Duration::from_secs(4);
    let case = start("--ttl 4s", STUBBORN);
    kill_process(case.warden(), Signal::STOP).unwrap();
    steal(&case.fleet, "k", ttl);
    let since = Stopwatch::start();
    case.witness.ended(PATIENCE);
    assert!(
        since.elapsed() < ttl + SEEN_LATE,
        "gone only after {:?}",
        since.elapsed()
    );
    case.running.end().expect(76);
}

#[test]
fn term_sent_to_all_at_once_lets_command_end_in_its_own_time() {
    // As a service manager does: every process of the service gets TERM.
    let script = "trap 'echo asked; sleep 2; echo done; exit 5' TERM; echo ready; while :; do sleep 0.1; done";
    let case = start("--ttl 20s --grace 100ms", script);
    kill_process(case.warden(), Signal::TERM).unwrap();
    case.running.signal(Signal::TERM);
    let lines = case.witness.ended(PATIENCE);
    assert_eq!(lines.last().map(String::as_str), Some("done"), "{lines:?}");
    case.running.end().expect(5);
    case.fleet.assert_no_key("k", SOON);
}

#[test]
fn the_masters_are_gone_and_command_is_ended_in_time() {
    let ttl = Duration::from_secs(4);
    let case = start("--ttl 4s", STUBBORN);
    case.fleet[0].pause();
    case.fleet[1].pause();
    let since = Stopwatch::start();
    case.witness.ended(PATIENCE);
    assert!(
        since.elapsed() < ttl + SEEN_LATE,
        "gone only after {:?}",
        since.elapsed()
    );
    case.running.end().expect(76);
}

#[test]
fn a_deleted_binary_still_finds_its_warden() {
    let (fleet, folder) = (Fleet::start(1), tempfile::tempdir().unwrap());
    let copy = folder.path().join("quorumlock");
    std::fs::copy(env!("CARGO_BIN_EXE_quorumlock"), &copy).unwrap();
    let held = output(on(&fleet), ["acquire", "k", "--ttl", "30s", "--json"])
        .expect(0)
        .json();
    let mut command = std::process::Command::new(&copy);
    command.env("QUORUMLOCK_MASTERS", fleet.urls().join(","));
    let monitor = fleet[0].monitor().unwrap();
    let running = Running::start(command, run("k", &["sh", "-c", "exit 6"]));
    assert!(
        eventually(PATIENCE, || !monitor.lines_of("SET").is_empty()),
        "no attempt was seen"
    );
    // An upgrade while we wait for the lock.
    std::fs::remove_file(&copy).unwrap();
    output(
        on(&fleet),
        ["release", "k", "--token", held["token"].as_str().unwrap()],
    )
    .expect(0);
    running.end().expect(6);
}

#[test]
fn ignored_ends_of_children_do_not_hide_the_status() {
    let fleet = Fleet::start(1);
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_quorumlock")]);
    command.env("QUORUMLOCK_MASTERS", fleet.urls().join(","));
    output(command, run("k", &["sh", "-c", "exit 8"])).expect(8);
}

#[test]
fn what_was_ignored_stays_ignored_as_nohup_wants() {
    let (fleet, folder) = (Fleet::start(1), tempfile::tempdir().unwrap());
    let witness = Witness::new(folder.path(), "w");
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_quorumlock")]);
    command.env("QUORUMLOCK_MASTERS", fleet.urls().join(","));
    // A shell that gets HUP although it was not to be told would say so by its status.
    let script = witness.script("kill -HUP $$; echo ready; read line; echo $line; exit 3");
    command
        .args(run("k", &script))
        .stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    witness.expect("ready");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"on\n").unwrap();
    assert_eq!(witness.ended(PATIENCE), ["on"]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_run_inside_a_run_has_a_warden_of_its_own() {
    let fleet = Fleet::start(3);
    let inner = "\"$0\" run inner -- sh -c 'echo $QUORUMLOCK_RESOURCE; exit 4'; echo $QUORUMLOCK_RESOURCE $?";
    let said = output(
        on(&fleet),
        run(
            "outer",
            &["sh", "-c", inner, env!("CARGO_BIN_EXE_quorumlock")],
        ),
    );
    assert_eq!(said.expect(0).out, "inner\nouter 4\n");
    fleet.assert_no_key("inner", SOON);
    fleet.assert_no_key("outer", SOON);
}
