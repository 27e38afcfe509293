//! Every exit status of the command, in one table. Nothing else in this crate names a number.
//!
//! Scripts depend on these, so they are a contract: they follow sysexits(3) where it has a word for the case, and the
//! shell's own habit (126, 127, 128+n) where a shell would have started the command.

use std::process::ExitCode;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// Anything that has no number of its own.
    Other,
    /// Usage, or input that is refused before or after asking a master.
    BadInput,
    /// No quorum could be reached, or it answered too slowly for this TTL (`EX_UNAVAILABLE`).
    Unavailable,
    /// Somebody else holds the lock (`EX_TEMPFAIL`); `--conflict-exit` replaces it.
    NotAcquired,
    /// The lock was lost while COMMAND ran, or before it was extended or released (`EX_PROTOCOL`).
    Lost,
    /// COMMAND was found and cannot be executed.
    NotExecutable,
    /// COMMAND was not found.
    NotFound,
    /// A signal ended the wait, or COMMAND.
    Signal(i32),
    /// What COMMAND itself returned, or what `--conflict-exit` asked for.
    Status(u8),
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Other => 1,
            Exit::BadInput => 2,
            Exit::Unavailable => 69,
            Exit::NotAcquired => 75,
            Exit::Lost => 76,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Signal(number) => u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX),
            Exit::Status(status) => status,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The table as `--help` shows it, as a literal; a test compares it with [`Exit::code`].
macro_rules! table {
    () => {
        "\
Exit status:
  0      done; for `run`, COMMAND returned 0; for `status`, a quorum answered
  1      anything that has no number of its own
  2      usage or bad input
  69     no quorum of masters reachable, or too slow for this TTL
  75     not acquired: somebody else holds it (`run --conflict-exit N` replaces it)
  76     the lock was lost while COMMAND ran, or before extend or release
  126    COMMAND cannot be executed
  127    COMMAND was not found
  128+n  signal n ended the wait, or COMMAND
  For `run`, any other number is COMMAND's own."
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_table_names_every_fixed_status() {
        let fixed = [
            Exit::Done,
            Exit::Other,
            Exit::BadInput,
            Exit::Unavailable,
            Exit::NotAcquired,
            Exit::Lost,
            Exit::NotExecutable,
            Exit::NotFound,
        ];
        let first_words: Vec<String> = table!()
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect();
        for exit in fixed {
            assert!(
                first_words.contains(&exit.code().to_string()),
                "{exit:?} is missing in the table"
            );
        }
    }

    #[test]
    fn signals_are_offset_by_128_and_never_wrap() {
        assert_eq!(Exit::Signal(15).code(), 143);
        assert_eq!(Exit::Signal(64).code(), 192);
        assert_eq!(Exit::Signal(i32::MAX).code(), 255);
    }
}
