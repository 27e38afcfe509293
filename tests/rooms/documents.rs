//! What the documents say, compared with what is there: README, changelog, guarantees, cases, map.

use crate::files::{is_dependencies, read, report, section_keys, sources, value_of};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn the_readme_tells_the_manifest() {
    let (readme, manifest) = (read("README.md"), read("Cargo.toml"));

    let msrv = value_of(&manifest, "rust-version").expect("a rust-version");
    assert!(
        readme.contains(&format!("Rust {msrv} or newer")),
        "README does not say `Rust {msrv} or newer`"
    );

    let default = value_of(&manifest, "default")
        .expect("a default feature")
        .replace('"', "");
    let on: BTreeSet<&str> = default
        .trim_matches(['[', ']'])
        .split(',')
        .map(str::trim)
        .collect();
    let features: BTreeMap<String, String> = section_keys(&manifest, |head| head == "features")
        .into_iter()
        .filter(|name| name != "default")
        .map(|name| {
            (
                name.clone(),
                if on.contains(name.as_str()) {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
            )
        })
        .collect();
    let told: BTreeMap<String, String> = rows_below(&readme, "## Features")
        .into_iter()
        .filter_map(|row| Some((backticked(&row[0]).first()?.clone(), row.get(1)?.clone())))
        .collect();
    assert_eq!(
        told, features,
        "README's feature table (left) is not Cargo.toml's (right)"
    );

    let dependencies = section_keys(&manifest, is_dependencies);
    let told: BTreeSet<String> = rows_below(&readme, "## What each dependency is for")
        .iter()
        .flat_map(|row| backticked(&row[0]))
        .collect();
    assert_eq!(
        told, dependencies,
        "README's dependencies (left) are not Cargo.toml's (right)"
    );
}

#[test]
fn the_readme_tells_the_exit_statuses() {
    let code = read("crates/cli/src/exit.rs");
    let numbers: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Exit::")?.split_once("=> "))
        .map(|(_, number)| number.trim_end_matches(',').to_owned())
        .filter(|number| number.chars().all(|digit| digit.is_ascii_digit()))
        .collect();
    assert!(
        !numbers.is_empty(),
        "no numbers found in crates/cli/src/exit.rs"
    );
    let mut told: BTreeSet<String> = rows_below(&read("README.md"), "| exit status |")
        .iter()
        .flat_map(|row| backticked(&row[0]))
        .collect();
    assert!(
        told.remove("128+n"),
        "README does not tell the status after a signal"
    );
    assert_eq!(
        told, numbers,
        "README's exit statuses (left) are not the command's (right)"
    );
}

#[test]
fn the_changelog_knows_the_version() {
    let version = value_of(&read("Cargo.toml"), "version").expect("a version");
    assert!(
        read("CHANGELOG.md").contains(&version),
        "CHANGELOG.md does not mention {version}"
    );
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let functions = functions();
    let page = read("docs/guarantees.md");
    let cited: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.trim_end_matches(['|', ' ']).rsplit_once(" | "))
        .flat_map(|(_, tests)| backticked(tests))
        .filter(|name| {
            name.contains('_')
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(
        cited.len() > 30,
        "only {} tests found on the page: was its form changed?",
        cited.len()
    );
    let exists = |name: &str| {
        functions
            .iter()
            .any(|function| function == name || is_test_of_case(function, name))
    };
    report(
        &cited
            .iter()
            .filter(|name| !exists(name))
            .map(|name| format!("docs/guarantees.md: no test `{name}`"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_tested_case_is_told() {
    let told: BTreeSet<u32> = rows_below(&read("docs/cases.md"), "| case |")
        .iter()
        .filter_map(|row| row[0].parse().ok())
        .collect();
    let tested: BTreeSet<u32> = functions()
        .iter()
        .filter_map(|name| name.strip_prefix("case_")?.split('_').next()?.parse().ok())
        .collect();
    report(
        &tested
            .difference(&told)
            .map(|case| format!("docs/cases.md: nothing about case {case}, which is tested"))
            .collect::<Vec<_>>(),
    );
    report(
        &told
            .difference(&tested)
            .map(|case| format!("docs/cases.md: case {case} has no test"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn the_map_shows_every_file() {
    let page = read("docs/architecture.md");
    let (_, map) = page.split_once("## Code map").expect("a code map");
    let map = map.split("\n## ").next().unwrap_or(map);
    let shown: BTreeSet<String> = backticked(map)
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .collect();
    let there: BTreeSet<String> = sources(&["src", "crates"])
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.starts_with("src/") || path.contains("/src/"))
        .collect();
    let missing = there
        .difference(&shown)
        .map(|path| format!("docs/architecture.md: the map lacks {path}"));
    let gone = shown
        .difference(&there)
        .map(|path| format!("docs/architecture.md: the map shows {path}, which is not there"));
    report(&missing.chain(gone).collect::<Vec<_>>());
}

/// Every function of every Rust file, by name.
fn functions() -> BTreeSet<String> {
    let files = sources(&["src", "crates", "tests"]);
    let name = |line: &str| {
        Some(
            line.split_once("fn ")?
                .1
                .split(['(', '<'])
                .next()?
                .trim()
                .to_owned(),
        )
    };
    files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .flat_map(|file| file.text.lines())
        .filter_map(name)
        .collect()
}

fn is_test_of_case(function: &str, case: &str) -> bool {
    case.starts_with("case_")
        && function
            .strip_prefix(case)
            .is_some_and(|rest| rest.starts_with('_'))
}

/// The rows of the first table at or below this line, without its head; none if there is no such line.
fn rows_below(page: &str, line: &str) -> Vec<Vec<String>> {
    let from = page.find(&format!("\n{line}")).unwrap_or(page.len());
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let table = page[from..]
        .lines()
        .skip_while(|line| !line.starts_with('|'));
    table
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect()
}

fn backticked(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
