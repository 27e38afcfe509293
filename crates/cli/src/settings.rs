//! The global settings: a flag, else its variable, else the library's default; checked before a byte is sent.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::args::Globals;
use crate::durations;
use crate::failure::Failure;

/// What every verb that talks to masters needs.
#[derive(Debug)]
pub(crate) struct Settings {
    globals: Globals,
}

/// Says both ways of naming masters, and how to get some.
const NO_MASTERS: &str = "no masters were given. Name them with --masters redis://HOST:PORT,redis://HOST:PORT,… or the variable \
     QUORUMLOCK_MASTERS, or one a line in a file with --masters-file or QUORUMLOCK_MASTERS_FILE. To try things on this \
     machine: eval \"$(quorumlock masters start)\"";

impl Settings {
    /// Adds what the variables say to what the flags say.
    pub(crate) fn from_flags_and_variables(mut globals: Globals) -> Result<Self, Failure> {
        globals.json |= json_wished();
        // The two ways of naming masters are one setting: a flag for either beats both variables.
        if globals.masters.is_none() && globals.masters_file.is_none() {
            globals.masters = variable("QUORUMLOCK_MASTERS");
            globals.masters_file = variable("QUORUMLOCK_MASTERS_FILE").map(PathBuf::from);
            if globals.masters.is_some() && globals.masters_file.is_some() {
                return Err(Failure::bad_input(
                    "QUORUMLOCK_MASTERS and QUORUMLOCK_MASTERS_FILE are both set; unset one of them, or say which with a flag",
                ));
            }
        }
        globals.prefix = globals.prefix.or_else(|| variable("QUORUMLOCK_PREFIX"));
        globals.tls_ca = globals
            .tls_ca
            .or_else(|| variable("QUORUMLOCK_TLS_CA").map(PathBuf::from));
        globals.max_ttl = or_duration(globals.max_ttl, "QUORUMLOCK_MAX_TTL")?;
        globals.timeout = or_duration(globals.timeout, "QUORUMLOCK_TIMEOUT")?;
        Ok(Settings { globals })
    }

    /// Whether one JSON value is wanted on standard output.
    pub(crate) fn json(&self) -> bool {
        self.globals.json
    }

    /// The masters' URLs, at least one.
    pub(crate) fn masters(&self) -> Result<Vec<String>, Failure> {
        let urls = match (&self.globals.masters, &self.globals.masters_file) {
            (Some(list), _) => split_list(text(list)?),
            (None, Some(file)) => {
                let content = std::fs::read_to_string(file).map_err(|error| {
                    Failure::bad_input(format!(
                        "cannot read the masters from {}: {error}",
                        file.display()
                    ))
                })?;
                split_lines(&content)
            }
            (None, None) => Vec::new(),
        };
        if urls.is_empty() {
            Err(Failure::bad_input(NO_MASTERS))
        } else {
            Ok(urls)
        }
    }

    /// What is put before every resource.
    pub(crate) fn prefix(&self) -> Option<&[u8]> {
        self.globals.prefix.as_deref().map(OsStr::as_bytes)
    }

    /// The longest TTL in use in this deployment.
    pub(crate) fn max_ttl(&self) -> Option<Duration> {
        self.globals.max_ttl
    }

    /// How long to wait for one master's answer.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.globals.timeout
    }

    /// The certificate authority for TLS.
    pub(crate) fn tls_ca(&self) -> Option<&std::path::Path> {
        self.globals.tls_ca.as_deref()
    }
}

/// Whether `QUORUMLOCK_JSON` asks for JSON.
pub(crate) fn json_wished() -> bool {
    variable("QUORUMLOCK_JSON").is_some_and(|value| {
        !["0", "false", "no", "off"]
            .map(OsStr::new)
            .contains(&value.as_os_str())
    })
}

/// A resource's bytes; refused if it is empty, so that no master need be named to learn that.
pub(crate) fn resource(name: &OsString) -> Result<Vec<u8>, Failure> {
    if name.is_empty() {
        return Err(Failure::bad_input(
            "a resource needs a name; an empty one is refused",
        ));
    }
    Ok(name.clone().into_vec())
}

/// An empty variable is one that is not set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn or_duration(flag: Option<Duration>, name: &str) -> Result<Option<Duration>, Failure> {
    match (flag, variable(name)) {
        (Some(duration), _) => Ok(Some(duration)),
        (None, None) => Ok(None),
        (None, Some(value)) => {
            let parsed = value
                .to_str()
                .ok_or_else(|| "it is no text".to_owned())
                .and_then(durations::parse);
            parsed.map(Some).map_err(|why| {
                Failure::bad_input(format!("the variable {name} is no duration: {why}"))
            })
        }
    }
}

fn text(list: &OsStr) -> Result<&str, Failure> {
    list.to_str()
        .ok_or_else(|| Failure::bad_input("the list of masters is no UTF-8 text"))
}

/// URLs between commas. A comma inside a URL is %2C, which redis-rs decodes with the rest of the URL.
fn split_list(list: &str) -> Vec<String> {
    list.split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}

fn split_lines(content: &str) -> Vec<String> {
    content
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_split_at_commas_or_lines() {
        assert_eq!(
            split_list("redis://a, redis://u:p%2Cq@b,,"),
            ["redis://a", "redis://u:p%2Cq@b"]
        );
        assert_eq!(
            split_lines("# ours\n\nredis://a\r\n redis://b,c \n"),
            ["redis://a", "redis://b,c"]
        );
    }
}
