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
use signals::Signals;

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
    let answer = Settings::from_flags_and_variables(cli.globals).and_then(|settings| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime =
            runtime.map_err(|error| Failure::system("cannot start the event loop", &error))?;
        match cli.verb {
            Verb::Run(args) => Ok(Err(runtime.block_on(run::run(&settings, args)))),
            Verb::Completions { shell } => {
                render::raw(&verbs::completions::completions(shell));
                Ok(Err(Exit::Done))
            }
            Verb::Masters { action } => verbs::masters::masters(&action).map(Ok),
            verb => runtime.block_on(ask(&settings, verb)).map(Ok),
        }
    });
    match answer {
        Ok(Ok(answer)) => render::answer(&answer, json),
        Ok(Err(exit)) => exit,
        Err(failure) => render::failure(&failure, json),
    }
}

/// The verbs that ask the masters once.
async fn ask(settings: &Settings, verb: Verb) -> Result<Answer, Failure> {
    let mut signals =
        Signals::ending().map_err(|error| Failure::system("cannot take signals", &error))?;
    session::with_masters(settings, &mut signals, async |redlock| match verb {
        Verb::Acquire(args) => verbs::acquire::acquire(redlock, &args).await,
        Verb::Extend(args) => verbs::extend::extend(redlock, &args).await,
        Verb::Release(args) => verbs::release::release(redlock, &args).await,
        Verb::Status(args) => verbs::status::status(redlock, &args).await,
        Verb::Run(_) | Verb::Masters { .. } | Verb::Completions { .. } => Ok(Answer::nothing()),
    })
    .await
}
