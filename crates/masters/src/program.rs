//! Finds the server programs. It starts none.

use std::env;
use std::path::{Path, PathBuf};

/// Which server program to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Flavour {
    /// `redis-server` from `PATH`, or else `valkey-server`.
    #[default]
    Redis,
    /// Redis 8: `QUORUMLOCK_REDIS8`, or else `target/servers/redis-server-8`.
    Redis8,
    /// Valkey 9: `QUORUMLOCK_VALKEY9`, or else `target/servers/valkey-server-9`.
    Valkey9,
    /// This program. A wrapper script must `exec` the server, or signals miss it.
    Path(PathBuf),
}

impl Flavour {
    /// The program, or none where it cannot be had: a test then says so instead of failing.
    #[must_use]
    pub fn available(&self) -> Option<PathBuf> {
        match self {
            Self::Redis => on_path("redis-server").or_else(|| on_path("valkey-server")),
            Self::Redis8 => named("QUORUMLOCK_REDIS8", "redis-server-8"),
            Self::Valkey9 => named("QUORUMLOCK_VALKEY9", "valkey-server-9"),
            Self::Path(path) => path.is_file().then(|| path.clone()),
        }
    }

    /// Every flavour that can be started here, for tests that run on each.
    #[must_use]
    pub fn all_available() -> Vec<Self> {
        [Self::Redis, Self::Redis8, Self::Valkey9]
            .into_iter()
            .filter(|flavour| flavour.available().is_some())
            .collect()
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn named(variable: &str, file: &str) -> Option<PathBuf> {
    if let Some(path) = env::var_os(variable).filter(|value| !value.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let here = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = here
        .into_iter()
        .chain([PathBuf::from(env!("CARGO_MANIFEST_DIR"))]);
    starts
        .flat_map(|start| below_an_ancestor(&start, file))
        .next()
}

fn below_an_ancestor(start: &Path, file: &str) -> Option<PathBuf> {
    start
        .ancestors()
        .map(|folder| folder.join("target/servers").join(file))
        .find(|path| path.is_file())
}
