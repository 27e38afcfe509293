//! Local masters: started, found again, stopped; and every folder that must be refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use quorumlock_masters::local::{LocalError, default_dir, start, status, stop};
use quorumlock_masters::{Server, Wire, eventually};

const SOON: Duration = Duration::from_secs(10);

/// Stops what a failing test has left.
struct Stop<'a>(&'a Path);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        drop(stop(Some(self.0)));
    }
}

fn answers(port: u16) -> bool {
    Wire::connect(([127, 0, 0, 1], port).into(), SOON)
        .is_ok_and(|mut wire| wire.call(&["PING"]).is_ok())
}

#[test]
fn they_start_once_and_stop() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("a/masters");
    let _stop = Stop(&dir);
    assert!(status(Some(&dir)).unwrap().is_empty());
    assert!(stop(Some(&dir)).unwrap().is_empty());
    let first = start(3, Some(&dir)).unwrap();
    assert!(first.fresh && first.masters.len() == 3);
    assert!(
        first
            .masters
            .iter()
            .all(|master| master.alive && master.answering && answers(master.port))
    );
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    let second = start(5, Some(&dir)).unwrap();
    assert!(!second.fresh);
    assert_eq!(second.masters, first.masters);
    assert_eq!(status(Some(&dir)).unwrap(), first.masters);
    assert_eq!(stop(Some(&dir)).unwrap(), first.masters);
    assert!(!dir.exists());
    assert!(first.masters.iter().all(|master| !answers(master.port)));
}

#[test]
fn concurrent_starts_make_one_set() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("masters");
    let _stop = Stop(&dir);
    let started: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| start(2, Some(&dir)).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(started.iter().filter(|started| started.fresh).count(), 1);
    assert!(
        started
            .iter()
            .all(|other| other.masters == started[0].masters)
    );
}

#[test]
fn a_start_and_a_stop_that_race_leave_all_or_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("masters");
    let _stop = Stop(&dir);
    for _ in 0..5 {
        thread::scope(|scope| {
            let starting = scope.spawn(|| start(1, Some(&dir)));
            let stopping = scope.spawn(|| stop(Some(&dir)));
            assert_eq!(starting.join().unwrap().unwrap().masters.len(), 1);
            stopping.join().unwrap().unwrap();
        });
        let left = status(Some(&dir)).unwrap();
        assert_eq!(left.is_empty(), !dir.exists());
        assert!(left.iter().all(|master| master.answering));
    }
}

#[test]
fn a_dead_master_is_told_and_a_dead_set_is_replaced() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("masters");
    let _stop = Stop(&dir);
    let first = start(2, Some(&dir)).unwrap();
    let shut = |port: u16| {
        drop(
            Wire::connect(([127, 0, 0, 1], port).into(), SOON)
                .unwrap()
                .call(&["SHUTDOWN", "NOSAVE"]),
        );
        assert!(eventually(SOON, || !status(Some(&dir))
            .unwrap()
            .iter()
            .any(|master| master.port == port && master.alive)));
    };
    shut(first.masters[0].port);
    let found = start(2, Some(&dir)).unwrap();
    assert!(!found.fresh && !found.masters[0].alive && found.masters[1].alive);
    shut(first.masters[1].port);
    let fresh = start(2, Some(&dir)).unwrap();
    assert!(fresh.fresh && fresh.masters.iter().all(|master| master.answering));
    assert_eq!(stop(Some(&dir)).unwrap().len(), 2);
}

/// When a process was started, as the kernel counts.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit(')').next()?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

