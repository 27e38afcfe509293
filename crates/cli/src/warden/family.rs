//! Processes: who descends from whom, and how all of them are ended.
//!
//! On Linux every descendant is found, also one that left the process group or the session, because orphans come back to
//! the subreaper. Elsewhere only the process group is in reach.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process_group};

/// This very binary, also after its file was replaced or deleted.
pub(super) fn this_binary() -> Command {
    let path = if cfg!(target_os = "linux") && std::fs::exists("/proc/self/exe").unwrap_or(false) {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    };
    let mut command = Command::new(path.unwrap_or_else(|_| "quorumlock".into()));
    std::os::unix::process::CommandExt::arg0(&mut command, "quorumlock");
    command
}

/// The socket that the parent gave as standard input, as a descriptor that no child inherits.
pub(super) fn socket_on_stdin() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Asks the kernel for this signal when the parent dies, where there is such a thing.
pub(super) fn die_with_parent(signal: Signal) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(signal)) {
        debug_assert!(false, "PR_SET_PDEATHSIG: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
}

/// Makes orphaned descendants children of this process, where there is such a thing.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        debug_assert!(false, "PR_SET_CHILD_SUBREAPER: {error}");
    }
}

/// Gives the process a name that `ps` and `pgrep` show, instead of that of the link in /proc.
pub(super) fn be_called(name: &std::ffi::CStr) {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(name);
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

/// Whose processes are meant: everything that COMMAND started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// COMMAND's process group; `None` once its number may have been given to somebody else.
    pub(super) group: Option<Pid>,
    /// The process to which orphans come back.
    pub(super) ancestor: Pid,
    /// Leaves out descendants that are older, in clock ticks since the host started; zero leaves out none.
    pub(super) born_since: u64,
}

impl Family {
    /// Sends a signal to the process group, and to every descendant that left it.
    ///
    /// An error means that nobody is left there, or that it belongs to another user: out of reach, as `--help` says.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
        #[cfg(target_os = "linux")]
        linux::signal_outsiders(self, signal);
    }

    /// Whether anybody is left, zombies aside.
    pub(super) fn lives(&self) -> bool {
        #[cfg(target_os = "linux")]
        return linux::anybody(self);
        #[cfg(not(target_os = "linux"))]
        self.group
            .is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
    }
}

/// When the process was started, in clock ticks since the host started; zero if that cannot be found out.
pub(super) fn birth(pid: Pid) -> u64 {
    #[cfg(target_os = "linux")]
    return linux::Process::read(pid.as_raw_nonzero().get()).map_or(0, |process| process.start);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        0
    }
}

#[cfg(target_os = "linux")]
mod linux {
    //! The descendants of a process, from /proc.

    use std::collections::BTreeMap;

    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    use super::Family;

    /// What /proc says of a process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Process {
        dead: bool,
        parent: i32,
        group: i32,
        pub(super) start: u64,
    }

    impl Process {
        pub(super) fn read(pid: i32) -> Option<Self> {
            Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        }

        /// Reads a line as `proc_pid_stat(5)` describes it; the name, in brackets, may hold anything.
        pub(super) fn parse(stat: &str) -> Option<Self> {
            let (_, after_name) = stat.rsplit_once(')')?;
            let field = |number: usize| after_name.split_whitespace().nth(number.checked_sub(3)?);
            Some(Process {
                dead: matches!(field(3)?, "Z" | "X"),
                parent: field(4)?.parse().ok()?,
                group: field(5)?.parse().ok()?,
                start: field(22)?.parse().ok()?,
            })
        }
    }

    pub(super) fn anybody(family: &Family) -> bool {
        members(family).next().is_some()
    }

    pub(super) fn signal_outsiders(family: &Family, signal: Signal) {
        let group = family.group.map_or(0, |group| group.as_raw_nonzero().get());
        for (raw, seen) in members(family).filter(|(_, seen)| seen.group != group) {
            let Some(pid) = Pid::from_raw(raw) else {
                continue;
            };
            // The descriptor names one process for good; that it is still the one that was seen is checked after opening.
            let handle = pidfd_open(pid, PidfdFlags::empty());
            if Process::read(raw).is_none_or(|now| now.start != seen.start) {
                continue;
            }
            let _ = match handle {
                Ok(handle) => pidfd_send_signal(handle, signal),
                // A kernel or a sandbox without process descriptors.
                Err(_) => kill_process(pid, signal),
            };
        }
    }

    fn members(family: &Family) -> impl Iterator<Item = (i32, Process)> {
        let born_since = family.born_since;
        descendants(family.ancestor.as_raw_nonzero().get())
            .into_iter()
            .filter(move |(_, process)| !process.dead && process.start >= born_since)
    }

    fn descendants(ancestor: i32) -> Vec<(i32, Process)> {
        let all = everybody();
        let descends = |process: &Process| {
            let mut parent = process.parent;
            // A bound, since /proc is read while it changes and might seem to hold a circle.
            for _ in 0..all.len() {
                if parent == ancestor {
                    return true;
                }
                match all.get(&parent) {
                    Some(next) => parent = next.parent,
                    None => return false,
                }
            }
            false
        };
        all.iter()
            .filter(|(_, process)| descends(process))
            .map(|(pid, process)| (*pid, *process))
            .collect()
    }

    fn everybody() -> BTreeMap<i32, Process> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return BTreeMap::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, Process::read(pid)?)))
            .collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_may_hold_brackets_and_blanks() {
            let line =
                "77 (a ) 1 (b)) S 12 34 34 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 200";
            assert_eq!(
                Process::parse(line),
                Some(Process {
                    dead: false,
                    parent: 12,
                    group: 34,
                    start: 987_654
                })
            );
            assert_eq!(Process::parse("77 (x"), None);
        }

        #[test]
        fn this_process_descends_from_its_parent() {
            let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
            let me = i32::try_from(std::process::id()).unwrap();
            assert!(descendants(parent).iter().any(|(pid, _)| *pid == me));
            assert!(!descendants(me).iter().any(|(pid, _)| *pid == parent));
        }
    }
}
