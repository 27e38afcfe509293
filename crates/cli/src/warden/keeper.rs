//! The warden itself: starts COMMAND, keeps its deadline, ends it, and waits until nothing of it is left.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, wait};

use super::family::{self, Family};
use super::wire::{self, Message, Wire};
use super::{KILL_MARGIN, Program, signal, stage};
use crate::clock::{self, Instant};
use crate::exit::Exit;
use crate::signals::Signals;

/// KILL is repeated, for whoever was being born when it was sent; the pause doubles up to the second of the two.
const KILL_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Why everything is ended, as [`Message::Ending`] says it.
#[derive(Clone, Copy, Debug)]
enum Why {
    TimeHasCome = 0,
    Told = 1,
    CommandEnded = 2,
}

#[derive(Debug)]
struct Keeper {
    wire: Wire,
    /// False once `quorumlock` is gone.
    connected: bool,
    owner: i32,
    grace: Duration,
    deadline: Instant,
    /// The stage's socket, the user's standard input beside it until both are handed over.
    stage: Stage,
    command: Pid,
    command_ended: bool,
    /// When TERM was sent.
    ending_since: Option<Instant>,
    /// Once KILL was sent: the pause until it is sent again.
    killing: Option<Duration>,
}

#[derive(Debug)]
enum Stage {
    Waits(UnixStream, OwnedFd),
    Went(Wire),
    Done,
}

/// Reads the arguments, waits for the first deadline, keeps COMMAND.
pub(super) fn main(arguments: &[OsString]) -> Exit {
    let [owner, grace, path, argv @ ..] = arguments else {
        return Exit::Other;
    };
    let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
    let (Some(owner), Some(grace)) = (
        number(owner).and_then(|owner| i32::try_from(owner).ok()),
        number(grace),
    ) else {
        return Exit::Other;
    };
    let program = Program {
        path: path.clone(),
        argv: argv.to_vec(),
    };
    family::be_called(c"quorumlock");
    family::adopt_orphans();
    let started = family::socket_on_stdin().and_then(|socket| {
        let (first, stdin) = wire::hear_with_file(&socket)?;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(keep(
                owner,
                Duration::from_nanos(grace),
                &program,
                socket,
                first,
                stdin,
            ))
    });
    match started {
        Ok(()) => Exit::Done,
        Err(_) => Exit::Other,
    }
}

async fn keep(
    owner: i32,
    grace: Duration,
    program: &Program,
    socket: UnixStream,
    first: Message,
    stdin: OwnedFd,
) -> std::io::Result<()> {
    let mut signals = Signals::of(&[
        Signal::CHILD,
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
    ])?;
    // Should the socket outlive its owner, this tells all the same.
    family::die_with_parent(Signal::TERM);
    let mut wire = Wire::new(socket)?;
    let Message::Deadline(deadline) = first else {
        return Err(std::io::Error::other("no deadline"));
    };
    let latest_start = deadline.before(grace);
    if latest_start.has_come() {
        wire.say(Message::Ending(Why::TimeHasCome as i32));
        return Ok(());
    }
    let (ours, theirs) = UnixStream::pair()?;
    let command = Pid::from_child(
        &stage::command(getpid(), latest_start, program)
            .stdin(OwnedFd::from(theirs))
            .spawn()?,
    );
    wire.say(Message::Ready(command.as_raw_nonzero().get()));
    let mut keeper = Keeper {
        wire,
        connected: true,
        owner,
        grace,
        deadline,
        stage: Stage::Waits(ours, stdin),
        command,
        command_ended: false,
        ending_since: None,
        killing: None,
    };
    keeper.keep(&mut signals).await;
    keeper.wire.drain().await;
    Ok(())
}

impl Keeper {
    /// Until nobody is left.
    async fn keep(&mut self, signals: &mut Signals) {
        while self.reap().await {
            let next = self.next_moment();
            tokio::select! {
                message = self.wire.next(), if self.connected => self.hear(message),
                number = signals.next() => self.take_signal(number),
                () = clock::until(next) => self.time_has_come(),
            }
        }
    }