#[test]
fn a_stranger_with_the_recorded_number_is_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("masters");
    let _stop = Stop(&dir);
    let ours = start(1, Some(&dir)).unwrap().masters[0].clone();
    // Start times are told in hundredths of a second: the stranger must not share ours.
    let stranger = loop {
        let stranger = Server::start();
        if start_time(stranger.pid()) != start_time(ours.pid) {
            break stranger;
        }
    };
    let file = dir.join("masters.json");
    let genuine = fs::read_to_string(&file).unwrap();
    let forged = genuine
        .replace(
            &format!("\"pid\": {}", ours.pid),
            &format!("\"pid\": {}", stranger.pid()),
        )
        .replace(
            &format!("\"port\": {}", ours.port),
            &format!("\"port\": {}", stranger.port()),
        );
    assert_ne!(forged, genuine);
    fs::write(&file, forged).unwrap();
    assert!(!status(Some(&dir)).unwrap()[0].alive);
    fs::write(
        &file,
        genuine.replace(
            &format!("\"pid\": {}", ours.pid),
            &format!("\"pid\": {}", stranger.pid()),
        ),
    )
    .unwrap();
    assert!(stop(Some(&dir)).unwrap().is_empty());
    assert!(stranger.is_running() && answers(stranger.port()));
    drop(
        Wire::connect(([127, 0, 0, 1], ours.port).into(), SOON)
            .unwrap()
            .call(&["SHUTDOWN", "NOSAVE"]),
    );
}

#[test]
fn a_start_that_was_killed_half_way_is_cleaned_up() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("masters");
    let _stop = Stop(&dir);
    let ours = start(1, Some(&dir)).unwrap().masters[0].clone();
    let file = dir.join("masters.json");
    let state = fs::read_to_string(&file).unwrap();
    let (before, after) = state.split_once("\"process\": {").unwrap();
    let after = after.split_once('}').unwrap().1;
    fs::write(&file, format!("{before}\"process\": null{after}")).unwrap();
    assert_eq!(status(Some(&dir)).unwrap()[0], ours);
    assert_eq!(stop(Some(&dir)).unwrap(), std::slice::from_ref(&ours));
    assert!(!answers(ours.port) && !dir.exists());
}

#[test]
fn folders_that_are_not_ours_are_refused_untouched() {
    let parent = tempfile::tempdir().unwrap();
    let (real, link, full, open) = ["real", "link", "full", "open"]
        .map(|name| parent.path().join(name))
        .into();
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "years").unwrap();
    fs::create_dir(&open).unwrap();
    fs::write(open.join("masters.json"), "{}").unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let mode = fs::metadata(&full).unwrap().mode();
    assert!(matches!(
        start(1, Some(&link)),
        Err(LocalError::NoFolder(_))
    ));
    assert!(matches!(status(Some(&link)), Err(LocalError::NoFolder(_))));
    assert!(matches!(stop(Some(&link)), Err(LocalError::NoFolder(_))));
    assert!(matches!(start(1, Some(&full)), Err(LocalError::InUse(_))));
    assert!(matches!(stop(Some(&full)), Err(LocalError::InUse(_))));
    assert!(matches!(
        start(1, Some(&open)),
        Err(LocalError::NotPrivate(_))
    ));
    assert!(matches!(
        start(0, Some(&real)),
        Err(LocalError::BadCount { .. })
    ));
    assert!(matches!(
        start(100, Some(&real)),
        Err(LocalError::BadCount { .. })
    ));
    assert_eq!(fs::metadata(&full).unwrap().mode(), mode);
    assert!(full.join("thesis.tex").exists() && real.exists());
}

#[test]
fn a_folder_of_another_user_is_refused() {
    // Only root can make one; anybody else finds one in the root of the file system.
    let parent = tempfile::tempdir().unwrap();
    let given = parent.path().join("given");
    fs::create_dir(&given).unwrap();
    let foreign = if std::os::unix::fs::chown(&given, Some(65_534), None).is_ok() {
        given.as_path()
    } else {
        Path::new("/")
    };
    assert!(matches!(
        start(1, Some(foreign)),
        Err(LocalError::ForeignFolder(_))
    ));
    assert!(matches!(
        stop(Some(foreign)),
        Err(LocalError::ForeignFolder(_))
    ));
}

#[test]
fn the_default_folder_is_the_users_own() {
    assert!(default_dir().is_absolute());
    assert!(
        default_dir()
            .to_string_lossy()
            .contains("quorumlock-masters")
    );
}
