//! Finds COMMAND before the lock is acquired, as a shell would: nobody should wait for a lock to learn of a typing error.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::warden::Program;

/// Used where PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why COMMAND cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    NotFound,
    NotExecutable,
}

/// Finds the file that COMMAND names.
pub(super) fn find(argv: &[OsString], path: Option<&OsStr>) -> Result<Program, Missing> {
    let name = argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or(Missing::NotFound)?;
    let found = |path: PathBuf| Program {
        path: path.into_os_string(),
        argv: argv.to_vec(),
    };
    if name.as_bytes().contains(&b'/') {
        return look_at(Path::new(name)).map(|()| found(PathBuf::from(name)));
    }
    let mut missing = Missing::NotFound;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty entry means the current folder, and must not turn into a search of PATH by exec.
        let candidate = if folder.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            folder.join(name)
        };
        match look_at(&candidate) {
            Ok(()) => return Ok(found(candidate)),
            Err(Missing::NotExecutable) => missing = Missing::NotExecutable,
            Err(Missing::NotFound) => {}
        }
    }
    Err(missing)
}

fn look_at(path: &Path) -> Result<(), Missing> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && access(path, Access::EXEC_OK).is_ok() => Ok(()),
        Ok(_) => Err(Missing::NotExecutable),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Missing::NotExecutable)
        }
        Err(_) => Err(Missing::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, path: &str, expected: Result<&str, Missing>) {
        let found = find(&[OsString::from(name)], Some(OsStr::new(path)));
        assert_eq!(
            found.map(|program| program.path),
            expected.map(OsString::from),
            "{name} in {path}"
        );
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        check("sh", "/nowhere:/bin", Ok("/bin/sh"));
        check("/bin/sh", "", Ok("/bin/sh"));
        check("sh", "/nowhere", Err(Missing::NotFound));
        check("", "/bin", Err(Missing::NotFound));
        check("/etc", "", Err(Missing::NotExecutable));
        check("/etc/passwd", "", Err(Missing::NotExecutable));
        check("passwd", "/etc", Err(Missing::NotExecutable));
        check("/bin/sh/x", "", Err(Missing::NotFound));
    }
}
