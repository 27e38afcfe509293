//! Where a master is, and how its address is shown without its secrets (R29).

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use std::fmt;
use std::time::Duration;

/// How long an idle connection waits before it probes its peer, and between probes.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged before the kernel gives the connection up.
#[cfg(any(target_os = "android", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Where one master is, and how to log in there.
///
/// Made from a URL (`redis://`, `rediss://`, `valkey://`, `unix://`, with user, password and
/// database where they are needed) or from redis-rs's own [`redis::ConnectionInfo`], which can
/// say what a URL cannot. A URL that cannot be read is reported when the handle is built.
#[derive(Clone)]
pub struct MasterAddress(Result<ConnectionInfo, String>);

impl MasterAddress {
    /// What to connect to, or why that cannot be told.
    pub(crate) fn resolve(self) -> Result<(ConnectionInfo, String), String> {
        let info = self.0?;
        if !info.addr().is_supported() {
            return Err(match info.addr() {
                ConnectionAddr::TcpTls { .. } => {
                    "TLS is asked for, but quorumlock was built without its feature 'tls'"
                        .to_owned()
                }
                _ => "this kind of address is not supported on this system".to_owned(),
            });
        }
        let shown = match info.addr() {
            ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
            addr => addr.to_string(),
        };
        Ok((settings(info), shown))
    }
}

/// The socket settings every connection gets: no delay, keep-alive, a bound on silence.
fn settings(info: ConnectionInfo) -> ConnectionInfo {
    let mut tcp = info.tcp_settings().clone().set_nodelay(true);
    if tcp.keepalive().is_none() {
        let keepalive = redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let keepalive = keepalive.with_interval(KEEPALIVE);
        tcp = tcp.set_keepalive(keepalive);
    }
    #[cfg(any(target_os = "android", target_os = "linux"))]
    if tcp.user_timeout().is_none() {
        tcp = tcp.set_user_timeout(USER_TIMEOUT);
    }
    // RESP3 tells at once when a connection ends, also while it is idle.
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    info.set_tcp_settings(tcp).set_redis_settings(redis)
}

impl From<&str> for MasterAddress {
    fn from(url: &str) -> Self {
        if !url.contains("://") {
            // The text is not repeated: what is no URL may be a password, or contain one.
            return Self(Err("this is no URL; write redis://HOST:PORT".to_owned()));
        }
        // redis-rs's own error is left out: it could repeat the URL with its password.
        Self(url.into_connection_info().map_err(|_| {
            "this is no URL of a Redis or Valkey server; write redis://[USER:PASSWORD@]HOST:PORT[/DB], \
             rediss://… for TLS, or unix:///PATH"
                .to_owned()
        }))
    }
}

impl From<String> for MasterAddress {
    fn from(url: String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<&String> for MasterAddress {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<ConnectionInfo> for MasterAddress {
    fn from(info: ConnectionInfo) -> Self {
        Self(Ok(info))
    }
}

impl fmt::Debug for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(info) => write!(f, "MasterAddress({})", info.addr()),
            Err(reason) => write!(f, "MasterAddress(unreadable: {reason})"),
        }
    }
}

/// Whether two addresses name the same place, whatever user or database they ask for.
pub(crate) fn same_place(one: &ConnectionInfo, other: &ConnectionInfo) -> bool {
    place(one.addr()) == place(other.addr())
}

fn place(addr: &ConnectionAddr) -> (String, u16) {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host.to_ascii_lowercase(), *port)
        }
        ConnectionAddr::Unix(path) => (path.display().to_string(), 0),
        other => (other.to_string(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for url in [
            "redis://u:s3cret@host:1234/2",
            "rediss://:s3cret@host",
            "u:s3cret@host",
            "redis://u:s3cret@ho st",
            "http://u:s3cret@host",
            "redis://u:s3cret@host:999999",
        ] {
            let address = MasterAddress::from(url);
            assert!(!format!("{address:?}").contains("s3cret"), "{address:?}");
            match address.resolve() {
                Ok((_, shown)) => assert!(!shown.contains("s3cret"), "{shown}"),
                Err(reason) => assert!(!reason.contains("s3cret"), "{reason}"),
            }
        }
    }

    #[test]
    fn a_place_is_the_same_whoever_logs_in_there() {
        let info = |url: &str| MasterAddress::from(url).resolve().unwrap().0;
        let check = |one, other, same| assert_eq!(same_place(&info(one), &info(other)), same);
        check("redis://a:1", "redis://u:p@A:1/3", true);
        check("redis://a:1", "redis://a:2", false);
        check("unix:///tmp/x", "unix:///tmp/y", false);
    }
}
