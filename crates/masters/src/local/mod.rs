//! Throwaway masters that outlive the process that started them: the backend of `quorumlock masters`.
//!
//! Real server processes on loopback, without persistence, one set a folder. Nothing here is for production, and
//! nothing restarts a server that died.
//!
//! Invariants
//! 1. A signal goes only to a process that was started from this folder: its number and its start time, or the folder
//!    that it names itself, must match what was recorded.
//! 2. The folder is private to its user; one that is not, or that holds other things, is refused untouched.
//! 3. Whoever starts or stops holds the folder's lock; a server is recorded before it is started.

mod daemon;
mod error;
mod folder;
mod state;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::error::LocalError;
use self::folder::Folder;
pub use self::folder::default_dir;
use self::state::State;
use crate::program::Flavour;

/// More would be a mistake of typing; each is a process.
const COUNT_MAX: usize = 99;

/// One recorded master, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalMaster {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Its process number.
    pub pid: u32,
    /// `redis://127.0.0.1:PORT`.
    pub url: String,
    /// The server program it runs.
    pub program: PathBuf,
    /// Whether the very process that was started lives.
    pub alive: bool,
    /// Whether it answered a PING just now.
    pub answering: bool,
}

/// What a start has found or made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Started {
    /// False if masters were running already; these are then reported, whatever count was asked for.
    pub fresh: bool,
    /// The folder.
    pub dir: PathBuf,
    /// Every recorded master, one that has died since included: the number of masters is for life.
    pub masters: Vec<LocalMaster>,
}

/// Starts this many masters, or says which run already.
///
/// # Errors
/// * neither `redis-server` nor `valkey-server` is on `PATH`;
/// * the count is zero or above 99;
/// * the folder is somebody else's, a symbolic link, not private or in use for other things;
/// * another start or stop takes longer than a minute;
/// * a server does not come up: those started with it are ended again;
/// * a file operation failed.
pub fn start(count: usize, dir: Option<&Path>) -> Result<Started, LocalError> {
    start_program(Flavour::Redis.available(), count, dir)
}

fn start_program(
    program: Option<PathBuf>,
    count: usize,
    dir: Option<&Path>,
) -> Result<Started, LocalError> {
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(LocalError::BadCount {
            count,
            most: COUNT_MAX,
        });
    }
    let folder =
        Folder::lock(&chosen(dir), true)?.ok_or_else(|| LocalError::Missing(chosen(dir)))?;
    let dir = folder.path().to_owned();
    if let Some(state) = State::read(&dir)? {
        let masters = daemon::look(&dir, &state);
        if masters.iter().any(|master| master.alive) {
            return Ok(Started {
                fresh: false,
                dir,
                masters,
            });
        }
        daemon::end(&dir, &state)?;
        state.remove(&dir)?;
    }
    let state = program
        .ok_or(LocalError::NoProgram)
        .and_then(|program| daemon::start(&dir, program, count));
    match state {
        Ok(state) => Ok(Started {
            fresh: true,
            masters: daemon::look(&dir, &state),
            dir,
        }),
        Err(error) => {
            folder.remove();
            Err(error)
        }
    }
}

/// Ends the recorded masters and removes the folder; gives those that were alive.
///
/// # Errors
/// * the folder is somebody else's, a symbolic link or in use for other things;
/// * another start or stop takes longer than a minute;
/// * a process did not end, or a file operation failed.
pub fn stop(dir: Option<&Path>) -> Result<Vec<LocalMaster>, LocalError> {
    let Some(folder) = Folder::lock(&chosen(dir), false)? else {
        return Ok(Vec::new());
    };
    let Some(state) = State::read(folder.path())? else {
        return Ok(Vec::new());
    };
    let mut masters = daemon::look(folder.path(), &state);
    masters.retain(|master| master.alive);
    daemon::end(folder.path(), &state)?;
    state.remove(folder.path())?;
    folder.remove();
    Ok(masters)
}

/// Every recorded master, as it is now; none if nothing was started.
///
/// # Errors
/// * the folder is somebody else's or a symbolic link;
/// * its state file cannot be read.
pub fn status(dir: Option<&Path>) -> Result<Vec<LocalMaster>, LocalError> {
    let path = chosen(dir);
    if !folder::is_ours(&path)? {
        return Ok(Vec::new());
    }
    Ok(State::read(&path)?
        .map(|state| daemon::look(&path, &state))
        .unwrap_or_default())
}

fn chosen(dir: Option<&Path>) -> PathBuf {
    dir.map_or_else(default_dir, Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_program_the_error_says_how_to_get_one() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("masters");
        let error = start_program(None, 3, Some(&dir)).unwrap_err();
        assert!(matches!(error, LocalError::NoProgram));
        assert!(error.to_string().contains("install"), "{error}");
        assert!(!dir.exists());
    }

    #[test]
    fn a_program_that_does_not_come_up_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("masters");
        let error = start_program(Some("/bin/false".into()), 3, Some(&dir)).unwrap_err();
        assert!(matches!(error, LocalError::NotReady { .. }), "{error}");
        assert!(!dir.exists());
    }
}
