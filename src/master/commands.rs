//! The commands a master gets, and how its answers are read.
//!
//! Invariants:
//! 1. A lone acquisition is exactly `SET key token NX PX ttl` (R6).
//! 2. Every delete compares, and is one self-contained command (R9, R21): a native one where the
//!    server has it, else `EVAL` with its text, never a hash the server may not know.
//! 3. An extension never brings an expiry nearer, and creates nothing (R16).

use super::{Fault, FaultKind};
use crate::quorum::{Deletion, Extension, Token, Vote};
use redis::{Cmd, Value};
use std::sync::Arc;

/// A resource's key, shared by all that is sent for it.
pub(crate) type Key = Arc<[u8]>;

/// The command by which a server compares and deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Abilities {
    /// `DELIFEQ key value`, Valkey 9.
    DelIfEq,
    /// `DELEX key IFEQ value`, Redis 8.4.
    DelEx,
    /// A script, any server.
    #[default]
    Script,
}

const DELETE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// 1: ours and lives long enough; 0: somebody else's; -1: missing.
const EXTEND: &str = "local v=redis.call('GET',KEYS[1]) \
    if v==ARGV[1] then \
    local t=redis.call('PTTL',KEYS[1]) \
    if t>=0 and t<tonumber(ARGV[2]) then redis.call('PEXPIRE',KEYS[1],ARGV[2]) end \
    return 1 end \
    if v then return 0 end return -1";

/// `SET key token NX PX ttl`, which acquires, and which heals.
pub(crate) fn set(key: &[u8], token: &Token, ttl_ms: u64) -> Cmd {
    let mut cmd = Cmd::with_capacity(6, key.len() + 64);
    cmd.arg("SET")
        .arg(key)
        .arg(token.as_str())
        .arg("NX")
        .arg("PX")
        .arg(ttl_ms);
    cmd
}

/// Compare and delete.
pub(crate) fn delete(abilities: Abilities, key: &[u8], token: &Token) -> Cmd {
    let mut cmd = Cmd::with_capacity(5, key.len() + 192);
    match abilities {
        Abilities::DelIfEq => cmd.arg("DELIFEQ").arg(key).arg(token.as_str()),
        Abilities::DelEx => cmd.arg("DELEX").arg(key).arg("IFEQ").arg(token.as_str()),
        Abilities::Script => cmd
            .arg("EVAL")
            .arg(DELETE)
            .arg(1)
            .arg(key)
            .arg(token.as_str()),
    };
    cmd
}

/// The compare-and-delete of one token, built once for each kind of server that asks for it.
pub(crate) struct Deletes<'a> {
    key: &'a [u8],
    token: &'a Token,
    built: [Option<Arc<Cmd>>; 3],
}

impl<'a> Deletes<'a> {
    pub(crate) fn new(key: &'a [u8], token: &'a Token) -> Self {
        Self {
            key,
            token,
            built: [None, None, None],
        }
    }

    /// The command for a server that can do this.
    pub(crate) fn for_server(&mut self, abilities: Abilities) -> Arc<Cmd> {
        let slot = match abilities {
            Abilities::DelIfEq => &mut self.built[0],
            Abilities::DelEx => &mut self.built[1],
            Abilities::Script => &mut self.built[2],
        };
        Arc::clone(slot.get_or_insert_with(|| Arc::new(delete(abilities, self.key, self.token))))
    }
}

/// Compare and push the expiry.
pub(crate) fn extend(key: &[u8], token: &Token, ttl_ms: u64) -> Cmd {
    let mut cmd = Cmd::with_capacity(6, key.len() + 320);
    cmd.arg("EVAL")
        .arg(EXTEND)
        .arg(1)
        .arg(key)
        .arg(token.as_str())
        .arg(ttl_ms);
    cmd
}

/// Any other command, by its words.
pub(crate) fn ask(words: &[&[u8]]) -> Cmd {
    let mut cmd = Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    cmd
}

/// How answers are read.
pub(crate) mod parse {
    use super::{Deletion, Extension, Fault, FaultKind, Value, Vote};

    /// The vote in the answer to [`set`](super::set).
    pub(crate) fn set(answer: &Result<Value, Fault>) -> Result<Vote, Fault> {
        match answer {
            Ok(Value::Okay) => Ok(Vote::Granted),
            Ok(Value::Nil) => Ok(Vote::Denied),
            Ok(other) => Err(unexpected("SET", other)),
            Err(fault) => Err(fault.clone()),
        }
    }

    /// What the answer to [`delete`](super::delete) says.
    pub(crate) fn delete(answer: &Result<Value, Fault>) -> Result<Deletion, Fault> {
        match answer {
            Ok(Value::Int(1)) => Ok(Deletion::Deleted),
            Ok(Value::Int(0)) => Ok(Deletion::NotOurs),
            Ok(other) => Err(unexpected("a delete", other)),
            // A key of another type is certainly not our lock.
            Err(fault) if fault.kind() == FaultKind::WrongType => Ok(Deletion::NotOurs),
            Err(fault) => Err(fault.clone()),
        }
    }

    /// What the answer to [`extend`](super::extend) says.
    pub(crate) fn extend(answer: &Result<Value, Fault>) -> Result<Extension, Fault> {
        match answer {
            Ok(Value::Int(1)) => Ok(Extension::Extended),
            Ok(Value::Int(0)) => Ok(Extension::Foreign),
            Ok(Value::Int(-1)) => Ok(Extension::Missing),
            Ok(other) => Err(unexpected("an extension", other)),
            Err(fault) if fault.kind() == FaultKind::WrongType => Ok(Extension::Foreign),
            Err(fault) => Err(fault.clone()),
        }
    }

    fn unexpected(what: &str, answer: &Value) -> Fault {
        let kind = match answer {
            Value::Int(number) => format!("the number {number}"),
            Value::SimpleString(_) | Value::BulkString(_) => "a string".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            _ => "something else".to_owned(),
        };
        Fault::with_detail(
            FaultKind::Protocol,
            format!("{kind} is no answer to {what}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(cmd: &Cmd) -> Vec<String> {
        cmd.args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn an_acquisition_is_the_plain_command() {
        let token = Token::from_text("t");
        assert_eq!(
            words(&set(b"k", &token, 30_000)),
            ["SET", "k", "t", "NX", "PX", "30000"]
        );
    }

    #[test]
    fn every_delete_compares() {
        let token = Token::from_text("t");
        for abilities in [Abilities::DelIfEq, Abilities::DelEx, Abilities::Script] {
            let words = words(&delete(abilities, b"k", &token));
            assert_eq!(words.last().map(String::as_str), Some("t"), "{words:?}");
            assert!(["DELIFEQ", "DELEX", "EVAL"].contains(&words[0].as_str()));
        }
    }

    #[test]
    fn answers_of_another_shape_are_faults() {
        assert!(parse::set(&Ok(Value::Int(1))).is_err());
        assert!(parse::delete(&Ok(Value::Nil)).is_err());
        assert!(parse::extend(&Ok(Value::Int(7))).is_err());
    }
}
