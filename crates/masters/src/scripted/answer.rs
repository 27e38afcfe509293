//! The honest answers of a scripted master, command by command.

use std::time::Duration;

use super::scripts::{ScriptCall, compare_and_delete};
use super::world::World;
use crate::clock::wall_clock;
use crate::resp::Reply;

/// Carries a command out; several replies only for SUBSCRIBE and UNSUBSCRIBE.
pub(super) fn answer(
    world: &mut World,
    connection: u64,
    name: &str,
    args: &[Vec<u8>],
) -> Vec<Reply> {
    match name {
        "SUBSCRIBE" | "UNSUBSCRIBE" => subscribe(world, connection, name == "SUBSCRIBE", args),
        "HELLO" => vec![hello(world, connection, args)],
        _ => vec![
            connection_command(world, connection, name, args)
                .unwrap_or_else(|| key_command(world, name, args)),
        ],
    }
}

fn connection_command(
    world: &mut World,
    connection: u64,
    name: &str,
    args: &[Vec<u8>],
) -> Option<Reply> {
    let word = |index: usize| String::from_utf8_lossy(arg(args, index)).to_ascii_uppercase();
    Some(match name {
        "PING" if args.len() > 1 => Reply::bulk(arg(args, 1)),
        "PING" => Reply::Simple("PONG".to_owned()),
        "ECHO" => Reply::bulk(arg(args, 1)),
        "AUTH" | "SELECT" | "QUIT" | "RESET" | "READONLY" => Reply::ok(),
        "CLIENT" if word(1) == "ID" => Reply::Int(i64::try_from(connection).unwrap_or(i64::MAX)),
        "CLIENT" => Reply::ok(),
        "INFO" => Reply::bulk(world.info_text(&word(1).to_ascii_lowercase())),
        "COMMAND" if word(1) == "INFO" => Reply::Array(
            args.iter()
                .skip(2)
                .map(|name| command_info(world, name))
                .collect(),
        ),
        "COMMAND" | "CONFIG" => Reply::Array(Vec::new()),
        "TIME" => {
            let now = wall_clock();
            Reply::Array(vec![
                Reply::bulk(now.as_secs().to_string()),
                Reply::bulk(now.subsec_micros().to_string()),
            ])
        }
        "SCRIPT" => world.scripts.manage(args),
        "EVAL" | "EVALSHA" => world.scripts.run(&mut world.store, name, args),
        "PUBLISH" => Reply::Int(world.publish(arg(args, 1), arg(args, 2))),
        "PUBSUB" => {
            let channels: std::collections::BTreeSet<_> = world
                .connections
                .values()
                .flat_map(|peer| peer.channels.iter().cloned())
                .collect();
            Reply::Array(channels.into_iter().map(Reply::Bulk).collect())
        }
        _ => return None,
    })
}

fn key_command(world: &mut World, name: &str, args: &[Vec<u8>]) -> Reply {
    let store = &mut world.store;
    let key = arg(args, 1);
    match name {
        "SET" => set(world, args).unwrap_or_else(Reply::Error),
        "GET" => match store.get(key) {
            Ok(value) => value.map_or(Reply::Nil, Reply::Bulk),
            Err(text) => Reply::Error(text.to_owned()),
        },
        "PTTL" => Reply::Int(store.pttl(key)),
        "TYPE" => {
            let kind = if !store.exists(key) {
                "none"
            } else if store.get(key).is_ok() {
                "string"
            } else {
                "list"
            };
            Reply::Simple(kind.to_owned())
        }
        "EXISTS" => Reply::Int(
            args.iter()
                .skip(1)
                .map(|key| i64::from(store.exists(key)))
                .sum(),
        ),
        "DEL" | "UNLINK" => Reply::Int(
            args.iter()
                .skip(1)
                .map(|key| i64::from(store.del(key)))
                .sum(),
        ),
        "PEXPIRE" => number(args, 2).map_or_else(Reply::Error, |ttl| {
            Reply::Int(i64::from(store.pexpire(key, ttl)))
        }),
        "INCR" => store
            .incr(key, 1)
            .map_or_else(|text| Reply::Error(text.to_owned()), Reply::Int),
        "KEYS" => Reply::Array(store.keys().into_iter().map(Reply::Bulk).collect()),
        "DBSIZE" => Reply::Int(i64::try_from(store.keys().len()).unwrap_or(i64::MAX)),
        "FLUSHALL" | "FLUSHDB" => {
            store.clear();
            Reply::ok()
        }
        "DELIFEQ" if world.delifeq => compare_and_delete(store, &call(key, arg(args, 2))),
        "DELEX" if world.delex && arg(args, 2).eq_ignore_ascii_case(b"IFEQ") => {
            compare_and_delete(store, &call(key, arg(args, 3)))
        }
        "DELEX" if world.delex => Reply::Int(i64::from(store.del(key))),
        _ => Reply::Error(format!(
            "ERR unknown command '{name}', with args beginning with: "
        )),
    }
}

