//! What a master's failure means: one type, told apart by kind, kept with its cause.
//!
//! Invariant: a fault never holds a password. It is built from server answers, operating system
//! errors and our own words, never from a connection URL (R29).

use crate::quorum::{Mending, Vote};
use std::fmt;
use std::sync::Arc;

/// Why one master gave no usable answer.
///
/// The variants a server answers with are named after its error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// It was not connected yet when it was asked.
    NotConnected,
    /// The connection was refused, or the host or path could not be reached or found.
    Unreachable,
    /// The connection broke before the answer came.
    ConnectionLost,
    /// No answer came within the per-master timeout.
    Timeout,
    /// Earlier requests are unanswered for so long, or so many, that nothing more is sent.
    Unresponsive,
    /// The server wants another user or password (`NOAUTH`, `WRONGPASS`).
    Auth,
    /// The user has no right to a command or key (`NOPERM`).
    NoPermission,
    /// The server is loading its data (`LOADING`).
    Loading,
    /// The server takes no writes (`READONLY`).
    ReadOnly,
    /// The server's memory is full (`OOM`).
    OutOfMemory,
    /// The server refuses writes since it cannot persist them (`MISCONF`).
    Misconfigured,
    /// The server runs a script that does not end (`BUSY`).
    Busy,
    /// The key holds another type (`WRONGTYPE`).
    WrongType,
    /// The server is a replica, which is no master.
    Replica,
    /// The server is the same as another entry's.
    Duplicate,
    /// The server is older than Redis 6.2.
    TooOld,
    /// What came back is not the protocol, or not an answer to what was asked.
    Protocol,
    /// An earlier undo of this client on this resource is still unanswered elsewhere.
    BehindOwnUndo,
    /// The server answered with another error.
    Server,
}

impl FaultKind {
    /// Whether waiting can mend it (R14).
    pub fn mending(self) -> Mending {
        match self {
            Self::Auth | Self::NoPermission | Self::WrongType | Self::Duplicate | Self::TooOld => {
                Mending::Lasting
            }
            Self::NotConnected
            | Self::Unreachable
            | Self::ConnectionLost
            | Self::Timeout
            | Self::Unresponsive
            | Self::Loading
            | Self::ReadOnly
            | Self::OutOfMemory
            | Self::Misconfigured
            | Self::Busy
            | Self::Replica
            | Self::Protocol
            | Self::BehindOwnUndo
            | Self::Server => Mending::Passing,
        }
    }

    /// The kind in few words.
    fn words(self) -> &'static str {
        match self {
            Self::NotConnected => "not connected yet",
            Self::Unreachable => "cannot be reached",
            Self::ConnectionLost => "the connection broke",
            Self::Timeout => "no answer in time",
            Self::Unresponsive => "does not answer earlier requests",
            Self::Auth => "wants another user or password",
            Self::NoPermission => "the user has no right to this command or key",
            Self::Loading => "is loading its data",
            Self::ReadOnly => "takes no writes",
            Self::OutOfMemory => "is out of memory",
            Self::Misconfigured => "cannot persist and refuses writes",
            Self::Busy => "is busy with a script",
            Self::WrongType => "the key holds another type",
            Self::Replica => "is a replica",
            Self::Duplicate => "is the same server as another entry",
            Self::TooOld => "is too old",
            Self::Protocol => "does not speak the protocol",
            Self::BehindOwnUndo => "an earlier undo of this client is unanswered",
            Self::Server => "answered with an error",
        }
    }
}

/// Why one master gave no usable answer, with what it said.
#[derive(Clone)]
pub struct Fault {
    kind: FaultKind,
    detail: Option<Arc<str>>,
    source: Option<Arc<redis::RedisError>>,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            detail: None,
            source: None,
        }
    }

    pub(crate) fn with_detail(kind: FaultKind, detail: impl AsRef<str>) -> Self {
        Self {
            kind,
            detail: Some(Arc::from(detail.as_ref())),
            source: None,
        }
    }

    /// Reads an error of redis-rs: the server's answer, or what became of the connection.
    pub(crate) fn from_redis(error: redis::RedisError) -> Self {
        let kind = kind_of(&error);
        let detail = error.detail().map(|detail| match error.code() {
            Some(code) => format!("{code} {detail}"),
            None => detail.to_owned(),
        });
        // One line, whatever a server says: errors are read as one paragraph.
        let detail = one_line(&detail.unwrap_or_else(|| error.to_string()));
        Self {
            kind,
            detail: Some(Arc::from(detail)),
            source: Some(Arc::new(error)),
        }
    }

    /// The same fault without this secret, which a server may have repeated (R29).
    pub(crate) fn without(mut self, secret: &str) -> Self {
        let contains = |text: &str| !secret.is_empty() && text.contains(secret);
        if let Some(detail) = self.detail.take() {
            let told = if contains(&detail) {
                detail.replace(secret, "***").into()
            } else {
                detail
            };
            self.detail = Some(told);
        }
        let repeated = |source: &Arc<redis::RedisError>| contains(&format!("{source} {source:?}"));
        if self.source.as_ref().is_some_and(repeated) {
            self.source = None;
        }
        self
    }

    /// Which fault it is.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    pub(crate) fn vote(&self) -> Vote {
        Vote::Failed(self.kind.mending())
    }

    /// Whether a server said this in answer to the command, so that the command did nothing.
    pub(crate) fn is_server_answer(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|error| error.code().is_some())
            && self.kind != FaultKind::ConnectionLost
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.words())?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("kind", &self.kind)
            .field("detail", &self.detail)
            .finish()
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

fn kind_of(error: &redis::RedisError) -> FaultKind {
    if let Some(kind) = error
        .code()
        .and_then(|code| kind_of_code(code, error.detail()))
    {
        return kind;
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => FaultKind::Auth,
        // redis-rs tells an end of the connection within an answer as an answer it cannot read.
        redis::ErrorKind::Parse if error.to_string().contains("end of input") => {
            FaultKind::ConnectionLost
        }
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => FaultKind::Protocol,
        _ if error.is_timeout() => FaultKind::Timeout,
        _ if error.is_connection_refusal() => FaultKind::Unreachable,
        _ if error.is_connection_dropped() => FaultKind::ConnectionLost,
        _ if error.is_io_error() => FaultKind::Unreachable,
        _ => FaultKind::Server,
    }
}

fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Reads a server's error code; some say more in the text that follows it.
fn kind_of_code(code: &str, detail: Option<&str>) -> Option<FaultKind> {
    let detail = detail.unwrap_or_default();
    Some(match code {
        "NOAUTH" | "WRONGPASS" => FaultKind::Auth,
        "NOPERM" => FaultKind::NoPermission,
        // A script that runs into a missing right answers with a plain ERR.
        "ERR" if detail.contains("user executing the script can't") => FaultKind::NoPermission,
        "ERR" if detail.contains("ACL failure in script") => FaultKind::NoPermission,
        "ERR" if detail.contains("NOPERM") => FaultKind::NoPermission,
        "LOADING" => FaultKind::Loading,
        "READONLY" => FaultKind::ReadOnly,
        "OOM" => FaultKind::OutOfMemory,
        "MISCONF" => FaultKind::Misconfigured,
        "BUSY" => FaultKind::Busy,
        "WRONGTYPE" => FaultKind::WrongType,
        // Older servers hand on the error inside a script as text.
        "ERR" if detail.contains("WRONGTYPE") => FaultKind::WrongType,
        _ => return None,
    })
}
