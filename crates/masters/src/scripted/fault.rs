//! What a scripted master does instead of the honest thing, and when.

use std::time::Duration;

use crate::resp::Reply;

/// A dishonest way to treat a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this error line, such as `BUSY …`, `LOADING …`, `NOPERM …`.
    Error(String),
    /// Answers with this instead.
    Answer(Reply),
    /// Sends these bytes instead of an answer.
    Garbage(Vec<u8>),
    /// Does the effect, sends the first half of the answer, and never says anything again on this connection.
    HalfThenSilence,
    /// Does the effect, sends the first half of the answer, and closes the connection.
    HalfThenCut,
    /// Never says anything again on this connection.
    Silence,
    /// Closes the connection.
    Cut,
    /// Waits before it does the effect, or after that with [`FaultRule::after_effect`]; later commands on the connection wait, too.
    Delay(Duration),
}

impl Fault {
    /// An error line, from any text.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }
}

/// When a fault strikes.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// In capitals; none for every command.
    command: Option<String>,
    containing: Option<Vec<u8>>,
    skip: u64,
    times: u64,
    pub(super) after_effect: bool,
    pub(super) fault: Fault,
    pub(super) struck: u64,
}

impl FaultRule {
    /// Strikes this command always, in place of its effect. EVAL stands for EVALSHA, too.
    #[must_use]
    pub fn on(command: &str, fault: Fault) -> Self {
        Self {
            command: Some(command.to_ascii_uppercase()),
            ..Self::any(fault)
        }
    }

    /// Strikes every command, the first HELLO included.
    #[must_use]
    pub fn any(fault: Fault) -> Self {
        Self {
            command: None,
            containing: None,
            skip: 0,
            times: u64::MAX,
            after_effect: false,
            fault,
            struck: 0,
        }
    }

    /// Strikes only where an argument, or the text of the script that is run, contains these bytes.
    #[must_use]
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.containing = Some(bytes.as_ref().to_vec());
        self
    }

    /// Strikes this many times, then no more.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Lets this many pass first.
    #[must_use]
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Does the effect first: the command was carried out, and only its answer is spoilt.
    #[must_use]
    pub fn after_effect(mut self) -> Self {
        self.after_effect = true;
        self
    }

    /// Whether it strikes now; counts what it lets pass and what it strikes.
    pub(super) fn strikes(&mut self, name: &str, args: &[Vec<u8>], script: Option<&str>) -> bool {
        let named = self
            .command
            .as_ref()
            .is_none_or(|wanted| wanted == name || (wanted == "EVAL" && name == "EVALSHA"));
        if !named || !self.contained(args, script) || self.struck >= self.times {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.struck += 1;
        true
    }

    fn contained(&self, args: &[Vec<u8>], script: Option<&str>) -> bool {
        let Some(wanted) = self
            .containing
            .as_deref()
            .filter(|wanted| !wanted.is_empty())
        else {
            return true;
        };
        let has = |bytes: &[u8]| bytes.windows(wanted.len()).any(|part| part == wanted);
        args.iter().any(|arg| has(arg)) || script.is_some_and(|text| has(text.as_bytes()))
    }
}

/// How a new connection is treated before any command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectFault {
    /// Accepted and closed.
    Close,
    /// Accepted, and never answered.
    Silence,
    /// Greeted with these bytes, and never answered.
    Garbage(Vec<u8>),
}
