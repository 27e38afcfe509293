//! The examples run, and say what they are there to show.

#![cfg(feature = "client")]
#![expect(
    clippy::expect_used,
    reason = "a test fails by panicking, and says what it expected"
)]

use quorumlock_masters::Fleet;
use std::path::PathBuf;
use std::process::Command;

/// The example beside the tests, where `cargo test` without `--test` has built it; else builds it.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows where it is");
    let profile = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("tests lie in deps/");
    let beside = profile.join("examples").join(name);
    if beside.exists() {
        return beside;
    }
    let target = profile
        .parent()
        .expect("a profile lies in the target folder");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", name, "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the example {name} does not build");
    target.join("debug/examples").join(name)
}

fn check(name: &str, expected: &str) {
    let fleet = Fleet::start(3);
    let output = Command::new(example(name))
        .env("QUORUMLOCK_MASTERS", fleet.urls().join(","))
        .output()
        .expect("the example is built by `cargo test`");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(said, expected);
    assert_eq!(fleet.total_keys(), 0, "an example leaves no key");
}

#[test]
fn run() {
    check("run", "charged once: receipt 4821\n0 deletes left\n");
}

#[test]
fn by_hand() {
    check(
        "by_hand",
        "somebody else would wait\nthe work is done\nreleased\n",
    );
}
