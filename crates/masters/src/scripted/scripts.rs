//! What a scripted master does for EVAL and EVALSHA. It has no Lua.
//!
//! A script is known by its text: first those that the test registered, then two by pattern, since every lock library
//! has them: with PEXPIRE it extends (`KEYS[1]`, `ARGV[1]` the token, `ARGV[2]` milliseconds: 1 ours, 0 another's, −1
//! missing, and never nearer than before), else with DEL it deletes if the token matches (1 or 0).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::store::Store;
use crate::resp::Reply;

/// The keys and arguments that a script was called with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    /// `KEYS`.
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`.
    pub args: Vec<Vec<u8>>,
}

type Likes = Box<dyn Fn(&str) -> bool + Send>;
type Effect = Box<dyn Fn(&mut Store, &ScriptCall) -> Reply + Send>;

#[derive(Default)]
pub(super) struct Scripts {
    by_hash: BTreeMap<String, String>,
    registered: Vec<(Likes, Effect)>,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts")
            .field("by_hash", &self.by_hash)
            .field("registered", &self.registered.len())
            .finish()
    }
}

impl Scripts {
    pub(super) fn register(&mut self, likes: Likes, effect: Effect) {
        self.registered.push((likes, effect));
    }

    /// The text that EVAL brings or EVALSHA names, if it is known.
    pub(super) fn text_of(&self, name: &str, args: &[Vec<u8>]) -> Option<String> {
        let first = String::from_utf8_lossy(args.get(1)?).into_owned();
        match name {
            "EVAL" => Some(first),
            "EVALSHA" => self.by_hash.get(&first.to_ascii_lowercase()).cloned(),
            _ => None,
        }
    }

    pub(super) fn load(&mut self, text: &str) -> String {
        let hash = sha1_smol::Sha1::from(text).digest().to_string();
        self.by_hash.insert(hash.clone(), text.to_owned());
        hash
    }

    /// SCRIPT LOAD, EXISTS, FLUSH.
    pub(super) fn manage(&mut self, args: &[Vec<u8>]) -> Reply {
        let word = |index: usize| {
            args.get(index)
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .unwrap_or_default()
        };
        match word(1).to_ascii_uppercase().as_str() {
            "LOAD" => Reply::bulk(self.load(&word(2))),
            "EXISTS" => {
                let known = |arg: &Vec<u8>| {
                    self.by_hash
                        .contains_key(String::from_utf8_lossy(arg).as_ref())
                };
                Reply::Array(
                    args.iter()
                        .skip(2)
                        .map(|arg| Reply::Int(i64::from(known(arg))))
                        .collect(),
                )
            }
            "FLUSH" => {
                self.by_hash.clear();
                Reply::ok()
            }
            _ => Reply::Error("ERR unknown subcommand of SCRIPT".to_owned()),
        }
    }

    pub(super) fn run(&mut self, store: &mut Store, name: &str, args: &[Vec<u8>]) -> Reply {
        let Some(text) = self.text_of(name, args) else {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        };
        self.load(&text);
        let count = args
            .get(2)
            .and_then(|arg| std::str::from_utf8(arg).ok()?.parse().ok())
            .unwrap_or(0);
        let rest = args.get(3..).unwrap_or_default();
        let (keys, values) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        let call = ScriptCall {
            keys: keys.to_vec(),
            args: values.to_vec(),
        };
        let folded = text.to_ascii_uppercase();
        if let Some((_, effect)) = self.registered.iter().find(|(likes, _)| likes(&text)) {
            effect(store, &call)
        } else if folded.contains("PEXPIRE") {
            extend(store, &call)
        } else if folded.contains("DEL") {
            compare_and_delete(store, &call)
        } else {
            Reply::Error(
                "ERR this scripted master does not know the script; register it".to_owned(),
            )
        }
    }
}

fn extend(store: &mut Store, call: &ScriptCall) -> Reply {
    let (Some(key), Some(token)) = (call.keys.first(), call.args.first()) else {
        return few();
    };
    let Some(ttl) = call
        .args
        .get(1)
        .and_then(|arg| std::str::from_utf8(arg).ok()?.parse::<u64>().ok())
    else {
        return few();
    };
    match store.get(key) {
        Err(text) => Reply::Error(text.to_owned()),
        Ok(None) => Reply::Int(-1),
        Ok(Some(held)) if held != *token => Reply::Int(0),
        Ok(Some(_)) => {
            let left = store.pttl(key);
            if u64::try_from(left).is_ok_and(|left| left < ttl) {
                store.pexpire(key, Duration::from_millis(ttl));
            }
            Reply::Int(1)
        }
    }
}

/// Also what `DELIFEQ` and `DELEX … IFEQ` do.
pub(super) fn compare_and_delete(store: &mut Store, call: &ScriptCall) -> Reply {
    let (Some(key), Some(token)) = (call.keys.first(), call.args.first()) else {
        return few();
    };
    match store.get(key) {
        Err(text) => Reply::Error(text.to_owned()),
        Ok(held) => Reply::Int(i64::from(held.as_ref() == Some(token) && store.del(key))),
    }
}

fn few() -> Reply {
    Reply::Error("ERR the script was called with too few keys or arguments".to_owned())
}
