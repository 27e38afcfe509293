//! Connecting to one master, and learning who it is before it may vote.
//!
//! What a server forbids to ask (`INFO`, `HELLO`) is left unknown; what it answers is checked:
//! a replica, a server that is too old, a server that is another entry's (R2).

use super::{Abilities, Fault, FaultKind, ask};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, Value,
};
use std::time::Duration;

/// Requests that fit into redis-rs's queue of one connection.
///
/// Far above what a lane admits (see `lane.rs`), so that a request is queued by its first poll.
const QUEUE: usize = 65_536;

/// Who a server says it is; `None` where it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The random id of the server's process.
    pub(crate) run_id: Option<String>,
    /// `host:port` of the upstream, if the server is a replica.
    pub(crate) replica_of: Option<String>,
    /// Product and version, as `redis 7.0.15`.
    pub(crate) version: Option<String>,
    too_old: bool,
}

impl Identity {
    /// Why a server with this identity may not vote, if so.
    pub(crate) fn objection(&self) -> Option<Fault> {
        if let Some(upstream) = &self.replica_of {
            return Some(Fault::with_detail(
                FaultKind::Replica,
                format!("of {upstream}"),
            ));
        }
        if self.too_old {
            let version = self.version.as_deref().unwrap_or("unknown");
            return Some(Fault::with_detail(
                FaultKind::TooOld,
                format!("{version}; Redis 6.2 or later, or any Valkey, is needed"),
            ));
        }
        None
    }
}

/// A connection that was made, and who is at its end.
pub(crate) struct Connected {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) abilities: Abilities,
    pub(crate) identity: Identity,
}

/// Connects, logs in and asks who is there; `on_end` is called when the connection ends.
///
/// # Cancel safety
/// Dropping the future closes what was opened.
pub(crate) async fn connect(
    info: &ConnectionInfo,
    timeout: Duration,
    on_end: impl Fn() + Clone + Send + Sync + 'static,
) -> Result<Connected, Fault> {
    let has_password = info.redis_settings().password().is_some();
    let work = async {
        let mut connection = match open(info, timeout, on_end).await {
            // A server or proxy without HELLO: the older protocol does as well, only the end of
            // an idle connection is then noticed at the next request.
            Err(error) if lacks_resp3(&error) => open_resp2(info, timeout).await,
            // So does a Valkey that does not know HELLO and wants a password: one that knows it
            // would have judged the password. Logging in the older way tells the truth.
            Err(error) if has_password && error.code() == Some("NOAUTH") => {
                open_resp2(info, timeout).await
            }
            opened => opened,
        }
        .map_err(Fault::from_redis)?;
        let identity = identify(&mut connection).await?;
        let abilities = probe(&mut connection, &identity).await;
        Ok(Connected {
            connection,
            abilities,
            identity,
        })
    };
    let connected = tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(|_| Err(Fault::with_detail(FaultKind::Timeout, "while connecting")));
    // A server may answer a command that it does not know with its words, the password included.
    let secret = info.redis_settings().password().unwrap_or_default();
    connected.map_err(|fault| fault.without(secret))
}

fn config(timeout: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
}

async fn open(
    info: &ConnectionInfo,
    timeout: Duration,
    on_end: impl Fn() + Send + Sync + 'static,
) -> redis::RedisResult<MultiplexedConnection> {
    let config = config(timeout).set_push_sender(move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            on_end();
        }
        Ok::<(), ()>(())
    });
    Client::open(info.clone())?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn open_resp2(
    info: &ConnectionInfo,
    timeout: Duration,
) -> redis::RedisResult<MultiplexedConnection> {
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP2);
    let info = info.clone().set_redis_settings(redis);
    Client::open(info)?
        .get_multiplexed_async_connection_with_config(&config(timeout))
        .await
}

fn lacks_resp3(error: &redis::RedisError) -> bool {
    let text = error.to_string().to_ascii_lowercase();
    error.kind() == redis::ErrorKind::RESP3NotSupported
        || text.contains("unknown command") && text.contains("hello")
        || text.contains("noproto")
}

async fn identify(connection: &mut MultiplexedConnection) -> Result<Identity, Fault> {
    let server = info_section(connection, b"server").await?;
    let replication = info_section(connection, b"replication").await?;
    let mut identity = Identity {
        run_id: field(&server, "run_id"),
        ..Identity::default()
    };
    if field(&replication, "role").as_deref() == Some("slave") {
        let part = |name| field(&replication, name).unwrap_or_else(|| "?".to_owned());
        identity.replica_of = Some(format!("{}:{}", part("master_host"), part("master_port")));
    }
    if let Some(version) = field(&server, "valkey_version") {
        identity.version = Some(format!("valkey {version}"));
    } else if let Some(version) = field(&server, "redis_version") {
        identity.too_old = version_number(&version) < (6, 2);
        identity.version = Some(format!("redis {version}"));
    }
    Ok(identity)
}

/// A section of `INFO`; empty where the server forbids or does not know the command.
async fn info_section(
    connection: &mut MultiplexedConnection,
    name: &[u8],
) -> Result<String, Fault> {
    match send(connection, &[b"INFO", name]).await {
        Ok(Value::BulkString(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => Ok(text),
        Ok(_) => Err(Fault::with_detail(
            FaultKind::Protocol,
            "an unreadable answer to INFO",
        )),
        // Forbidden or unknown: a managed service may hide it, and the lock works without.
        Err(fault) if matches!(fault.kind(), FaultKind::NoPermission | FaultKind::Server) => {
            Ok(String::new())
        }
        // Loading or busy: it will say later; until then it could not vote anyway.
        Err(fault) => Err(fault),
    }
}

/// Finds the native compare-and-delete by trying it on a key of ours that is never set.
async fn probe(connection: &mut MultiplexedConnection, identity: &Identity) -> Abilities {
    let scratch: &[u8] = b"quorumlock:probe";
    let version = identity.version.as_deref().unwrap_or_default();
    // Servers that say they are too old for a command are not asked: it would count as an error
    // in their statistics at every connection.
    let hides = version.is_empty();
    let number = version
        .split(' ')
        .nth(1)
        .map(version_number)
        .unwrap_or_default();
    if (hides || version.starts_with("valkey") && number >= (9, 0))
        && matches!(
            send(connection, &[b"DELIFEQ", scratch, b"-"]).await,
            Ok(Value::Int(0))
        )
    {
        return Abilities::DelIfEq;
    }
    if (hides || version.starts_with("redis") && number >= (8, 4))
        && matches!(
            send(connection, &[b"DELEX", scratch, b"IFEQ", b"-"]).await,
            Ok(Value::Int(0))
        )
    {
        return Abilities::DelEx;
    }
    Abilities::Script
}

async fn send(connection: &mut MultiplexedConnection, words: &[&[u8]]) -> Result<Value, Fault> {
    connection
        .send_packed_command(&ask(words))
        .await
        .and_then(Value::extract_error)
        .map_err(Fault::from_redis)
}

fn field(section: &str, name: &str) -> Option<String> {
    section
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|value| value.trim().to_owned())
}

fn version_number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_whole() {
        let section = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n";
        assert_eq!(field(section, "run_id").as_deref(), Some("abc"));
        assert_eq!(field(section, "run").as_deref(), None);
        assert_eq!(version_number("7.0.15"), (7, 0));
        assert_eq!(version_number("odd"), (0, 0));
    }
}
