//! What `run` reports of a finished run: one JSON object, in a file or as the last line of standard error.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::args::Run;
use crate::exit::Exit;
use crate::{names, render};

/// A run whose lock was acquired. The fields are told in `run --help`.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) resource: Vec<u8>,
    pub(super) token: String,
    pub(super) grants: usize,
    pub(super) waited: Duration,
    pub(super) held: Duration,
    pub(super) released: bool,
    pub(super) outcome: Outcome,
    pub(super) lost: Option<String>,
    pub(super) exit: Exit,
    /// For standard error.
    pub(super) complaints: Vec<String>,
}

/// How COMMAND ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    NotStarted,
    Exited(u8),
    Signaled(i32),
}

impl Report {
    /// The object.
    pub(super) fn to_json(&self) -> Value {
        let (outcome, status, signal) = match self.outcome {
            Outcome::NotStarted => ("not_started", None, None),
            Outcome::Exited(status) => ("exited", Some(status), None),
            Outcome::Signaled(number) => ("signaled", None, Some(number)),
        };
        let outcome = if self.lost.is_some() { "lost" } else { outcome };
        let mut json = Map::new();
        names::put(&mut json, "resource", &self.resource);
        for (field, value) in [
            ("exit", json!(self.exit.code())),
            ("outcome", json!(outcome)),
            ("status", json!(status)),
            ("signal", json!(signal)),
            ("lost", json!(self.lost)),
            ("released", json!(self.released)),
            ("token", json!(self.token)),
            ("grants", json!(self.grants)),
            ("waited_ms", json!(self.waited.as_millis())),
            ("held_ms", json!(self.held.as_millis())),
        ] {
            json.insert(field.to_owned(), value);
        }
        Value::Object(json)
    }
}

/// Where the report goes: a path, or standard error.
#[derive(Debug)]
pub(super) enum Target {
    Nowhere,
    StandardError,
    File(PathBuf),
}

/// Where the user wants it; `--json` alone means standard error, as standard output is COMMAND's.
pub(super) fn target(args: &Run, json: bool) -> Target {
    match &args.report {
        Some(path) if path.as_os_str() == "-" => Target::StandardError,
        Some(path) => Target::File(path.clone()),
        None if json => Target::StandardError,
        None => Target::Nowhere,
    }
}

/// Writes it. A report that cannot be written changes no exit status: COMMAND has done its work.
pub(super) fn write(to: Target, json: &Value) {
    match to {
        Target::Nowhere => {}
        Target::StandardError => render::err(&json.to_string()),
        Target::File(path) => {
            if let Err(error) = std::fs::write(&path, format!("{json}\n")) {
                render::complain(&format!(
                    "cannot write the report to {}: {error}",
                    path.display()
                ));
            }
        }
    }
}
