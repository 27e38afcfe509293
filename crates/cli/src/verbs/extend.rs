//! `quorumlock extend`: pushes the expiry of a lock that was acquired before.

use quorumlock::{Parts, Redlock};
use serde_json::{Map, Value, json};

use crate::args::Extend;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Answer;
use crate::{names, settings};

/// Extends, if the token still owns the lock.
pub(crate) async fn extend(redlock: &Redlock, args: &Extend) -> Result<Answer, Failure> {
    let resource = settings::resource(&args.resource)?;
    let parts = Parts::new(&resource, &args.token).ttl(args.ttl);
    // Taking the lock up is a first extension; giving the guard up again leaves the lock as it is.
    let parts = redlock.adopt(parts).await?.into_parts();
    let validity = parts.validity().as_millis();
    let mut json = Map::new();
    names::put(&mut json, "resource", &resource);
    json.insert("token".to_owned(), json!(args.token));
    json.insert("validity_ms".to_owned(), json!(validity));
    Ok(Answer {
        text: format!("validity={validity}ms"),
        note: String::new(),
        json: Some(Value::Object(json)),
        exit: Exit::Done,
    })
}
