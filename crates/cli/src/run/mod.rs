//! `quorumlock run`: acquire, run COMMAND under the warden, release, return what COMMAND returned.
//!
//! Every path, a signal included, ends in a release (or rollback) and a close.

mod program;
mod report;
mod supervise;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorumlock::{Guard, Redlock, Released};

use crate::args::Run;
use crate::clock::Instant;
use crate::durations::show;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::settings::{self, Settings};
use crate::signals::Signals;
use crate::warden::{End, Program};
use crate::{render, session};
use program::Missing;
use report::{Outcome, Report};
use supervise::Ending;

/// COMMAND is ended when this much more than the grace is left of the validity: time to tell it.
const MARGIN: Duration = Duration::from_millis(50);
/// The grace unless said, unless a quarter of the TTL is smaller.
const GRACE: Duration = Duration::from_secs(5);

/// A `run` whose input has been checked.
#[derive(Debug)]
struct Plan {
    resource: Vec<u8>,
    program: Program,
    grace: Duration,
    args: Run,
}

/// Runs; prints what went wrong, writes the report, says how to exit.
pub(crate) async fn run(settings: &Settings, args: Run) -> Exit {
    let to = report::target(&args, settings.json());
    let result = match Plan::check(args) {
        Ok(plan) => carry_out(settings, plan).await,
        Err(failure) => Err(failure),
    };
    let (exit, json) = match result {
        Ok(report) => {
            report
                .complaints
                .iter()
                .for_each(|complaint| render::complain(complaint));
            (report.exit, report.to_json())
        }
        Err(failure) => (render::failure(&failure, false), failure.to_json()),
    };
    report::write(to, &json);
    exit
}

impl Plan {
    /// Refuses what can be refused before a master is asked.
    fn check(args: Run) -> Result<Self, Failure> {
        let resource = settings::resource(&args.resource)?;
        let grace = grace(args.ttl, args.grace)?;
        let path = std::env::var_os("PATH");
        let program = program::find(&args.command, path.as_deref())
            .map_err(|missing| refused(missing, args.command.first()))?;
        Ok(Plan {
            resource,
            program,
            grace,
            args,
        })
    }

    /// The least validity with which COMMAND may be started.
    fn least_validity(&self) -> Duration {
        self.grace.saturating_add(MARGIN)
    }
}

/// The grace, if the TTL leaves room for it: between the watchdog's extension at a third of the TTL and the moment when
/// COMMAND must be told, at least one extension has to fit.
fn grace(ttl: Duration, given: Option<Duration>) -> Result<Duration, Failure> {
    let grace = given.unwrap_or(GRACE.min(ttl / 4));
    if grace > ttl / 2 {
        return Err(Failure::bad_input(format!(
            "a grace of {} is more than half of the TTL of {}; COMMAND would have to be ended before the lock could be extended",
            show(grace),
            show(ttl)
        )));
    }
    // A third until the extension, a hundredth for drift.
    let room = ttl.saturating_sub(ttl / 3).saturating_sub(ttl / 100);
    if grace.saturating_add(MARGIN) >= room {
        return Err(Failure::bad_input(format!(
            "a TTL of {} is too short for a grace of {}: {} for ending COMMAND would leave no time to extend the lock; \
             give a longer --ttl, or a shorter --grace",
            show(ttl),
            show(grace),
            show(grace.saturating_add(MARGIN))
        )));
    }
    Ok(grace)
}

fn refused(missing: Missing, name: Option<&OsString>) -> Failure {
    let name = name
        .map(|name| crate::names::show(name.as_bytes()))
        .unwrap_or_default();
    match missing {
        Missing::NotFound => Failure::new(
            "not_found",
            Exit::NotFound,
            format!("'{name}' was not found; nothing was locked"),
        ),
        Missing::NotExecutable => Failure::new(
            "not_executable",
            Exit::NotExecutable,
            format!("'{name}' cannot be executed; nothing was locked"),
        ),
    }
}

async fn carry_out(settings: &Settings, plan: Plan) -> Result<Report, Failure> {
    let mut signals =
        Signals::all().map_err(|error| Failure::system("cannot take signals", &error))?;
    let began = Instant::now();
    let redlock = tokio::select! {
        connected = session::connect(settings) => connected?,
        number = signals.next_ending() => return Err(Failure::signal(number)),
    };
    let acquired = tokio::select! {
        acquired = acquire(&redlock, &plan) => acquired,
        number = signals.next_ending() => Err(Failure::signal(number)),
    };
    let result = match acquired {
        Ok(guard) => hold(&guard, &plan, &mut signals, began).await,
        Err(failure) => Err(failure.with_conflict_exit(plan.args.conflict_exit)),
    };
    session::close(&redlock).await;
    result
}

async fn acquire(redlock: &Redlock, plan: &Plan) -> Result<Guard, Failure> {
    let args = &plan.args;
    let mut lock = redlock
        .lock(&plan.resource)
        .ttl(args.ttl)
        .min_validity(plan.least_validity());
    if let Some(longest) = args.max_hold {
        lock = lock.max_hold(longest);
    }
    let once = args.no_wait || args.wait.is_some_and(|wait| wait.is_zero());
    Ok(match args.wait {
        _ if once => lock.try_acquire().await?,
        Some(wait) => lock.wait(wait).acquire().await?,
        None => lock.acquire().await?,
    })
}

