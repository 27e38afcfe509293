//! Case 40: TERM comes early enough that KILL after the grace still falls inside the validity.
//!
//! COMMAND ignores TERM and holds a file lock of the kernel (flock) in every process it starts, so that two commands that
//! overlap, by however little, are found out: the second cannot have the file lock.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use quorumlock_masters::{Fleet, Stopwatch, pause};
use support::{PATIENCE, Running, SOON, Witness, on, run, steal};

const TTL: Duration = Duration::from_millis(1_500);
const THEFTS: usize = 40;
const LANES: usize = 4;
const OUTAGES: usize = 12;

/// The file lock, or the word that condemns; then three processes that ignore TERM.
const FIRST: &str = r#"exec 8>>"$1"; flock -n 8 || { echo OVERLAP; exit 1; }
    trap "" TERM; sleep 100 & setsid sleep 100 & echo ready; sleep 100"#;
const SECOND: &str = r#"exec 8>>"$1"; flock -n 8 || { echo OVERLAP; exit 1; }; echo second"#;

/// A first command loses its lock by `harm`; a second, which waits all the time, must not start before the first has ended.
fn check(fleet: &Fleet, folder: &Path, name: &str, harm: impl FnOnce()) {
    let (one, two) = (
        Witness::new(folder, &format!("{name}.1")),
        Witness::new(folder, &format!("{name}.2")),
    );
    let file = folder
        .join(format!("{name}.lock"))
        .to_str()
        .unwrap()
        .to_owned();
    let with_file = |mut words: Vec<String>| {
        words.push(file.clone());
        words
    };
    let options = format!("{name} --ttl {}ms", TTL.as_millis());
    let first = Running::start(on(fleet), run(&options, &with_file(one.script(FIRST))));
    one.expect("ready");
    let second = Running::start(on(fleet), run(&options, &with_file(two.script(SECOND))));
    harm();
    assert_eq!(
        two.ended(PATIENCE),
        ["second"],
        "{name}: the second command"
    );
    second.end().expect(0);
    assert_eq!(one.ended(PATIENCE), [""; 0], "{name}: the first command");
    first.end().expect(76);
    fleet.assert_no_key(name, SOON);
}

#[test]
fn case_40_no_second_child_before_the_first_has_ended_over_thefts() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let (fleet, folder) = (&fleet, folder.path());
            scope.spawn(move || {
                for round in 0..THEFTS / LANES {
                    let name = format!("theft-{lane}-{round}");
                    check(fleet, folder, &name, || steal(fleet, &name, TTL));
                }
            });
        }
    });
}

#[test]
fn case_40_no_second_child_before_the_first_has_ended_over_outages() {
    let (fleet, folder) = (Fleet::start(3), tempfile::tempdir().unwrap());
    let watch = Stopwatch::start();
    for round in 0..OUTAGES {
        check(&fleet, folder.path(), &format!("outage-{round}"), || {
            fleet[0].pause();
            fleet[1].pause();
            // The outage lasts as long as the key may: back at once, the masters give the lock to the second.
            pause(TTL);
            fleet[0].resume();
            fleet[1].resume();
        });
    }
    assert!(watch.elapsed() > TTL * u32::try_from(OUTAGES).unwrap());
}
