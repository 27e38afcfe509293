//! The one public error: which of the possible things it was, and each master's own answer.

use crate::answer::{Answer, MasterAnswer};
use crate::quorum::{BadInput, Loss};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes of a resource's name an error shows.
const SHOWN_NAME: usize = 80;

/// Which of the possible things went wrong (R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the resource.
    Held,
    /// No quorum of masters could be reached.
    Unreachable,
    /// A quorum took so long that too little of the TTL was left.
    TooSlow,
    /// The caller's own bound on waiting passed.
    GaveUp,
    /// The lock is no longer ours, or nobody can be sure that it is.
    Lost,
    /// The resource, TTL or token can never be right.
    BadInput,
    /// The list of masters or a setting can never be right.
    BadConfiguration,
    /// The key holds something that is no lock of anybody.
    NotALock,
    /// The handle was closed, or its watchdog has died.
    Closed,
}

/// Why an operation on a lock did not do what was asked.
///
/// [`kind`](Self::kind) says which of the possible things it was, a predicate answers each
/// question that a caller asks, and [`masters`](Self::masters) has every master's own answer.
/// It displays as one readable paragraph and contains no password.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    resource: Option<Arc<[u8]>>,
    masters: Vec<MasterAnswer>,
    cause: Cause,
    /// How long the caller waited and how many attempts that were, for a wait that is over.
    waited: Option<(Duration, u32)>,
}

#[derive(Clone, Debug)]
enum Cause {
    /// The masters' answers say it all.
    Answers,
    Input(BadInput),
    Loss(Loss),
    Text(Arc<str>),
}

impl Error {
    pub(crate) fn of_masters(
        kind: ErrorKind,
        resource: &Arc<[u8]>,
        masters: Vec<MasterAnswer>,
    ) -> Self {
        Self::new(kind, Some(Arc::clone(resource)), masters, Cause::Answers)
    }

    pub(crate) fn bad_input(input: BadInput) -> Self {
        Self::new(ErrorKind::BadInput, None, Vec::new(), Cause::Input(input))
    }

    pub(crate) fn configuration(text: impl AsRef<str>) -> Self {
        Self::text(ErrorKind::BadConfiguration, text)
    }

    pub(crate) fn closed(text: &str) -> Self {
        Self::text(ErrorKind::Closed, text)
    }

    pub(crate) fn lost(loss: Loss, resource: &Arc<[u8]>, masters: Vec<MasterAnswer>) -> Self {
        Self::new(
            ErrorKind::Lost,
            Some(Arc::clone(resource)),
            masters,
            Cause::Loss(loss),
        )
    }

    pub(crate) fn gave_up(mut self, waited: Duration, attempts: u32) -> Self {
        self.0.kind = ErrorKind::GaveUp;
        self.0.waited = Some((waited, attempts));
        self
    }

    fn text(kind: ErrorKind, text: impl AsRef<str>) -> Self {
        Self::new(
            kind,
            None,
            Vec::new(),
            Cause::Text(Arc::from(text.as_ref())),
        )
    }