    fn hear(&mut self, message: Option<Message>) {
        match message {
            Some(Message::Deadline(deadline)) => self.deadline = self.deadline.max(deadline),
            Some(Message::Go) => self.go(),
            Some(Message::Forward(number)) => self.forward(number),
            Some(Message::End) => self.end(Why::Told),
            // Our own messages come back from nobody.
            Some(_) => {}
            None => {
                self.connected = false;
                self.end(Why::TimeHasCome);
            }
        }
    }

    /// Lets the stage become COMMAND.
    fn go(&mut self) {
        let Stage::Waits(socket, stdin) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return;
        };
        // If the stage is gone, reaping it tells.
        if wire::say_with_file(&socket, Message::Go, stdin).is_ok()
            && let Ok(wire) = Wire::new(socket)
        {
            self.stage = Stage::Went(wire);
        }
    }

    fn take_signal(&mut self, number: i32) {
        if number == Signal::CHILD.as_raw() {
            return;
        }
        let owner_lives =
            getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == self.owner);
        if owner_lives {
            // Sent to us by mistake, or to everybody at once: COMMAND is whom it concerns.
            self.forward(number);
        } else {
            self.end(Why::TimeHasCome);
        }
    }

    fn forward(&self, number: i32) {
        if let (Some(signal), Some(group)) = (signal(number), self.family().group) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Sends TERM, once. Stopped processes are continued: they could not see it otherwise.
    fn end(&mut self, why: Why) {
        if self.ending_since.is_some() {
            return;
        }
        self.ending_since = Some(Instant::now());
        self.wire.say(Message::Ending(why as i32));
        self.family().signal(Signal::TERM);
        self.family().signal(Signal::CONT);
    }

    /// When something must be done by itself.
    fn next_moment(&self) -> Instant {
        match self.ending_since {
            None => self.deadline.before(self.grace.max(KILL_MARGIN)),
            Some(since) if self.killing.is_none() => since
                .after(self.grace)
                .min(self.deadline.before(KILL_MARGIN)),
            Some(_) => Instant::now().after(self.killing.unwrap_or_default()),
        }
    }

    fn time_has_come(&mut self) {
        if self.ending_since.is_none() {
            self.end(Why::TimeHasCome);
        } else {
            let pause = self
                .killing
                .map_or(KILL_AGAIN.0, |pause| pause.saturating_mul(2));
            self.killing = Some(pause.min(KILL_AGAIN.1));
            self.family().signal(Signal::KILL);
        }
    }

    /// Takes the exit statuses of whoever ended; whether anybody is left.
    async fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
                Ok(Some((pid, status))) if pid == self.command => {
                    self.command_changed(status).await
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return self.somebody_out_of_sight(),
            }
        }
        if self.command_ended {
            self.end(Why::CommandEnded);
        }
        true
    }

    /// With a subreaper, no child left means nobody left; elsewhere the group may hold orphans.
    fn somebody_out_of_sight(&mut self) -> bool {
        let left = !cfg!(target_os = "linux") && self.family().lives();
        if left {
            self.end(Why::CommandEnded);
        }
        left
    }

    async fn command_changed(&mut self, status: WaitStatus) {
        if let Some(number) = status.stopping_signal() {
            self.wire.say(Message::Stopped(number));
        } else if status.continued() {
            self.wire.say(Message::Continued);
        } else {
            self.command_ended = true;
            let refusal = match &mut self.stage {
                Stage::Went(wire) => wire.next().await,
                Stage::Waits(..) | Stage::Done => None,
            };
            let end = status.terminating_signal().map(Message::Killed);
            let end = end.unwrap_or(Message::Exited(status.exit_status().unwrap_or_default()));
            self.wire.say(refusal.unwrap_or(end));
        }
    }

    fn family(&self) -> Family {
        // Once COMMAND was reaped, its number may be given to another group as soon as its own is empty.
        let group = (!self.command_ended || cfg!(not(target_os = "linux"))).then_some(self.command);
        Family {
            group,
            ancestor: getpid(),
            born_since: 0,
        }
    }
}
