//! Starts, recognises and ends the server processes of one folder.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::LocalMaster;
use super::error::LocalError;
use super::state::{Identity, Record, State};
use crate::clock::{eventually, poll};
use crate::ports::free_port;
use crate::resp::Reply;
use crate::start::tail;
use crate::wire::Wire;

const UP: Duration = Duration::from_secs(20);
const DOWN: Duration = Duration::from_secs(3);
const ASK: Duration = Duration::from_millis(500);

/// Starts all, recording each before and after; on an error all are ended again, and the record removed.
pub(super) fn start(dir: &Path, program: PathBuf, count: usize) -> Result<State, LocalError> {
    let mut state = State::new(program);
    state.write(dir)?;
    let started = (0..count).try_for_each(|_| start_one(dir, &mut state));
    if let Err(error) = started {
        end(dir, &state)?;
        state.remove(dir)?;
        return Err(error);
    }
    Ok(state)
}

fn start_one(dir: &Path, state: &mut State) -> Result<(), LocalError> {
    for last_try in (0..20).rev().map(|left| left == 0) {
        let port = free_port().ok_or_else(|| LocalError::NotReady {
            port: 0,
            log: "no free port".to_owned(),
        })?;
        let record = Record {
            port,
            process: None,
        };
        let home = record.home(dir);
        fs::create_dir_all(&home).map_err(LocalError::io(&home))?;
        state.masters.push(record);
        state.write(dir)?;
        let log = match launch(&state.program, port, &home)? {
            Ok(process) => {
                if let Some(record) = state.masters.last_mut() {
                    record.process = Some(process);
                }
                return state.write(dir);
            }
            Err(log) => log,
        };
        if last_try || !log.contains("Address already in use") {
            return Err(LocalError::NotReady {
                port,
                log: tail(&log),
            });
        }
        state.masters.pop();
        fs::remove_dir_all(&home).map_err(LocalError::io(&home))?;
    }
    Ok(())
}

/// Starts one in a session of its own; its log if it does not come up.
fn launch(program: &Path, port: u16, home: &Path) -> Result<Result<Identity, String>, LocalError> {
    let log = home.join("log");
    let mut args: Vec<OsString> = [
        "--daemonize",
        "yes",
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    .map(Into::into)
    .into();
    args.extend([
        "--port".into(),
        port.to_string().into(),
        "--dir".into(),
        home.into(),
        "--logfile".into(),
        (&log).into(),
    ]);
    args.extend(["--pidfile".into(), home.join("pid").into()]);
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = command.status().map_err(LocalError::io(program))?;
    let text = || fs::read_to_string(&log).unwrap_or_default();
    if !began.success() {
        return Ok(Err(format!(
            "{} ended with {began}\n{}",
            program.display(),
            text()
        )));
    }
    let up = poll(UP, || match recognise(port, home) {
        Some(process) => Some(Some(process)),
        None => text().contains("Address already in use").then_some(None),
    });
    Ok(up.flatten().ok_or_else(text))
}

/// The server on this port, if it says that it lives in this folder.
fn recognise(port: u16, home: &Path) -> Option<Identity> {
    let mut wire = Wire::connect(address(port), ASK).ok()?;
    let Reply::Array(dir) = wire.call(&["CONFIG", "GET", "dir"]).ok()? else {
        return None;
    };
    if Path::new(&dir.get(1)?.text()) != home {
        return None;
    }
    let info = wire.call(&["INFO", "server"]).ok()?.text();
    let pid: u32 = info
        .lines()
        .find_map(|line| line.trim_end().strip_prefix("process_id:")?.parse().ok())?;
    Some(Identity {
        pid,
        started: start_time(pid)?,
    })
}

/// Every master of the record, as it is now.
pub(super) fn look(dir: &Path, state: &State) -> Vec<LocalMaster> {
    state
        .masters
        .iter()
        .map(|record| look_at(dir, state, record))
        .collect()
}

fn look_at(dir: &Path, state: &State, record: &Record) -> LocalMaster {
    let process = record
        .process
        .clone()
        .or_else(|| recognise(record.port, &record.home(dir)));
    let alive = process.as_ref().is_some_and(lives);
    let answering = alive
        && Wire::connect(address(record.port), ASK)
            .is_ok_and(|mut wire| wire.call(&["PING"]).is_ok());
    LocalMaster {
        port: record.port,
        pid: process.map(|process| process.pid).unwrap_or_default(),
        url: format!("redis://{}", address(record.port)),
        program: state.program.clone(),
        alive,
        answering,
    }
}

/// Ends every process of the record that is still the one that was started.
pub(super) fn end(dir: &Path, state: &State) -> Result<(), LocalError> {
    let found = state.masters.iter().filter_map(|record| {
        record
            .process
            .clone()
            .or_else(|| recognise(record.port, &record.home(dir)))
    });
    let processes: Vec<_> = found.filter(lives).collect();
    for process in &processes {
        signal(process, Signal::TERM);
    }
    for process in &processes {
        if !eventually(DOWN, || !lives(process)) {
            signal(process, Signal::KILL);
        }
        if !eventually(DOWN, || !lives(process)) {
            return Err(LocalError::Stubborn { pid: process.pid });
        }
    }
    Ok(())
}

fn signal(process: &Identity, signal: Signal) {
    if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw)
        && lives(process)
    {
        // It fails only for a process that has just ended, which is what was wanted.
        let _ended_meanwhile = kill_process(pid, signal);
    }
}

fn lives(process: &Identity) -> bool {
    start_time(process.pid).as_ref() == Some(&process.started)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// When a living process started: the boot and the tick (`/proc/PID/stat`, field 22), or else what ps says.
fn start_time(pid: u32) -> Option<String> {
    if !cfg!(target_os = "linux") {
        let said = Command::new("ps")
            .args(["-o", "lstart=", "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        return Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
            .filter(|text| !text.is_empty());
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may itself contain both; the third is the state.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    if ["Z", "X"].contains(&fields.next()?) {
        return None;
    }
    let tick = fields.nth(18)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{}/{tick}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_is_of_one_process() {
        let own = start_time(std::process::id()).unwrap();
        assert_eq!(start_time(std::process::id()).unwrap(), own);
        assert_eq!(start_time(u32::MAX), None);
        let stranger = Identity {
            pid: std::process::id(),
            started: "another boot/1".to_owned(),
        };
        assert!(!lives(&stranger));
        signal(&stranger, Signal::KILL);
    }
}