    fn new(
        kind: ErrorKind,
        resource: Option<Arc<[u8]>>,
        masters: Vec<MasterAnswer>,
        cause: Cause,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            resource,
            masters,
            cause,
            waited: None,
        }))
    }

    /// Which of the possible things it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Every master's own answer to the last attempt, in the order of the list.
    ///
    /// Empty where no master was asked.
    pub fn masters(&self) -> &[MasterAnswer] {
        &self.0.masters
    }

    /// How many masters said that somebody else holds the lock.
    pub fn denied(&self) -> usize {
        self.count(|answer| matches!(answer, Answer::Denied))
    }

    /// How many masters gave no usable answer.
    pub fn failed(&self) -> usize {
        self.count(|answer| matches!(answer, Answer::Failed(_)))
    }

    /// How many masters must grant: more than half of the configured ones.
    pub fn quorum(&self) -> usize {
        crate::quorum::quorum_of(self.0.masters.len())
    }

    /// Whether somebody else holds the resource, as far as the last attempt could see.
    ///
    /// Also true for a wait that was given up ([`ErrorKind::GaveUp`]) because of a holder.
    pub fn is_held(&self) -> bool {
        match self.0.kind {
            ErrorKind::Held => true,
            ErrorKind::GaveUp => self.denied() > 0,
            _ => false,
        }
    }

    /// Whether no quorum of masters could be reached.
    pub fn is_unreachable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Unreachable => true,
            ErrorKind::GaveUp => self.failed() > self.0.masters.len() - self.quorum(),
            _ => false,
        }
    }

    /// Whether a quorum came too late for the TTL.
    pub fn is_too_slow(&self) -> bool {
        self.0.kind == ErrorKind::TooSlow
    }

    /// Whether the caller's own bound on waiting passed.
    pub fn is_gave_up(&self) -> bool {
        self.0.kind == ErrorKind::GaveUp
    }

    /// Whether the lock is no longer ours.
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }

    /// Whether the call itself was wrong, whatever the masters say.
    pub fn is_bad_input(&self) -> bool {
        self.0.kind == ErrorKind::BadInput
    }

    /// Whether the list of masters or a setting is wrong.
    pub fn is_bad_configuration(&self) -> bool {
        self.0.kind == ErrorKind::BadConfiguration
    }

    /// Whether the key holds something that is no lock of anybody.
    pub fn is_not_a_lock(&self) -> bool {
        self.0.kind == ErrorKind::NotALock
    }

    /// Whether the handle was closed.
    pub fn is_closed(&self) -> bool {
        self.0.kind == ErrorKind::Closed
    }

    /// Why the lock was lost, if it was.
    pub fn loss(&self) -> Option<Loss> {
        match self.0.cause {
            Cause::Loss(loss) => Some(loss),
            Cause::Answers | Cause::Input(_) | Cause::Text(_) => None,
        }
    }

    fn count(&self, wanted: fn(&Answer) -> bool) -> usize {
        self.0
            .masters
            .iter()
            .filter(|master| wanted(master.answer()))
            .count()
    }

    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Name(self.0.resource.as_deref());
        let (all, quorum) = (self.0.masters.len(), self.quorum());
        match self.0.kind {
            ErrorKind::Held => write!(f, "{name} is held by somebody else"),
            ErrorKind::Unreachable => {
                write!(
                    f,
                    "no quorum of masters could be reached for {name} ({quorum} of {all} are needed)"
                )
            }
            ErrorKind::TooSlow => {
                write!(
                    f,
                    "the masters answered too slowly for {name}: too little of the TTL was left"
                )
            }
            ErrorKind::GaveUp => {
                let (waited, attempts) = self.0.waited.unwrap_or_default();
                write!(
                    f,
                    "gave up waiting for {name} after {waited:.1?} and {attempts} attempts"
                )
            }
            ErrorKind::Lost => write!(f, "the lock on {name} is lost"),
            ErrorKind::NotALock => {
                write!(
                    f,
                    "the key of {name} holds something that is no lock: another type, or a value that never expires"
                )
            }
            ErrorKind::BadInput => f.write_str("bad input"),
            ErrorKind::BadConfiguration => f.write_str("bad configuration"),
            ErrorKind::Closed => f.write_str("no more locks can be acquired here"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_summary(f)?;
        match &self.0.cause {
            Cause::Answers => {}
            Cause::Input(input) => write!(f, ": {input}")?,
            Cause::Loss(loss) => write!(f, ": {loss}")?,
            Cause::Text(text) => write!(f, ": {text}")?,
        }
        if self.0.masters.is_empty() {
            return Ok(());
        }
        let all = self.0.masters.len();
        write!(
            f,
            "; of {all} masters {} denied and {} failed:",
            self.denied(),
            self.failed()
        )?;
        for (place, master) in self.0.masters.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(
                f,
                "{comma} master {} ({}) {}",
                master.index() + 1,
                master.address(),
                master.answer()
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("cause", &self.0.cause)
            .field("masters", &self.0.masters)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Cause::Input(input) = &self.0.cause {
            return Some(input);
        }
        self.0
            .masters
            .iter()
            .find_map(|master| match master.answer() {
                Answer::Failed(fault) => Some(fault as _),
                Answer::Granted | Answer::Denied | Answer::Unanswered => None,
            })
    }
}

/// A resource's name as errors show it: escaped, and cut where it is long.
struct Name<'a>(Option<&'a [u8]>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.0 else {
            return f.write_str("the resource");
        };
        match str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= SHOWN_NAME => write!(f, "{text:?}"),
            _ if bytes.len() <= SHOWN_NAME => write!(f, "\"{}\"", bytes.escape_ascii()),
            _ => write!(
                f,
                "\"{}…\" ({} bytes)",
                bytes[..SHOWN_NAME].escape_ascii(),
                bytes.len()
            ),
        }
    }
}
