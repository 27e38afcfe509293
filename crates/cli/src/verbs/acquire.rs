//! `quorumlock acquire`: takes a lock and leaves it behind.

use quorumlock::Redlock;
use serde_json::{Map, Value, json};

use crate::args::Acquire;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Answer;
use crate::{names, settings};

/// Acquires; the lock stays when this process ends.
pub(crate) async fn acquire(redlock: &Redlock, args: &Acquire) -> Result<Answer, Failure> {
    let resource = settings::resource(&args.resource)?;
    let lock = redlock.lock(&resource).ttl(args.ttl).without_watchdog();
    let once = args.no_wait || args.wait.is_some_and(|wait| wait.is_zero());
    let guard = match args.wait {
        _ if once => lock.try_acquire().await?,
        Some(wait) => lock.wait(wait).acquire().await?,
        None => lock.acquire().await?,
    };
    let grants = guard.grants();
    let parts = guard.into_parts();
    let validity = parts.validity();
    let mut json = Map::new();
    names::put(&mut json, "resource", &resource);
    json.insert("token".to_owned(), json!(parts.token()));
    json.insert("validity_ms".to_owned(), json!(validity.as_millis()));
    json.insert("grants".to_owned(), json!(grants));
    Ok(Answer {
        text: format!(
            "token={}\nvalidity={}ms",
            parts.token(),
            validity.as_millis()
        ),
        note: String::new(),
        json: Some(Value::Object(json)),
        exit: Exit::Done,
    })
}
