//! What each master answered, as errors and releases report it.

use crate::driver::{Answer as DriverAnswer, Pool};
use crate::master::Fault;
use std::fmt;
use std::sync::Arc;

/// One master's own answer.
#[derive(Clone, Debug)]
pub struct MasterAnswer {
    index: usize,
    address: Arc<str>,
    answer: Answer,
}

impl MasterAnswer {
    /// The master's place in the list, from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The master's address, without user or password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it answered.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }
}

/// What one master answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// It did what was asked.
    Granted,
    /// It said that somebody else, or nobody, holds the lock.
    Denied,
    /// It gave no usable answer.
    Failed(Fault),
    /// Its answer was not waited for: the others had decided.
    Unanswered,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Denied => f.write_str("denied"),
            Self::Failed(fault) => write!(f, "failed: {fault}"),
            Self::Unanswered => f.write_str("not waited for"),
        }
    }
}

/// Turns the driver's answers into what is reported.
pub(crate) fn master_answers(pool: &Pool, answers: Vec<DriverAnswer>) -> Vec<MasterAnswer> {
    let addresses = pool
        .masters
        .iter()
        .map(|master| Arc::clone(&master.address));
    answers
        .into_iter()
        .zip(addresses)
        .enumerate()
        .map(|(index, (answer, address))| MasterAnswer {
            index,
            address,
            answer: match answer {
                DriverAnswer::Granted => Answer::Granted,
                DriverAnswer::Denied => Answer::Denied,
                DriverAnswer::Failed(fault) => Answer::Failed(fault),
                DriverAnswer::Unanswered => Answer::Unanswered,
            },
        })
        .collect()
}
