//! The words of `--help`: what each verb promises, what it does not, and examples that work.

use crate::exit::table;

pub(crate) const ABOUT: &str = "\
Run jobs under a distributed lock: Redlock over N independent Redis or Valkey
masters.

A lock is held while a majority of the masters says so. `quorumlock run` puts
one in front of any command; `acquire`, `extend` and `release` are the same in
steps, for scripts. Durations are written 500ms, 30s, 2m or 1h.";

/// Text that stands in two places, as `concat!` takes literals only.
macro_rules! top_examples {
    () => {
        "\
Examples:
  eval \"$(quorumlock masters start)\"             five throwaway masters, to try it
  quorumlock run nightly -- ./backup.sh          one host runs it, the others wait
  quorumlock run nightly --no-wait -- ./backup.sh
  quorumlock status nightly"
    };
}

macro_rules! run_examples {
    () => {
        "\
Examples:
  quorumlock run nightly -- ./backup.sh --all
  quorumlock run nightly --no-wait --conflict-exit 0 -- ./backup.sh      another host does it: fine
  quorumlock run invoice:4821 --wait 10s --ttl 1m -- python3 charge.py
  quorumlock run deploy --report - -- sh -c 'make && make install'"
    };
}

pub(crate) const TOP: &str = concat!(
    top_examples!(),
    "\n\n`quorumlock run --help` says what is promised; the exit statuses are in the long help (--help)."
);

pub(crate) const TOP_LONG: &str = concat!(top_examples!(), "\n\n", table!());

pub(crate) const RUN: &str = "\
Run COMMAND while holding a lock.

Waits for the lock (for ever unless told otherwise), runs COMMAND, extends the
lock as long as COMMAND runs, releases it when COMMAND and everything it
started has ended, and returns what COMMAND returned.";

pub(crate) const RUN_EXAMPLES: &str = run_examples!();

pub(crate) const RUN_LONG: &str = concat!(
    run_examples!(),
    "

What COMMAND gets:
  The standard streams, the arguments and the environment as they are, and
  QUORUMLOCK_RESOURCE and QUORUMLOCK_TOKEN. It is looked up in PATH before the
  lock is acquired, and runs in a process group of its own, which is handed
  the terminal. Signals sent to quorumlock are passed to that group; stopping
  (Ctrl-Z) and continuing too. While the job is stopped nobody extends the
  lock: stopped for longer than the TTL, it is lost, and COMMAND is ended.

When the lock is lost:
  If it is proved that the lock is somebody else's, COMMAND's processes get
  TERM at once; if it only cannot be extended, they get TERM when the grace +
  50ms is left of its validity. They get KILL after the grace, and in any case
  before the validity ends. The status is then 76, whatever COMMAND returned.
  The same happens when quorumlock itself is killed or stopped: a small
  process beside COMMAND (the warden) keeps the deadline.

When COMMAND ends:
  What it left running (sh -c 'server &') would work without the lock, so it
  is ended first: TERM, and KILL after the grace. Let COMMAND wait for its
  children, or give them a lock of their own.

What is out of reach:
  On Linux every process that descends from COMMAND is found, also one that
  left its group or session. Elsewhere only the process group is. A process of
  another user (COMMAND is sudo, or a set-uid program) cannot be ended by us:
  write `sudo quorumlock run …`, not `quorumlock run … -- sudo …`. Work that
  COMMAND hands to a service (docker run, systemd-run, a job queue, another
  host) goes on when COMMAND ends. And no lock can stop what is already on its
  way to a database: see the guarantees
  in the documentation.

The report (--report FILE), one JSON object:
  resource   its name; resource_base64 if it is no UTF-8
  exit       the status that quorumlock returned
  outcome    exited | signaled | lost | not_started
  status     what COMMAND returned, or null        signal     what ended COMMAND, or null
  lost       why the lock was lost, or null        released   whether a quorum confirmed the release
  token      the lock's token                      grants     how many masters had granted it
  waited_ms  until the lock was acquired           held_ms    until it was released
  or, when the lock was not acquired, {\"error\": …} as with --json."
);

pub(crate) const ACQUIRE: &str = "\
Acquire a lock and keep it until it is released or its TTL ends.

For scripts that cannot use `run`. Nothing extends the lock afterwards unless
you call `extend`, and nothing ends your work when it is lost. Prints token=…
and validity=… (how long you may rely on it, from now); with --json the fields
resource, token, validity_ms, grants.";

pub(crate) const ACQUIRE_EXAMPLES: &str = "\
Examples:
  lock=$(quorumlock acquire nightly --ttl 1m --wait 10s) && eval \"$lock\"
  quorumlock acquire nightly --ttl 30s --no-wait --json";

pub(crate) const EXTEND: &str = "\
See to it that a lock acquired before lasts on.

Only if the token still owns the lock on a quorum of masters; 76 if it does
not. Prints validity=…; with --json the fields resource, token, validity_ms.";

pub(crate) const EXTEND_EXAMPLES: &str = "\
Example:
  quorumlock extend nightly --token \"$token\" --ttl 1m";

pub(crate) const RELEASE: &str = "\
Release a lock acquired before.

With --token, deleted on every master where it is still that token's; 76 if a
quorum says that it no longer was. With --force, deleted whoever holds it.
With --json the fields resource, released, and with --force masters.";

pub(crate) const RELEASE_EXAMPLES: &str = "\
Examples:
  quorumlock release nightly --token \"$token\"
  quorumlock release nightly --force";

pub(crate) const STATUS: &str = "\
Show who holds a lock, on each master.

The verdict is free, held (one token has a quorum of masters), split (taken,
but nobody has a quorum) or unknown (no quorum of masters answered; status
69). It is what the masters say now: only the holder knows whether it may
still rely on it. With --json: {\"resources\": [{resource, verdict, token,
held_on, quorum, masters: [{index, address, state, token, ttl_ms, detail}]}]},
where state is free, held, not_a_lock or failed. Masters are counted from 1 in
text and from 0 in JSON.";

pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  quorumlock status nightly
  quorumlock status invoice:4821 invoice:4822 --json";

pub(crate) const MASTERS: &str = "\
Throwaway masters on this machine, for trying things.

Real redis-server or valkey-server processes on loopback, whichever is
installed, on free ports, without persistence. `start` prints the variable to
set, alone, on standard output, and a table on standard error. With --json:
{\"masters\": [{index, url, pid, state}], \"dir\"}, where state is running,
silent or dead.";

pub(crate) const MASTERS_EXAMPLES: &str = "\
Examples:
  eval \"$(quorumlock masters start)\"
  quorumlock masters start --count 3 --dir ./masters
  quorumlock masters status
  quorumlock masters stop";

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  quorumlock completions bash > ~/.local/share/bash-completion/completions/quorumlock
  quorumlock completions zsh > ~/.zfunc/_quorumlock
  quorumlock completions fish > ~/.config/fish/completions/quorumlock.fish";
