//! What holds for every Rust file: imports point down, floor 0 is pure, files are short and say why
//! they exist.

use crate::files::{is_dependencies, read, report, section_keys, sources};
use std::collections::BTreeMap;

/// The rooms of `src/` with their floors; a file may name its own room and those below it.
const ROOMS: [(&str, u8); 6] = [
    ("quorum", 0),
    ("master", 1),
    ("driver", 2),
    ("lock", 3),
    ("blocking", 4),
    ("postgres", 4),
];

/// What has no place on floor 0: runtimes, clients, clocks, randomness, the network.
const IMPURE: [&str; 12] = [
    "tokio",
    "redis",
    "rand",
    "uuid",
    "rustix",
    "Instant",
    "SystemTime",
    "std::net",
    "std::thread",
    "std::env",
    "async",
    ".await",
];

/// Words that mean the same as one of ours, which is used instead.
const OTHER_WORDS: [(&str, &str); 6] = [
    ("node", "master"),
    ("nodes", "masters"),
    ("renew", "extend"),
    ("renewal", "extension"),
    ("heartbeat", "extension"),
    ("unlock", "release"),
];

#[test]
fn imports_point_down() {
    let exports = exports(&read("src/lib.rs"));
    let mut faults = Vec::new();
    for file in sources(&["src"]) {
        let Some((room, floor)) = room_of(&file.path) else {
            continue;
        };
        for name in names_from_the_root(&file.code()) {
            let target = exports.get(&name).cloned().unwrap_or(name);
            let upward = match floor_of(&target) {
                Some(above) => above > floor || (above == floor && target != room),
                None => floor == 0,
            };
            if upward {
                faults.push(format!(
                    "{}: names crate::{target}, which is not below {room}",
                    file.path
                ));
            }
        }
    }
    report(&faults);
}

#[test]
fn the_protocol_is_pure() {
    let mut faults = Vec::new();
    for file in sources(&["src/quorum"]) {
        for (number, line) in file.code().lines().enumerate() {
            for word in IMPURE {
                if has_word(line, word) {
                    faults.push(format!("{}:{}: names `{word}`", file.path, number + 1));
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn one_file_reads_the_clock() {
    let readers: Vec<String> = sources(&["src"])
        .into_iter()
        .filter(|file| {
            ["clock_gettime", "Instant::now", "SystemTime::now"]
                .iter()
                .any(|call| file.code().contains(call))
        })
        .map(|file| file.path)
        .collect();
    assert_eq!(readers, ["src/driver/clock.rs"]);
}

#[test]
fn members_know_only_what_is_below_them() {
    let own = ["quorumlock", "quorumlock-cli", "quorumlock-lab"];
    let masters = read("crates/masters/Cargo.toml");
    let root = read("Cargo.toml");
    let upward = own
        .iter()
        .filter(|name| section_keys(&masters, is_dependencies).contains(**name));
    let circular = own.iter().filter(|name| {
        section_keys(&root, |head| head.ends_with("dev-dependencies")).contains(**name)
    });
    report(
        &upward
            .chain(circular)
            .map(|name| format!("{name} is a dependency of what it stands on"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_file_opens_with_its_purpose_and_is_short() {
    let mut faults = Vec::new();
    for file in sources(&["src", "crates", "tests", "benches", "examples"]) {
        let lines = file.text.lines().count();
        if !file.text.starts_with("//! ") {
            faults.push(format!("{}: opens without `//!`", file.path));
        }
        if lines > 400 {
            faults.push(format!("{}: {lines} lines, more than 400", file.path));
        }
    }
    report(&faults);
}

#[test]
fn nothing_is_ignored_or_unfinished() {
    let mut faults = Vec::new();
    for file in sources(&["src", "crates", "tests", "benches", "examples", "docs"]) {
        let code = file.code();
        let unfinished = ["#[ignore", "todo!(", "unimplemented!(", "dbg!("];
        let marks = unfinished
            .iter()
            .filter(|mark| outside_strings(&code, mark));
        let fences = ["```ignore", "```rust,ignore"];
        let unrun = fences
            .iter()
            .filter(|fence| outside_strings(&file.text, fence));
        faults.extend(
            marks
                .chain(unrun)
                .map(|text| format!("{}: has `{text}`", file.path)),
        );
    }
    report(&faults);
}

#[test]
fn our_words_are_used_one_way() {
    let mut faults = Vec::new();
    for file in sources(&["src"]) {
        for (number, line) in file.text.lines().enumerate() {
            let prose = line.trim_start();
            if !(prose.starts_with("///") || prose.starts_with("//!")) {
                continue;
            }
            for (word, ours) in OTHER_WORDS.iter().filter(|(word, _)| has_word(prose, word)) {
                faults.push(format!(
                    "{}:{}: says `{word}`; our word is `{ours}`",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    report(&faults);
}

#[test]
fn every_public_async_function_says_what_dropping_it_does() {
    let mut faults = Vec::new();
    for file in sources(&["src"]) {
        let mut documented = false;
        for line in file.text.lines().map(str::trim_start) {
            if line.starts_with("///") {
                documented |= line.contains("# Cancel safety");
            } else if line.starts_with("pub async fn") && !documented {
                faults.push(format!("{}: no `# Cancel safety` at `{line}`", file.path));
            }
            if !line.starts_with("///") && !line.starts_with("#[") {
                documented = false;
            }
        }
    }
    report(&faults);
}

fn floor_of(room: &str) -> Option<u8> {
    ROOMS
        .iter()
        .find(|(name, _)| *name == room)
        .map(|(_, floor)| *floor)
}

fn room_of(path: &str) -> Option<(&str, u8)> {
    let room = path.strip_prefix("src/")?.split(['/', '.']).next()?;
    Some((room, floor_of(room)?))
}

/// What the front door exports, with the room it comes from.
fn exports(front: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in front.split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else {
            continue;
        };
        let Some((room, names)) = path.trim_start_matches("crate::").split_once("::") else {
            continue;
        };
        for name in names
            .split(['{', '}', ',', ':', ' ', '\n'])
            .filter(|name| !name.is_empty())
        {
            found.insert(name.to_owned(), room.to_owned());
        }
    }
    found
}

/// The names that stand behind `crate::`, also in a list; and rooms reached by `super::`.
fn names_from_the_root(code: &str) -> Vec<String> {
    let identifier = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => names.extend(heads_of(list).map(|head| identifier(head.trim_start()))),
            None => names.push(identifier(rest)),
        }
    }
    let climbed = code
        .match_indices("super::")
        .map(|(at, found)| identifier(&code[at + found.len()..]));
    names.extend(climbed.filter(|name| floor_of(name).is_some()));
    names
}

/// The items of a list in braces, up to its end, without what is nested in them.
fn heads_of(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut from, mut heads) = (0_u32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                heads.push(&list[from..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    heads.into_iter().filter(|head| !head.trim().is_empty())
}

/// Whether the text is there other than as the beginning of a string, as it is in this file.
fn outside_strings(code: &str, text: &str) -> bool {
    code.match_indices(text)
        .any(|(at, _)| !code[..at].ends_with('"'))
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part);
        let after = line[at + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}