/// Runs COMMAND while the guard holds, then releases.
async fn hold(
    guard: &Guard,
    plan: &Plan,
    signals: &mut Signals,
    began: Instant,
) -> Result<Report, Failure> {
    let acquired = Instant::now();
    let (grants, token) = (guard.grants(), guard.token().to_owned());
    let environment = [
        ("QUORUMLOCK_RESOURCE", plan.args.resource.as_os_str()),
        ("QUORUMLOCK_TOKEN", OsStr::new(token.as_str())),
    ];
    let ending = supervise::supervise(guard, &plan.program, plan.grace, environment, signals).await;
    let lapsed = !guard.is_held();
    let released = guard.release().await;
    let held = Instant::now().since(acquired);
    let mut ending = ending.map_err(|error| Failure::system("cannot start COMMAND", &error))?;
    if ending.loss.is_none() && ending.started {
        ending.loss = match &released {
            _ if lapsed => Some("its validity had ended before COMMAND had".to_owned()),
            Ok(Released::NoLongerOurs) => {
                Some("when it was released, it was no longer ours".to_owned())
            }
            Ok(Released::WasOurs) | Err(_) => None,
        };
    }
    let mut report = Report {
        resource: plan.resource.clone(),
        token,
        grants,
        waited: acquired.since(began),
        held,
        released: matches!(&released, Ok(Released::WasOurs)),
        outcome: Outcome::NotStarted,
        lost: ending.loss.clone(),
        exit: Exit::Other,
        complaints: Vec::new(),
    };
    if let (Err(error), None) = (&released, &ending.loss) {
        report.complaints.push(format!(
            "the release could not be confirmed, so the lock may stay until its TTL of {} ends: {error}",
            show(plan.args.ttl)
        ));
    }
    conclude(report, ending, plan)
}

/// How it ended, for the report, the exit status and the user.
fn conclude(mut report: Report, ending: Ending, plan: &Plan) -> Result<Report, Failure> {
    let name = crate::names::show(&plan.resource);
    if let Some(errno) = ending.refused {
        let error = std::io::Error::from_raw_os_error(errno);
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        (report.exit, report.outcome) = (
            if missing {
                Exit::NotFound
            } else {
                Exit::NotExecutable
            },
            Outcome::NotStarted,
        );
        report
            .complaints
            .push(format!("COMMAND could not be executed: {error}"));
        return Ok(report);
    }
    if !ending.started {
        return Err(match (ending.interrupted, ending.loss) {
            (Some(number), _) => Failure::signal(number),
            (None, Some(loss)) => Failure::lost(format!(
                "the lock on '{name}' was lost before COMMAND was started: {loss}"
            )),
            (None, None) => Failure::new("system", Exit::Other, "COMMAND was not started"),
        });
    }
    let end = ending
        .end
        .unwrap_or(End::Signal(rustix::process::Signal::KILL.as_raw()));
    report.outcome = match end {
        End::Status(status) => Outcome::Exited(status),
        End::Signal(number) => Outcome::Signaled(number),
    };
    report.exit = match end {
        _ if ending.loss.is_some() => Exit::Lost,
        End::Status(status) => Exit::Status(status),
        End::Signal(number) => Exit::Signal(number),
    };
    if ending.warden_died && ending.loss.is_none() {
        report
            .complaints
            .push("the warden was killed, and COMMAND with it".to_owned());
    }
    if let Some(loss) = ending.loss {
        let after = match end {
            End::Status(status) => format!("it returned {status}"),
            End::Signal(number) => format!("signal {number} ended it"),
        };
        report.complaints.push(format!(
            "the lock on '{name}' was lost while COMMAND ran: {loss}. COMMAND has ended: {after}"
        ));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ttl_ms: u64, given_ms: Option<u64>, expected: Result<u64, &str>) {
        let got = grace(
            Duration::from_millis(ttl_ms),
            given_ms.map(Duration::from_millis),
        );
        match (got, expected) {
            (Ok(got), Ok(ms)) => {
                assert_eq!(got, Duration::from_millis(ms), "{ttl_ms}, {given_ms:?}")
            }
            (Err(failure), Err(part)) => {
                assert_eq!(failure.exit, Exit::BadInput);
                assert!(failure.message.contains(part), "{}", failure.message);
            }
            (got, _) => panic!("{ttl_ms}, {given_ms:?}: {got:?}"),
        }
    }

    #[test]
    fn the_grace_is_the_smaller_of_five_seconds_and_a_quarter_of_the_ttl() {
        check(30_000, None, Ok(5_000));
        check(8_000, None, Ok(2_000));
        check(200, None, Ok(50));
        check(30_000, Some(15_000), Ok(15_000));
        check(30_000, Some(0), Ok(0));
        check(30_000, Some(15_001), Err("more than half"));
        check(300, Some(150), Err("too short"));
        check(100, None, Err("too short"));
        check(0, None, Err("too short"));
    }
}
