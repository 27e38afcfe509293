//! The record of what was started: one JSON file, replaced whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::LocalError;
use super::folder::owned;

/// The name of the record in its folder.
pub(super) const STATE: &str = "masters.json";
const STATE_NEW: &str = "masters.json.new";
const VERSION: u32 = 1;

/// One master as it was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) port: u16,
    /// None while it is being started: it is then known by the folder that it names.
    pub(super) process: Option<Identity>,
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// When it started, in the system's own notation.
    pub(super) started: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    pub(super) program: PathBuf,
    pub(super) masters: Vec<Record>,
}

impl State {
    pub(super) fn new(program: PathBuf) -> Self {
        Self {
            version: VERSION,
            program,
            masters: Vec::new(),
        }
    }

    pub(super) fn read(dir: &Path) -> Result<Option<Self>, LocalError> {
        let file = dir.join(STATE);
        let bad = |why: String| LocalError::BadState {
            file: file.clone(),
            why,
        };
        match fs::symlink_metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LocalError::io(file)(error)),
            Ok(found) if !found.is_file() || !owned(&found) => {
                return Err(bad("not a file of this user".to_owned()));
            }
            Ok(_) => {}
        }
        let bytes = fs::read(&file).map_err(LocalError::io(&file))?;
        let state: Self = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if state.version == VERSION {
            Ok(Some(state))
        } else {
            Err(bad(format!("version {}", state.version)))
        }
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), LocalError> {
        let new = dir.join(STATE_NEW);
        let bytes =
            serde_json::to_vec_pretty(self).map_err(|error| LocalError::io(&new)(error.into()))?;
        fs::write(&new, bytes).map_err(LocalError::io(&new))?;
        fs::rename(&new, dir.join(STATE)).map_err(LocalError::io(&new))
    }

    /// Removes the record and the folder of each master.
    pub(super) fn remove(&self, dir: &Path) -> Result<(), LocalError> {
        for record in &self.masters {
            let home = record.home(dir);
            match fs::remove_dir_all(&home) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LocalError::io(home)(error));
                }
                _ => {}
            }
        }
        fs::remove_file(dir.join(STATE)).map_err(LocalError::io(dir.join(STATE)))
    }
}

impl Record {
    /// The folder of this master alone.
    pub(super) fn home(&self, dir: &Path) -> PathBuf {
        dir.join(format!("master-{}", self.port))
    }
}
