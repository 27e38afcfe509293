//! `quorumlock release`: deletes a lock by its token, or whoever holds it.

use quorumlock::{Redlock, Released};
use serde_json::{Map, Value, json};

use crate::args::Release;
use crate::exit::Exit;
use crate::failure::{Failure, master};
use crate::render::Answer;
use crate::{names, settings};

/// Releases.
pub(crate) async fn release(redlock: &Redlock, args: &Release) -> Result<Answer, Failure> {
    let resource = settings::resource(&args.resource)?;
    let mut json = Map::new();
    names::put(&mut json, "resource", &resource);
    if let Some(token) = &args.token {
        if redlock.release(&resource, token).await? == Released::NoLongerOurs {
            let name = names::show(&resource);
            return Err(Failure::lost(format!(
                "the lock on '{name}' no longer belonged to this token; nothing was released"
            )));
        }
    } else {
        let answers = redlock.force_release(&resource).await?;
        json.insert("masters".to_owned(), answers.iter().map(master).collect());
    }
    json.insert("released".to_owned(), json!(true));
    Ok(Answer {
        text: String::new(),
        note: String::new(),
        json: Some(Value::Object(json)),
        exit: Exit::Done,
    })
}
