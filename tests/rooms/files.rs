//! Reading the repository's files: sources without their comments, manifests by section.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its input has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, and what is in it.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// The text without comments; a `//` behind a colon is an address.
    pub(crate) fn code(&self) -> String {
        let line_of_code = |line: &str| {
            let comment = line
                .match_indices("//")
                .map(|(at, _)| at)
                .find(|at| !line[..*at].ends_with(':'));
            line[..comment.unwrap_or(line.len())].to_owned()
        };
        self.text
            .lines()
            .map(line_of_code)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

pub(crate) fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Rust file and page under these folders, in a fixed order.
pub(crate) fn sources(folders: &[&str]) -> Vec<File> {
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut paths);
    }
    paths.sort();
    let relative = |path: &Path| {
        path.strip_prefix(root())
            .expect("inside the root")
            .display()
            .to_string()
    };
    paths
        .iter()
        .map(|path| relative(path))
        .map(|path| File {
            text: read(&path),
            path,
        })
        .collect()
}

pub(crate) fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("docs/book") {
            walk(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "md")
        {
            found.push(path);
        }
    }
}

pub(crate) fn is_dependencies(head: &str) -> bool {
    head.ends_with("dependencies")
        && !head.ends_with("dev-dependencies")
        && !head.starts_with("workspace")
}

/// The keys of those sections of a manifest whose head is wanted.
pub(crate) fn section_keys(manifest: &str, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut inside = false;
    let mut keys = BTreeSet::new();
    for line in manifest.lines() {
        if let Some(head) = line.strip_prefix('[') {
            inside = wanted(head.trim_end_matches(']'));
        } else if let (true, Some((key, _))) = (
            inside && !line.starts_with([' ', '#']),
            line.split_once(" = "),
        ) {
            keys.insert(key.trim_matches('"').to_owned());
        }
    }
    keys
}

/// The first value of this key in a manifest, without its quotes.
pub(crate) fn value_of(manifest: &str, key: &str) -> Option<String> {
    manifest.lines().find_map(|line| {
        Some(
            line.strip_prefix(key)?
                .strip_prefix(" = ")?
                .trim_matches('"')
                .to_owned(),
        )
    })
}
