//! The only printer: what a verb answers and what went wrong, for people and as JSON.
//!
//! A reader that went away (`quorumlock status k | head -0`) is no error of ours: what cannot be printed is dropped.

use std::ffi::OsStr;
use std::io::Write;

use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;

/// What a verb has to say when it succeeded.
#[derive(Debug)]
pub(crate) struct Answer {
    /// For people, on standard output.
    pub(crate) text: String,
    /// For people, on standard error: what should not end up in `$(…)`.
    pub(crate) note: String,
    /// With `--json`, alone on standard output; `None` where the verb's output is not ours to shape.
    pub(crate) json: Option<Value>,
    /// The exit status.
    pub(crate) exit: Exit,
}

impl Answer {
    /// Nothing to say but how it ended: the verb has said the rest itself.
    pub(crate) fn only(exit: Exit) -> Self {
        Answer {
            text: String::new(),
            note: String::new(),
            json: None,
            exit,
        }
    }
}

/// Prints what a verb answered.
pub(crate) fn answer(answer: &Answer, json: bool) -> Exit {
    match &answer.json {
        Some(value) if json => out(&value.to_string()),
        Some(_) | None => {
            out(&answer.text);
            err(&answer.note);
        }
    }
    answer.exit
}

/// Prints what went wrong: a paragraph on standard error, and with `--json` its value on standard output.
pub(crate) fn failure(failure: &Failure, json: bool) -> Exit {
    if json {
        out(&failure.to_json().to_string());
    }
    complain(&failure.message);
    failure.exit
}

/// Prints a paragraph on standard error, after our name.
pub(crate) fn complain(message: &str) {
    err(&format!("quorumlock: {}", redact(message)));
}

/// Prints a line on standard error.
pub(crate) fn err(text: &str) {
    write(std::io::stderr(), text);
}

/// Prints clap's answer: help and version are what was asked for, anything else is a failure.
pub(crate) fn usage(error: &clap::Error, arguments: &[impl AsRef<OsStr>]) -> Exit {
    let text = redact_more(error.render().to_string().trim_end());
    if !error.use_stderr() {
        out(&text);
        return Exit::Done;
    }
    let ours = arguments
        .iter()
        .map(AsRef::as_ref)
        .take_while(|argument| *argument != "--");
    let json =
        crate::settings::json_wished() || ours.into_iter().any(|argument| argument == "--json");
    if json {
        out(&Failure::usage(&text).to_json().to_string());
    }
    err(&text);
    Exit::BadInput
}

fn out(text: &str) {
    write(std::io::stdout(), text);
}

fn write(mut stream: impl Write, text: &str) {
    if !text.is_empty() {
        drop(stream.write_all(format!("{}\n", text.trim_end()).as_bytes()));
        drop(stream.flush());
    }
}

/// Puts `***` in the place of whatever stands between `://` and `@`, should a URL ever be quoted in a message (R29).
pub(crate) fn redact(text: &str) -> String {
    redact_words(text, |word| word.contains("://"))
}

/// The same for a command line that could not be read, where a URL may have been mangled: `user:password@host`.
fn redact_more(text: &str) -> String {
    redact_words(text, |word| {
        word.split('@')
            .next()
            .is_some_and(|user| user.contains(':'))
    })
}

fn redact_words(text: &str, suspicious: impl Fn(&str) -> bool) -> String {
    // The words of our own hints.
    const HINT: &str = "://[USER:PASSWORD@]";
    let ends_word = |c: char| c.is_whitespace() || c == '\'' || c == '"';
    let show = |word: &str| match word.rsplit_once('@') {
        Some((secret, host)) if suspicious(word) && !word.contains(HINT) => {
            let scheme = secret.find("://").map_or("", |end| &secret[..end + 3]);
            format!("{scheme}***@{host}")
        }
        Some(_) | None => word.to_owned(),
    };
    text.split_inclusive(ends_word)
        .map(|word| {
            let (word, end) = word.split_at(word.trim_end_matches(ends_word).len());
            show(word) + end
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_url_is_shown() {
        let check = |text: &str, expected: &str| assert_eq!(redact(text), expected);
        check("no URL", "no URL");
        check(
            "redis://[USER:PASSWORD@]HOST",
            "redis://[USER:PASSWORD@]HOST",
        );
        check("redis://host:1 is down", "redis://host:1 is down");
        check("'redis://u:s3cret@host:1' and", "'redis://***@host:1' and");
        check("redis://:s3cret@a,redis://:s3cret@b", "redis://***@b");
        check("redis://u:p@ss/w?rd@host", "redis://***@host");
        check("a://b@c \"d://e@f\" g", "a://***@c \"d://***@f\" g");
        check(
            "the name user:bob@example is no URL",
            "the name user:bob@example is no URL",
        );
        assert_eq!(
            redact_more("no subcommand 'u:s3cret@host'"),
            "no subcommand '***@host'"
        );
    }
}
