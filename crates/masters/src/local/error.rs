//! Why local masters could not be started, stopped or looked at.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong with local masters.
#[derive(Debug)]
pub enum LocalError {
    /// No server program is installed.
    NoProgram,
    /// The count is out of range.
    BadCount {
        /// What was asked for.
        count: usize,
        /// The most that is started.
        most: usize,
    },
    /// The folder went away again and again while it was being locked.
    Missing(PathBuf),
    /// The folder belongs to another user.
    ForeignFolder(PathBuf),
    /// The path is a symbolic link or no folder.
    NoFolder(PathBuf),
    /// The folder could be written by others, so what it holds cannot be trusted.
    NotPrivate(PathBuf),
    /// The folder holds other things.
    InUse(PathBuf),
    /// The lock was not free within the time.
    Busy(PathBuf),
    /// The state file is not one of ours.
    BadState {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A server did not come up.
    NotReady {
        /// Its port.
        port: u16,
        /// The end of its log.
        log: String,
    },
    /// A process did not end.
    Stubborn {
        /// Its number.
        pid: u32,
    },
    /// A file operation failed.
    Io {
        /// On what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl LocalError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io {
            path: path.into(),
            error,
        }
    }
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => f.write_str(
                "no server program found: neither redis-server nor valkey-server is on PATH; install one, for example \
                 with `apt install redis-server`, `dnf install valkey` or `brew install valkey`",
            ),
            Self::BadCount { count, most } => write!(f, "cannot start {count} masters: between 1 and {most}"),
            Self::Missing(path) => write!(f, "the folder {} keeps going away", path.display()),
            Self::ForeignFolder(path) => write!(f, "the folder {} belongs to another user; name another with --dir", path.display()),
            Self::NoFolder(path) => write!(f, "{} is a symbolic link or no folder; name another with --dir", path.display()),
            Self::NotPrivate(path) => write!(f, "others may write to {}; name another folder with --dir", path.display()),
            Self::InUse(path) => write!(f, "the folder {} holds other things; name a new or empty one with --dir", path.display()),
            Self::Busy(path) => write!(f, "another start or stop is at work in {}", path.display()),
            Self::BadState { file, why } => write!(f, "{} is no list of masters: {why}", file.display()),
            Self::NotReady { port, log } => write!(f, "the server on port {port} did not come up; its log ends with:\n{log}"),
            Self::Stubborn { pid } => write!(f, "the process {pid} did not end, not even when killed"),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LocalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
