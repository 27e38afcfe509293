//! What went wrong, once: its kind for programs, its status for scripts, its paragraph for people.

use quorumlock::{Answer, Error, ErrorKind, MasterAnswer};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::render::redact;

/// A verb that did not do what was asked.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    pub(crate) exit: Exit,
    pub(crate) message: String,
    masters: Vec<Value>,
}

impl Failure {
    /// Input that is refused.
    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Self::new("bad_input", Exit::BadInput, message)
    }

    /// A command line that cannot be read.
    pub(crate) fn usage(message: &str) -> Self {
        Self::new("usage", Exit::BadInput, message)
    }

    /// The lock is no longer ours.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new("lost", Exit::Lost, message)
    }

    /// The system refused something that is not about the lock.
    pub(crate) fn system(what: &str, error: &std::io::Error) -> Self {
        Self::new("system", Exit::Other, format!("{what}: {error}"))
    }

    /// A signal ended the wait.
    pub(crate) fn signal(number: i32) -> Self {
        let message = format!("ended by signal {number}; nothing is held");
        Self::new("signal", Exit::Signal(number), message)
    }

    /// Anything else.
    pub(crate) fn new(kind: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            kind,
            exit,
            message: message.into(),
            masters: Vec::new(),
        }
    }

    /// The same with another status.
    pub(crate) fn with_conflict_exit(self, status: Option<u8>) -> Self {
        match (self.exit, status) {
            (Exit::NotAcquired, Some(status)) => Failure {
                exit: Exit::Status(status),
                ..self
            },
            _ => self,
        }
    }

    /// `{"error": {kind, exit, message, masters}}`.
    pub(crate) fn to_json(&self) -> Value {
        json!({"error": {
            "kind": self.kind,
            "exit": self.exit.code(),
            "message": redact(&self.message),
            "masters": self.masters,
        }})
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (kind, exit) = classify(&error);
        Failure {
            kind,
            exit,
            message: error.to_string(),
            masters: error.masters().iter().map(master).collect(),
        }
    }
}

/// The kind's name in JSON, and the status: whether somebody was in the way decides between 75 and 69.
fn classify(error: &Error) -> (&'static str, Exit) {
    let contended = if error.denied() > 0 {
        Exit::NotAcquired
    } else {
        Exit::Unavailable
    };
    match error.kind() {
        ErrorKind::Held => ("held", Exit::NotAcquired),
        ErrorKind::Unreachable => ("unreachable", contended),
        ErrorKind::GaveUp => ("gave_up", contended),
        ErrorKind::TooSlow => ("too_slow", Exit::Unavailable),
        ErrorKind::Lost => ("lost", Exit::Lost),
        ErrorKind::BadInput => ("bad_input", Exit::BadInput),
        ErrorKind::BadConfiguration => ("bad_configuration", Exit::BadInput),
        ErrorKind::NotALock => ("not_a_lock", Exit::Other),
        ErrorKind::Closed => ("closed", Exit::Other),
        _ => ("other", Exit::Other),
    }
}

/// One master's answer: `{index, address, answer, detail}`.
pub(crate) fn master(master: &MasterAnswer) -> Value {
    let (answer, detail) = match master.answer() {
        Answer::Granted => ("granted", None),
        Answer::Denied => ("denied", None),
        Answer::Unanswered => ("unanswered", None),
        Answer::Failed(fault) => ("failed", Some(redact(&fault.to_string()))),
        _ => ("unknown", None),
    };
    json!({"index": master.index(), "address": master.address(), "answer": answer, "detail": detail})
}
