//! The private folder of one user's local masters, and its lock.
//!
//! The lock is on the folder itself, so there is no lock file to leave behind; since a stop removes the folder, whoever
//! has waited for the lock looks whether the path still means the folder that it locked.

use std::env;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

use super::error::LocalError;
use super::state::STATE;
use crate::clock::poll;

const NAME: &str = "quorumlock-masters";
/// Longer than a start of many servers on a loaded machine.
const LOCK: Duration = Duration::from_secs(60);

/// The folder used when none is named: in `XDG_RUNTIME_DIR`, or else in the temporary directory.
#[must_use]
pub fn default_dir() -> PathBuf {
    let run_time = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_dir());
    run_time.map_or_else(
        || env::temp_dir().join(format!("{NAME}-{}", geteuid().as_raw())),
        |folder| folder.join(NAME),
    )
}

/// The locked folder; the lock ends with it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _locked: File,
}

impl Folder {
    /// Locks the folder, and makes it first if asked to; none if it is not there.
    pub(super) fn lock(path: &Path, make: bool) -> Result<Option<Self>, LocalError> {
        for _ in 0..100 {
            if make {
                create(path)?;
            }
            if !is_ours(path)? {
                return Ok(None);
            }
            let locked = match open(
                path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                Ok(file) => File::from(file),
                Err(_) if fs::symlink_metadata(path).is_err() => continue,
                Err(error) => return Err(LocalError::io(path)(error.into())),
            };
            poll(LOCK, || {
                flock(&locked, FlockOperation::NonBlockingLockExclusive).ok()
            })
            .ok_or_else(|| LocalError::Busy(path.to_owned()))?;
            if same(&locked, path) {
                make_private(path)?;
                let path = fs::canonicalize(path).map_err(LocalError::io(path))?;
                return Ok(Some(Self {
                    path,
                    _locked: locked,
                }));
            }
        }
        Err(LocalError::Missing(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it if it is empty by now; what is not ours keeps it.
    pub(super) fn remove(self) {
        drop(fs::remove_dir(&self.path));
    }
}

/// Whether the folder is there; an error if it is not for us to use.
pub(super) fn is_ours(path: &Path) -> Result<bool, LocalError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(LocalError::io(path)(error)),
    };
    if !found.is_dir() {
        return Err(LocalError::NoFolder(path.to_owned()));
    }
    if !owned(&found) {
        return Err(LocalError::ForeignFolder(path.to_owned()));
    }
    Ok(true)
}

pub(super) fn owned(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

fn create(path: &Path) -> Result<(), LocalError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(LocalError::io(parent))?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(LocalError::io(path)(error))
        }
        _ => Ok(()),
    }
}

/// Refuses a folder with other things in it, and closes one of ours to others.
fn make_private(path: &Path) -> Result<(), LocalError> {
    let empty = fs::read_dir(path)
        .map_err(LocalError::io(path))?
        .next()
        .is_none();
    if !empty && !path.join(STATE).exists() {
        return Err(LocalError::InUse(path.to_owned()));
    }
    let mode = fs::symlink_metadata(path)
        .map_err(LocalError::io(path))?
        .mode();
    if mode & 0o022 != 0 && !empty {
        return Err(LocalError::NotPrivate(path.to_owned()));
    }
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(LocalError::io(path))?;
    }
    Ok(())
}

fn same(locked: &File, path: &Path) -> bool {
    match (locked.metadata(), fs::symlink_metadata(path)) {
        (Ok(locked), Ok(named)) => (locked.dev(), locked.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
