//! `quorumlock status`: what each master says of a lock, and what that makes together.

use quorumlock::{KeyState, MasterStatus, Redlock, Status as Seen, Verdict};
use serde_json::{Map, Value, json};

use crate::args::Status;
use crate::durations::show;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::{Answer, redact};
use crate::{names, settings};

/// What a key may be instead.
const NOT_A_LOCK: &str = "not a lock: another type of value, or one that never expires";

/// Asks about each resource; the status is 0 if a quorum answered for each.
pub(crate) async fn status(redlock: &Redlock, args: &Status) -> Result<Answer, Failure> {
    let resources = args
        .resource
        .iter()
        .map(settings::resource)
        .collect::<Result<Vec<_>, _>>()?;
    let (mut texts, mut values, mut exit) = (Vec::new(), Vec::new(), Exit::Done);
    for resource in &resources {
        let seen = redlock.status(resource).await?;
        if matches!(seen.verdict(), Verdict::Unknown) {
            exit = Exit::Unavailable;
        }
        texts.push(describe(resource, &seen));
        values.push(to_json(resource, &seen));
    }
    Ok(Answer {
        text: texts.join("\n\n"),
        note: String::new(),
        json: Some(json!({"resources": values})),
        exit,
    })
}

fn describe(resource: &[u8], seen: &Seen) -> String {
    let count = seen.masters().len();
    let verdict = match seen.verdict() {
        Verdict::Free => "free".to_owned(),
        Verdict::Held { token, masters } => format!(
            "held by {} on {masters} of {count} masters",
            names::show(&token)
        ),
        Verdict::Split => "split: taken, but nobody has a quorum".to_owned(),
        _ => "unknown: no quorum of masters answered".to_owned(),
    };
    let width = seen
        .masters()
        .iter()
        .map(|master| master.address().len())
        .max()
        .unwrap_or(0);
    let line = |master: &MasterStatus| {
        let state = match master.state() {
            KeyState::Free => "free".to_owned(),
            KeyState::Held { token, ttl_left } => {
                format!("held by {}, {} left", names::show(token), show(*ttl_left))
            }
            KeyState::NotALock => NOT_A_LOCK.to_owned(),
            KeyState::Failed(fault) => format!("no answer: {}", redact(&fault.to_string())),
            _ => "unknown".to_owned(),
        };
        format!(
            "\n  {}  {:width$}  {state}",
            master.index() + 1,
            master.address()
        )
    };
    let masters: String = seen.masters().iter().map(line).collect();
    format!("{}: {verdict}{masters}", names::show(resource))
}

fn to_json(resource: &[u8], seen: &Seen) -> Value {
    let mut json = Map::new();
    names::put(&mut json, "resource", resource);
    let (verdict, holder) = match seen.verdict() {
        Verdict::Free => ("free", None),
        Verdict::Held { token, masters } => ("held", Some((token, masters))),
        Verdict::Split => ("split", None),
        _ => ("unknown", None),
    };
    json.insert("verdict".to_owned(), json!(verdict));
    match holder {
        Some((token, masters)) => {
            names::put(&mut json, "token", &token);
            json.insert("held_on".to_owned(), json!(masters));
        }
        None => {
            json.insert("token".to_owned(), Value::Null);
            json.insert("held_on".to_owned(), json!(0));
        }
    }
    json.insert("quorum".to_owned(), json!(seen.quorum()));
    json.insert(
        "masters".to_owned(),
        seen.masters().iter().map(master).collect(),
    );
    Value::Object(json)
}

fn master(master: &MasterStatus) -> Value {
    let mut json = Map::new();
    json.insert("index".to_owned(), json!(master.index()));
    json.insert("address".to_owned(), json!(master.address()));
    let (state, detail) = match master.state() {
        KeyState::Free => ("free", Value::Null),
        KeyState::Held { token, ttl_left } => {
            names::put(&mut json, "token", token);
            json.insert("ttl_ms".to_owned(), json!(ttl_left.as_millis()));
            ("held", Value::Null)
        }
        KeyState::NotALock => ("not_a_lock", json!(NOT_A_LOCK)),
        KeyState::Failed(fault) => ("failed", json!(redact(&fault.to_string()))),
        _ => ("unknown", Value::Null),
    };
    json.insert("state".to_owned(), json!(state));
    json.insert("detail".to_owned(), detail);
    Value::Object(json)
}
