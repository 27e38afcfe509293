//! What can be said on the command line. Words and examples for the user are in `help.rs`.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, where backticks would be seen"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::{durations, help};

/// Run jobs under a distributed lock: Redlock over N independent Redis or Valkey masters.
#[derive(Debug, Parser)]
#[command(name = "quorumlock", version, long_about = help::ABOUT, after_help = help::TOP, after_long_help = help::TOP_LONG)]
#[command(max_term_width = 120, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb; each has a variable, which the flag beats.
#[derive(Args, Debug)]
#[command(next_help_heading = "Masters and output")]
pub(crate) struct Globals {
    /// The masters, separated by commas [variable: QUORUMLOCK_MASTERS]
    ///
    /// `redis://`, `rediss://` (TLS), `valkey://` or `unix://` URLs. A comma inside a URL is written %2C. Prefer the
    /// variable or --masters-file for URLs with passwords: a command line can be read by others on the host.
    #[arg(long, global = true, value_name = "URL,URL")]
    pub(crate) masters: Option<OsString>,
    /// A file with one master's URL a line [variable: QUORUMLOCK_MASTERS_FILE]
    ///
    /// Empty lines and lines that begin with # are passed over.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "masters")]
    pub(crate) masters_file: Option<PathBuf>,
    /// Put before every resource to make its key [variable: QUORUMLOCK_PREFIX]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<OsString>,
    /// The longest TTL in use in this deployment, 60s unless said [variable: QUORUMLOCK_MAX_TTL]
    #[arg(long, global = true, value_name = "D", value_parser = durations::parse)]
    pub(crate) max_ttl: Option<Duration>,
    /// How long to wait for one master's answer; TTL/10 within 50ms and 1s unless said [variable: QUORUMLOCK_TIMEOUT]
    #[arg(long, global = true, value_name = "D", value_parser = durations::parse)]
    pub(crate) timeout: Option<Duration>,
    /// Trust this certificate authority for rediss:// (a PEM file) [variable: QUORUMLOCK_TLS_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Print one JSON value on standard output [variable: QUORUMLOCK_JSON=1]
    ///
    /// A failure is {"error": {"kind", "exit", "message", "masters": [{"index", "address", "answer", "detail"}]}}. The
    /// kinds are held, unreachable, too_slow, gave_up, lost, bad_input, bad_configuration, not_a_lock and closed (as in the
    /// library), usage, not_found, not_executable, signal, masters and system. A name or token that is not UTF-8 appears as
    /// "resource_base64" or "token_base64". Standard output of `run` is COMMAND's: there, --json is --report -.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run COMMAND while holding a lock
    #[command(long_about = help::RUN, after_help = help::RUN_EXAMPLES, after_long_help = help::RUN_LONG)]
    Run(Run),
    /// Acquire a lock and keep it until it is released or its TTL ends
    #[command(long_about = help::ACQUIRE, after_help = help::ACQUIRE_EXAMPLES)]
    Acquire(Acquire),
    /// See to it that a lock acquired before lasts on
    #[command(long_about = help::EXTEND, after_help = help::EXTEND_EXAMPLES)]
    Extend(Extend),
    /// Release a lock acquired before
    #[command(long_about = help::RELEASE, after_help = help::RELEASE_EXAMPLES)]
    Release(Release),
    /// Show who holds a lock, on each master
    #[command(long_about = help::STATUS, after_help = help::STATUS_EXAMPLES)]
    Status(Status),
    /// Throwaway masters on this machine, for trying things
    #[command(long_about = help::MASTERS, after_help = help::MASTERS_EXAMPLES)]
    #[command(subcommand_required = true, disable_help_subcommand = true)]
    Masters {
        #[command(subcommand)]
        action: Masters,
    },
    /// Print the completions for a shell
    #[command(after_help = help::COMPLETIONS_EXAMPLES)]
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// What is locked: any name, any bytes
    pub(crate) resource: OsString,
    /// How long the lock outlives us if we die; it is extended as long as COMMAND runs
    #[arg(long, value_name = "D", default_value = "30s", value_parser = durations::parse)]
    pub(crate) ttl: Duration,
    /// Wait at most this long for the lock; for ever unless said
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) wait: Option<Duration>,
    /// Try once
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Extend the lock no more once it has been held this long
    ///
    /// COMMAND is ended when the validity that is left then runs out, and the status is 76.
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// From TERM to KILL when COMMAND must end; the smaller of 5s and TTL/4 unless said, at most TTL/2
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) grace: Option<Duration>,
    /// Return N instead of 75 when somebody else holds the lock
    #[arg(long, value_name = "N")]
    pub(crate) conflict_exit: Option<u8>,
    /// Write a report in JSON to FILE; - is the last line of standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// What is run, with its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// What is locked: any name, any bytes
    pub(crate) resource: OsString,
    /// How long the lock lasts
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) ttl: Duration,
    /// Wait at most this long for the lock; for ever unless said
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) wait: Option<Duration>,
    /// Try once
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Extend {
    /// What is locked
    pub(crate) resource: OsString,
    /// The token that `acquire` printed
    #[arg(long, value_name = "T")]
    pub(crate) token: String,
    /// How long the lock lasts from now on; it never gets shorter
    #[arg(long, value_name = "D", value_parser = durations::parse)]
    pub(crate) ttl: Duration,
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("whose").args(["token", "force"]).required(true)))]
pub(crate) struct Release {
    /// What is locked
    pub(crate) resource: OsString,
    /// The token that `acquire` printed: released only if the lock is still that
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<String>,
    /// Delete the lock, whoever holds it. Its holder may be working: only for when you know that it is not
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// What may be locked
    #[arg(required = true)]
    pub(crate) resource: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Masters {
    /// Start masters; those that already run are kept
    #[command(after_help = help::MASTERS_EXAMPLES)]
    Start {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
        count: u16,
        /// Where they keep what they write; a folder of yours in the run-time or temporary directory unless said
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Stop the masters that `masters start` started
    #[command(after_help = help::MASTERS_EXAMPLES)]
    Stop {
        /// The folder given to `masters start`
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Show the masters that `masters start` started
    #[command(after_help = help::MASTERS_EXAMPLES)]
    Status {
        /// The folder given to `masters start`
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_an_example_in_its_help() {
        fn check(command: &mut clap::Command, path: &str) {
            let help = command.render_help().to_string();
            let prefix = format!("quorumlock {}", path.split(' ').next().unwrap());
            assert!(
                help.contains("Example") && help.contains(&prefix),
                "no example in the help of {path}:\n{help}"
            );
            for sub in command.get_subcommands_mut() {
                let path = format!("{path} {}", sub.get_name());
                check(sub, &path);
            }
        }
        for verb in Cli::command().get_subcommands_mut() {
            let name = verb.get_name().to_owned();
            check(verb, &name);
        }
    }

    #[test]
    fn the_top_help_holds_the_exit_statuses() {
        assert!(
            Cli::command()
                .render_long_help()
                .to_string()
                .contains(crate::exit::table!())
        );
    }

    #[test]
    fn no_option_lacks_its_variable() {
        for option in Cli::command()
            .get_arguments()
            .filter(|option| option.is_global_set())
        {
            let variable = format!("QUORUMLOCK_{}", option.get_id().as_str().to_uppercase());
            assert!(
                option.get_help().unwrap().to_string().contains(&variable),
                "{variable}"
            );
        }
    }
}
