//! One request as it was seen on its way to a master.

use std::time::Duration;

/// One request, as the relay or the scripted master received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Grows by one with every request, over all connections.
    pub seq: u64,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// When its last byte arrived, since the relay or the master started.
    pub at: Duration,
    /// The command name and its arguments.
    pub args: Vec<Vec<u8>>,
}

impl Request {
    /// The command's name in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        self.args
            .first()
            .map(|name| String::from_utf8_lossy(name).to_ascii_uppercase())
            .unwrap_or_default()
    }

    /// Whether any argument contains these bytes.
    #[must_use]
    pub fn mentions(&self, bytes: impl AsRef<[u8]>) -> bool {
        let wanted = bytes.as_ref();
        self.args
            .iter()
            .any(|arg| arg.windows(wanted.len().max(1)).any(|part| part == wanted))
    }

    /// The arguments as readable text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        self.args
            .iter()
            .map(|arg| arg.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    }
}
