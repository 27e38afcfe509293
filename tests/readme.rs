//! The README's shell blocks, word for word: run on real masters where that is possible, else read
//! by the command's own parser, else known to be checked elsewhere. A new block has to be one of these.
//!
//! Its Rust blocks are compiled as doctests; what its tables say is compared in `tests/rooms`.
#![cfg(unix)]
#![expect(
    clippy::expect_used,
    reason = "a test that cannot prepare its input has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What becomes of a shell block.
enum Check {
    /// It is run as it stands, in a folder of its own, and says all of this.
    Runs(&'static [&'static str]),
    /// Its `quorumlock` lines are parsed: they name servers or scripts that only readers have.
    Parses,
    /// Something else runs it; this is the file that has to be there.
    Elsewhere(&'static str),
}

/// Each block by how it begins.
const BLOCKS: [(&str, Check); 5] = [
    ("./quickstart", Check::Elsewhere("quickstart")),
    ("./check", Check::Elsewhere("check")),
    (
        "cargo install --path crates/cli",
        Check::Elsewhere("crates/cli/Cargo.toml"),
    ),
    ("export QUORUMLOCK_MASTERS=", Check::Parses),
    (
        "eval \"$(quorumlock masters start)\"",
        Check::Runs(&["working under token ", "demo: held by ", "demo: free"]),
    ),
];

#[test]
fn every_shell_block_does_what_the_readme_says() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let blocks = shell_blocks(&readme);
    assert_eq!(
        blocks.len(),
        BLOCKS.len(),
        "README gained or lost a shell block: {blocks:#?}"
    );
    for block in blocks {
        let check = BLOCKS.iter().find(|(begin, _)| block.starts_with(begin));
        match check.map(|(_, check)| check) {
            Some(Check::Runs(said)) => runs(&block, said),
            Some(Check::Parses) => parses(&block),
            Some(Check::Elsewhere(file)) => assert!(root().join(file).exists(), "no {file}"),
            None => panic!("no test knows this block of the README:\n{block}"),
        }
    }
}

/// Runs a block in a shell that stops at the first error, on masters that only it can see.
fn runs(block: &str, said: &[&str]) {
    let place = Place::new();
    let output = place.shell(&format!("set -e\n{block}"));
    let all = text(&output);
    assert!(output.status.success(), "the block failed:\n{block}\n{all}");
    for words in said {
        assert!(all.contains(words), "it never said `{words}`:\n{all}");
    }
}

/// Lets the command's parser read each line, without acting: `--help` stands before the child's words.
fn parses(block: &str) {
    let place = Place::new();
    let lines: Vec<&str> = block
        .lines()
        .filter(|line| line.starts_with("quorumlock "))
        .collect();
    assert!(!lines.is_empty(), "no line of the command in:\n{block}");
    for line in lines {
        let (own, child) = line.split_once(" -- ").unwrap_or((line, ""));
        let output = place.shell(&format!("{own} --help -- {child}"));
        assert!(
            output.status.success(),
            "`{line}` is not understood:\n{}",
            text(&output)
        );
    }
}

/// A folder for one block, with the command in its path; its masters are stopped with it.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("quorumlock-readme-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder to work in");
        Self { folder }
    }

    fn shell(&self, script: &str) -> Output {
        let programs = command()
            .parent()
            .expect("a folder of programs")
            .display()
            .to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("bash")
            .args(["-c", script])
            .current_dir(&self.folder)
            .env_remove("QUORUMLOCK_MASTERS")
            .env("PATH", format!("{programs}:{path}"))
            .env("XDG_RUNTIME_DIR", &self.folder)
            .env("TMPDIR", &self.folder)
            .output()
            .expect("bash runs")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shell("quorumlock masters stop");
        // The folder is in the temporary directory: what cannot be removed is no loss.
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            assert!(
                std::thread::panicking(),
                "{}: {error}",
                self.folder.display()
            );
        }
    }
}

/// The command, built by the tests of the workspace; built here if the library is tested alone.
fn command() -> PathBuf {
    let tests = std::env::current_exe().expect("this test is a file");
    let profile = tests.ancestors().nth(2).expect("target/debug/deps/readme");
    let command = profile.join("quorumlock");
    let sources = [
        root().join("src"),
        root().join("crates/cli/src"),
        root().join("crates/masters/src"),
    ];
    let built = fs::metadata(&command).and_then(|file| file.modified()).ok();
    if built.is_none_or(|built| sources.iter().any(|folder| changed_since(folder, built))) {
        let target = profile.parent().expect("the target folder");
        let release = profile.ends_with("release").then_some("--release");
        let done = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "quorumlock-cli"])
            .args(release)
            .arg("--target-dir")
            .arg(target)
            .current_dir(root())
            .status();
        assert!(
            done.is_ok_and(|status| status.success()),
            "the command cannot be built"
        );
    }
    command
}

fn changed_since(folder: &Path, moment: std::time::SystemTime) -> bool {
    let newer = |path: &Path| {
        fs::metadata(path)
            .and_then(|file| file.modified())
            .is_ok_and(|at| at > moment)
    };
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .any(|path| {
            if path.is_dir() {
                changed_since(&path, moment)
            } else {
                newer(&path)
            }
        })
}

fn shell_blocks(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap_or(rest).trim().to_owned())
        .collect()
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .join("")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
