//! `quorumlock masters`: throwaway masters on this machine.

use std::path::{Path, PathBuf};

use quorumlock_masters::local::{self, LocalError, LocalMaster};
use serde_json::{Value, json};

use crate::args::Masters;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Answer;

/// Starts, stops or shows them.
pub(crate) fn masters(action: &Masters) -> Result<Answer, Failure> {
    match action {
        Masters::Start { count, dir } => start(usize::from(*count), dir.as_deref()),
        Masters::Stop { dir } => stop(dir.as_deref()),
        Masters::Status { dir } => status(dir.as_deref()),
    }
}

/// The variable to set goes alone to standard output, for `eval`.
fn start(count: usize, dir: Option<&Path>) -> Result<Answer, Failure> {
    let started = local::start(count, dir).map_err(refused)?;
    let head = if started.fresh {
        format!(
            "{} masters started in {}",
            started.masters.len(),
            started.dir.display()
        )
    } else {
        format!(
            "masters run already in {}; nothing was started",
            started.dir.display()
        )
    };
    Ok(Answer {
        text: export(&started.masters),
        note: format!("{head}\n{}", table(&started.masters)),
        json: Some(to_json(&started.masters, started.dir)),
        exit: Exit::Done,
    })
}

fn stop(dir: Option<&Path>) -> Result<Answer, Failure> {
    let stopped = local::stop(dir).map_err(refused)?;
    let text = match stopped.len() {
        0 => "no masters were running".to_owned(),
        count => format!("{count} masters stopped"),
    };
    // Whoever asks in a script evaluates nothing: what was said is for people.
    Ok(Answer {
        text: String::new(),
        note: text,
        json: Some(to_json(&stopped, chosen(dir))),
        exit: Exit::Done,
    })
}

fn status(dir: Option<&Path>) -> Result<Answer, Failure> {
    let masters = local::status(dir).map_err(refused)?;
    let text = if masters.is_empty() {
        format!("no masters were started in {}", chosen(dir).display())
    } else {
        format!("{}\n{}", table(&masters), export(&masters))
    };
    Ok(Answer {
        text,
        note: String::new(),
        json: Some(to_json(&masters, chosen(dir))),
        exit: Exit::Done,
    })
}

fn refused(error: LocalError) -> Failure {
    Failure::new("masters", Exit::Other, error.to_string())
}

fn chosen(dir: Option<&Path>) -> PathBuf {
    dir.map_or_else(local::default_dir, Path::to_owned)
}

/// Every recorded master, one that died included: a list that shrank would have another quorum.
fn export(masters: &[LocalMaster]) -> String {
    let urls: Vec<&str> = masters.iter().map(|master| master.url.as_str()).collect();
    format!("export QUORUMLOCK_MASTERS={}", urls.join(","))
}

fn table(masters: &[LocalMaster]) -> String {
    let line = |(index, master): (usize, &LocalMaster)| {
        let state = state(master);
        format!(
            "  {}  {}  {}  pid {}",
            index + 1,
            master.url,
            state,
            master.pid
        )
    };
    masters
        .iter()
        .enumerate()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn state(master: &LocalMaster) -> &'static str {
    match (master.alive, master.answering) {
        (true, true) => "running",
        (true, false) => "silent",
        (false, _) => "dead",
    }
}

fn to_json(masters: &[LocalMaster], dir: PathBuf) -> Value {
    let master = |(index, master): (usize, &LocalMaster)| json!({"index": index, "url": master.url, "pid": master.pid, "state": state(master)});
    json!({
        "masters": masters.iter().enumerate().map(master).collect::<Vec<_>>(),
        "dir": dir.to_string_lossy(),
    })
}
