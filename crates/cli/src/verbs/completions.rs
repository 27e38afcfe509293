//! `quorumlock completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;

/// The script for this shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "quorumlock", &mut script);
    script
}