/// SET with NX, XX, GET, PX and EX; other options are syntax errors, as on a server that lacks them.
fn set(world: &mut World, args: &[Vec<u8>]) -> Result<Reply, String> {
    let (key, value) = (arg(args, 1), arg(args, 2));
    let (mut ttl, mut wanted, mut get) = (None, None, false);
    let mut at = 3;
    while let Some(option) = args.get(at) {
        at += 1;
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => wanted = Some(false),
            b"XX" => wanted = Some(true),
            b"GET" => get = true,
            unit @ (b"PX" | b"EX") => {
                let time = number(args, at)?;
                ttl = Some(if unit == b"PX" {
                    time
                } else {
                    time.saturating_mul(1000)
                });
                at += 1;
            }
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    if args.len() < 3 {
        return Err("ERR wrong number of arguments for 'set' command".to_owned());
    }
    if ttl == Some(Duration::ZERO) {
        return Err("ERR invalid expire time in 'set' command".to_owned());
    }
    let old = if get {
        world.store.get(key)?.map_or(Reply::Nil, Reply::Bulk)
    } else {
        Reply::ok()
    };
    if wanted.is_some_and(|there| there != world.store.exists(key)) {
        return Ok(if get { old } else { Reply::Nil });
    }
    world.store.set(key, value, ttl);
    Ok(old)
}

fn hello(world: &mut World, connection: u64, args: &[Vec<u8>]) -> Reply {
    let resp3 = match arg(args, 1) {
        b"3" => true,
        b"2" => false,
        b"" => world
            .connections
            .get(&connection)
            .is_some_and(|peer| peer.resp3),
        _ => return Reply::Error("NOPROTO unsupported protocol version".to_owned()),
    };
    if let Some(peer) = world.connections.get_mut(&connection) {
        peer.resp3 = resp3;
    }
    let version = world.info_field("redis_version");
    let role = if world.info_field("role") == "slave" {
        "replica"
    } else {
        "master"
    };
    let id = i64::try_from(connection).unwrap_or(i64::MAX);
    let fields = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(version)),
        ("proto", Reply::Int(if resp3 { 3 } else { 2 })),
        ("id", Reply::Int(id)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk(role)),
        ("modules", Reply::Array(Vec::new())),
    ];
    Reply::Map(
        fields
            .into_iter()
            .map(|(field, value)| (Reply::bulk(field), value))
            .collect(),
    )
}

fn subscribe(world: &mut World, connection: u64, join: bool, args: &[Vec<u8>]) -> Vec<Reply> {
    let Some(peer) = world.connections.get_mut(&connection) else {
        return Vec::new();
    };
    let named: Vec<_> = if args.len() > 1 {
        args.get(1..).unwrap_or_default().to_vec()
    } else {
        peer.channels.iter().cloned().collect()
    };
    let word = if join { "subscribe" } else { "unsubscribe" };
    let mut replies = Vec::new();
    for channel in named {
        if join {
            peer.channels.insert(channel.clone())
        } else {
            peer.channels.remove(&channel)
        };
        let count = i64::try_from(peer.channels.len()).unwrap_or(i64::MAX);
        replies.push(Reply::Push(vec![
            Reply::bulk(word),
            Reply::Bulk(channel),
            Reply::Int(count),
        ]));
    }
    if replies.is_empty() {
        replies.push(Reply::Push(vec![
            Reply::bulk(word),
            Reply::Nil,
            Reply::Int(0),
        ]));
    }
    replies
}

fn command_info(world: &World, name: &[u8]) -> Reply {
    let known = match name.to_ascii_uppercase().as_slice() {
        b"DELIFEQ" => world.delifeq,
        b"DELEX" => world.delex,
        _ => true,
    };
    if !known {
        return Reply::Nil;
    }
    let lists = || Reply::Array(Vec::new());
    Reply::Array(vec![
        Reply::bulk(name.to_ascii_lowercase()),
        Reply::Int(-1),
        lists(),
        Reply::Int(1),
        Reply::Int(1),
        Reply::Int(1),
    ])
}

fn call(key: &[u8], token: &[u8]) -> ScriptCall {
    ScriptCall {
        keys: vec![key.to_vec()],
        args: vec![token.to_vec()],
    }
}

fn arg(args: &[Vec<u8>], index: usize) -> &[u8] {
    args.get(index).map(Vec::as_slice).unwrap_or_default()
}

/// A time in milliseconds.
fn number(args: &[Vec<u8>], index: usize) -> Result<Duration, String> {
    let number = std::str::from_utf8(arg(args, index))
        .ok()
        .and_then(|text| text.parse::<i64>().ok());
    let number = number.ok_or("ERR value is not an integer or out of range")?;
    u64::try_from(number)
        .map(Duration::from_millis)
        .map_err(|_| "ERR invalid expire time in 'set' command".to_owned())
}
