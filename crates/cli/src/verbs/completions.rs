//! `quorumlock completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Exit;
use crate::render::Answer;

/// The script for this shell.
pub(crate) fn completions(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "quorumlock", &mut script);
    Answer {
        text: String::from_utf8_lossy(&script).into_owned(),
        ..Answer::only(Exit::Done)
    }
}
