//! The last step before COMMAND: a process that becomes it.
//!
//! It exists because two things must happen in the child, after fork and before exec, and safe code cannot run there: it
//! asks the kernel to be killed when the warden dies (the wish survives exec, not fork), and it waits until the terminal
//! has been handed to its process group.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, getppid};

use super::wire::{self, Message};
use super::{Program, STAGE, family};
use crate::clock::Instant;
use crate::exit::Exit;

/// The command line of a stage, without the streams.
pub(super) fn command(warden: Pid, latest_start: Instant, program: &Program) -> Command {
    let mut command = family::this_binary();
    command
        .arg(STAGE)
        .arg(warden.as_raw_nonzero().to_string())
        .arg(latest_start.as_nanos().to_string());
    command.arg(&program.path).args(&program.argv);
    command.process_group(0);
    command
}

/// Becomes COMMAND, or says why not.
pub(super) fn main(arguments: &[OsString]) -> Exit {
    let [warden, latest_start, path, name, rest @ ..] = arguments else {
        return Exit::Other;
    };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let (Some(warden), Some(latest_start)) = (number(warden), number(latest_start)) else {
        return Exit::Other;
    };
    let Ok(socket) = family::socket_on_stdin() else {
        return Exit::Other;
    };
    // From here on the death of the warden is the death of this process, and later of COMMAND.
    family::die_with_parent(rustix::process::Signal::KILL);
    let orphaned = getppid()
        .is_none_or(|parent| u64::from(parent.as_raw_nonzero().get().unsigned_abs()) != warden);
    if orphaned {
        return Exit::Lost;
    }
    let Ok((Message::Go, stdin)) = wire::hear_with_file(&socket) else {
        return Exit::Lost;
    };
    if rustix::stdio::dup2_stdin(&stdin).is_err() {
        return Exit::Other;
    }
    drop(stdin);
    if Instant::from_nanos(latest_start).has_come() {
        return Exit::Lost;
    }
    refuse(&socket, Command::new(path).arg0(name).args(rest).exec())
}

/// Tells the warden, which tells `quorumlock`, which tells the user.
fn refuse(socket: &UnixStream, error: std::io::Error) -> Exit {
    let errno = error.raw_os_error().unwrap_or_default();
    match wire::say(socket, Message::NotExecuted(errno)) {
        Ok(()) if error.kind() == std::io::ErrorKind::NotFound => Exit::NotFound,
        Ok(()) | Err(_) => Exit::NotExecutable,
    }
}
