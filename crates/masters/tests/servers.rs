//! Real servers: started, looked into, paused, killed and restarted.

use std::process::{Command, Stdio};
use std::time::Duration;

use quorumlock_masters::{
    CommandError, Flavour, Fleet, Reply, Server, StartError, Stopwatch, eventually,
};

const SOON: Duration = Duration::from_secs(10);

fn alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn a_server_answers_and_leaves_nothing() {
    let server = Server::start();
    let key: &[u8] = b"\x00\xff\r\n {tag}";
    assert!(server.url().starts_with("redis://127.0.0.1:"));
    assert_eq!(
        server
            .command(&[b"SET".as_slice(), key, b"v\x00", b"PX", b"60000"])
            .unwrap(),
        Reply::ok()
    );
    assert_eq!(server.get(key).unwrap(), b"v\x00");
    assert!(server.exists(key) && !server.exists("other"));
    assert!(server.pttl(key).unwrap() > Duration::from_secs(50));
    assert_eq!(server.pttl("other"), None);
    assert_eq!(server.keys(), [key]);
    assert!(server.log().contains("Ready to accept"));
    assert!(
        matches!(server.command(&["NOSUCH"]), Err(CommandError::Server(text)) if text.starts_with("ERR unknown"))
    );
    let (pid, folder) = (server.pid(), server.folder().to_owned());
    assert!(alive(pid) && folder.is_dir());
    drop(server);
    assert!(!alive(pid) && !folder.exists());
}

#[test]
fn a_paused_server_is_silent_and_comes_back() {
    let server = Server::start();
    server.pause();
    assert!(server.is_running());
    let mut wire =
        quorumlock_masters::Wire::connect(server.address(), Duration::from_millis(100)).unwrap();
    assert!(matches!(wire.call(&["PING"]), Err(CommandError::Io(_))));
    server.resume();
    assert_eq!(server.command(&["PING"]).unwrap().text(), "PONG");
    server.pause();
    server.kill();
    assert!(!server.is_running());
}

#[test]
fn a_restart_keeps_the_port_and_forgets_unless_persistent() {
    for (builder, kept) in [
        (Server::builder(), false),
        (
            Server::builder()
                .persistent()
                .args(["--appendfsync", "always"]),
            true,
        ),
    ] {
        let server = builder.start().unwrap();
        let (port, pid) = (server.port(), server.pid());
        server.command(&["SET", "k", "v"]).unwrap();
        server.kill();
        server.kill();
        assert!(server.command(&["PING"]).is_err());
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.exists("k"), kept);
        server.shutdown();
        assert!(!server.is_running());
    }
}

#[test]
fn settings_reach_the_server() {
    let server = Server::builder()
        .password("s3cret")
        .args(["--maxmemory", "1mb"])
        .unix_socket()
        .start()
        .unwrap();
    assert!(server.url().contains(":s3cret@"));
    assert!(
        server
            .command(&["CONFIG", "GET", "maxmemory"])
            .unwrap()
            .text()
            .contains("1048576")
    );
    assert!(server.socket().unwrap().exists());
    let mut wire = quorumlock_masters::Wire::connect(server.address(), SOON).unwrap();
    assert!(
        matches!(wire.call(&["GET", "k"]), Err(CommandError::Server(text)) if text.starts_with("NOAUTH"))
    );
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = Server::builder()
        .args(["--no-such-setting", "1"])
        .start()
        .unwrap_err();
    assert!(
        matches!(&error, StartError::NotReady(log) if log.contains("no-such-setting")),
        "{error}"
    );
    let taken = Server::start();
    let error = Server::builder().port(taken.port()).start().unwrap_err();
    assert!(
        matches!(error, StartError::PortTaken(port) if port == taken.port()),
        "{error}"
    );
    let error = Server::builder()
        .flavour(Flavour::Path("/no/such/server".into()))
        .start()
        .unwrap_err();
    assert!(matches!(error, StartError::NoProgram(_)), "{error}");
}

#[test]
#[expect(clippy::print_stderr, reason = "says which servers it could not have")]
fn every_flavour_starts() {
    for flavour in [Flavour::Redis, Flavour::Redis8, Flavour::Valkey9] {
        if flavour.available().is_none() {
            eprintln!("{flavour:?} cannot be had here");
            continue;
        }
        let server = Server::builder().flavour(flavour.clone()).start().unwrap();
        let info = server.command(&["INFO", "server"]).unwrap().text();
        match flavour {
            Flavour::Redis8 => assert!(info.contains("redis_version:8.")),
            Flavour::Valkey9 => assert!(info.contains("valkey_version:9.")),
            _ => assert!(info.contains("redis_version:")),
        }
        server.pause();
        server.kill();
        assert!(!server.is_running());
    }
}

#[test]
fn a_monitor_has_seen_all_that_ran_before() {
    let server = Server::start();
    let monitor = server.monitor().unwrap();
    for round in 0..100 {
        server.command(&["SET", "k", &round.to_string()]).unwrap();
    }
    assert_eq!(monitor.lines_of("set").len(), 100);
    monitor.clear();
    assert!(monitor.lines().is_empty());
    server.command(&["GET", "k"]).unwrap();
    assert_eq!(monitor.stop().len(), 1);
}

#[test]
fn a_fleet_knows_who_has_a_key() {
    let fleet = Fleet::start(5);
    let mut urls = fleet.urls();
    urls.dedup();
    assert_eq!(urls.len(), 5);
    fleet.assert_no_key("k", Duration::ZERO);
    fleet[1].command(&["SET", "k", "v", "PX", "100"]).unwrap();
    fleet[3].command(&["SET", "k", "v"]).unwrap();
    fleet[4].kill();
    assert_eq!(fleet.holders("k"), [1, 3]);
    assert_eq!(fleet.total_keys(), 2);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fleet.assert_no_key("k", Duration::from_millis(200))
    }));
    let said = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(
        said.contains("server 3") && !said.contains("server 1"),
        "{said}"
    );
    fleet[3].kill();
    fleet.assert_no_key("k", Duration::from_secs(1));
}

/// Plays the test process that is killed: starts a server, says its number, and waits.
#[test]
fn child_of_the_test_below() {
    if std::env::var_os("QUORUMLOCK_TEST_CHILD").is_some() {
        let server = Server::start();
        std::fs::write(
            std::env::var_os("QUORUMLOCK_TEST_CHILD").unwrap(),
            server.pid().to_string(),
        )
        .unwrap();
        server.pause();
        assert!(!eventually(Duration::from_secs(60), || false));
    }
}

#[test]
fn a_killed_test_process_leaves_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_of_the_test_below"])
        .env("QUORUMLOCK_TEST_CHILD", &file)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = None;
    assert!(eventually(SOON, || {
        pid = std::fs::read_to_string(&file)
            .ok()
            .and_then(|text| text.parse().ok());
        pid.is_some()
    }));
    assert!(alive(pid.unwrap()));
    let watch = Stopwatch::start();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        eventually(SOON, || !alive(pid.unwrap())),
        "alive after {:?}",
        watch.elapsed()
    );
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    assert!(eventually(SOON, || left() == 1), "only the file is left");
}
