//! The command `quorumlock`: parses, dispatches, exits. Every verb is a few lines over the library.

#[cfg(not(unix))]
compile_error!(
    "the command quorumlock is for Unix: it needs process groups and signals (the library builds on Windows too)"
);

mod args;
mod clock;
mod durations;
mod exit;
mod failure;
mod help;
mod names;
mod render;
mod run;
mod session;
mod settings;
mod signals;
mod verbs;
mod warden;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};
use exit::Exit;
use failure::Failure;
use render::Answer;
use settings::Settings;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let exit =
        warden::hidden_mode(&arguments).unwrap_or_else(|| match Cli::try_parse_from(&arguments) {
            Ok(cli) => dispatch(cli),
            Err(error) => render::usage(&error, &arguments),
        });
    exit.into()
}

fn dispatch(cli: Cli) -> Exit {
    let json = cli.globals.json || settings::json_wished();
    match answer(cli) {
        Ok(answer) => render::answer(&answer, json),
        Err(failure) => render::failure(&failure, json),
    }
}

fn answer(cli: Cli) -> Result<Answer, Failure> {
    let settings = Settings::from_flags_and_variables(cli.globals)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|error| Failure::system("cannot start the event loop", &error))?;
    match cli.verb {
        Verb::Run(args) => Ok(Answer::only(runtime.block_on(run::run(&settings, args)))),
        Verb::Acquire(args) => runtime.block_on(session::ask(&settings, async |redlock| {
            verbs::acquire::acquire(redlock, &args).await
        })),
        Verb::Extend(args) => runtime.block_on(session::ask(&settings, async |redlock| {
            verbs::extend::extend(redlock, &args).await
        })),
        Verb::Release(args) => runtime.block_on(session::ask(&settings, async |redlock| {
            verbs::release::release(redlock, &args).await
        })),
        Verb::Status(args) => runtime.block_on(session::ask(&settings, async |redlock| {
            verbs::status::status(redlock, &args).await
        })),
        Verb::Masters { action } => verbs::masters::masters(&action),
        Verb::Completions { shell } => Ok(verbs::completions::completions(shell)),
    }
}
