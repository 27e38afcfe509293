//! `quorumlock masters`: what it prints for `eval`, and that nothing is left.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::TcpStream;

use support::{Said, bare, on_urls, output, run};

/// A folder of masters; stopped when the test ends, also when it fails.
struct Local(tempfile::TempDir);

impl Local {
    fn dir(&self) -> String {
        self.0.path().join("masters").to_str().unwrap().to_owned()
    }

    fn ask(&self, line: &str) -> Said {
        output(
            bare(),
            ["masters"]
                .into_iter()
                .chain(line.split(' '))
                .chain(["--dir", &self.dir()]),
        )
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        drop(
            bare()
                .args(["masters", "stop", "--dir", &self.dir()])
                .output(),
        );
    }
}

#[test]
fn masters_are_started_once_used_and_stopped() {
    let local = Local(tempfile::tempdir().unwrap());
    let said = local.ask("start --count 3");
    let urls = said
        .expect(0)
        .out
        .strip_prefix("export QUORUMLOCK_MASTERS=")
        .unwrap()
        .trim_end()
        .to_owned();
    assert_eq!(
        (said.out.lines().count(), urls.split(',').count()),
        (1, 3),
        "for eval, alone: {said:?}"
    );
    assert!(said.err.contains("running"), "a table for people: {said:?}");

    let again = local.ask("start --count 5");
    assert_eq!(
        again.expect(0).out,
        said.out,
        "a second start says what runs"
    );

    output(on_urls(&[urls]), run("k", &["true"])).expect(0);
    let status = local.ask("status --json").expect(0).json();
    let masters = status["masters"].as_array().unwrap();
    assert!(
        masters.iter().all(|master| master["state"] == "running"),
        "{status}"
    );
    let addresses: Vec<&str> = masters
        .iter()
        .map(|master| master["url"].as_str().unwrap())
        .map(|url| url.strip_prefix("redis://").unwrap())
        .collect();
    assert_eq!(addresses.len(), 3);
    assert!(
        addresses
            .iter()
            .all(|address| TcpStream::connect(address).is_ok())
    );

    assert_eq!(local.ask("stop").expect(0).out, "", "nothing to evaluate");
    assert!(
        addresses
            .iter()
            .all(|address| TcpStream::connect(address).is_err()),
        "still there"
    );
    let status = local.ask("status --json").expect(0).json();
    assert_eq!(status["masters"].as_array().unwrap().len(), 0);
    local.ask("stop").expect(0);
}
