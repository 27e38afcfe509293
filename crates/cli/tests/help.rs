//! What needs no master: help, version, completions, an output that is closed.

mod support;

use std::process::Stdio;

use support::{bare, output, words};

const VERBS: [&str; 7] = [
    "run",
    "acquire",
    "extend",
    "release",
    "status",
    "masters",
    "completions",
];

#[test]
fn help_has_an_example_for_every_verb() {
    let top = output(bare(), words("--help"));
    assert!(top.expect(0).out.contains("Exit status:"), "{top:?}");
    for verb in VERBS {
        assert!(
            top.out.contains(&format!("\n  {verb} ")),
            "{verb} is not in the list"
        );
        for flag in ["-h", "--help"] {
            let help = output(bare(), [verb, flag]);
            let example = format!("\n  quorumlock {verb} ");
            let evaluated = format!("$(quorumlock {verb} ");
            assert!(
                help.expect(0).out.contains(&example) || help.out.contains(&evaluated),
                "{verb} {flag}: {help:?}"
            );
            assert_eq!(help.err, "");
        }
    }
}

#[test]
fn help_says_what_is_out_of_reach() {
    let help = output(bare(), words("run --help"));
    for part in [
        "What is out of reach",
        "sudo",
        "QUORUMLOCK_TOKEN",
        "Ctrl-Z",
        "What it left running",
    ] {
        assert!(help.expect(0).out.contains(part), "{part}");
    }
    assert!(!help.out.contains("--fenced"), "not yet");
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(
        output(bare(), words("--version")).expect(0).out,
        format!("quorumlock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = output(bare(), ["completions", shell]);
        for verb in VERBS {
            assert!(said.expect(0).out.contains(verb), "{shell}: {verb}");
        }
        assert!(
            !said.out.contains("@warden"),
            "the hidden modes stay hidden"
        );
    }
    output(bare(), words("completions tcsh")).expect(2);
    // The script for bash is one that bash reads.
    let script = output(bare(), words("completions bash")).out;
    let check = std::process::Command::new("bash")
        .args(["-n", "-c", &script])
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_reader_that_went_away_is_no_panic() {
    let mut child = bare()
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert_eq!(ended.status.code(), Some(0));
}

#[test]
fn the_hidden_modes_do_nothing_by_hand() {
    for mode in ["@warden", "@stage"] {
        output(bare(), [mode]).expect(1);
        output(bare(), [mode, "1", "2", "/bin/echo", "echo", "no"]).expect(if mode == "@warden" {
            1
        } else {
            76
        });
    }
}
