//! How a server is to be started, and the starting itself.
//!
//! It waits for an answered PING of *this* process, not for an open port: the port may be somebody else's.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::poll;
use crate::ports::free_port;
use crate::process::Process;
use crate::program::Flavour;
use crate::server::Server;
use crate::wire::{CommandError, Wire};

/// Generous, since a loaded machine starts many servers at once; a failed start is found much sooner.
const START: Duration = Duration::from_secs(20);
const ASK: Duration = Duration::from_millis(500);

/// The files of a server that also speaks TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority that signed it.
    pub ca: PathBuf,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// This program is not installed here.
    NoProgram(Flavour),
    /// The port was taken, again and again if it was ours to choose.
    PortTaken(u16),
    /// The server ended, or did not answer in time; with the end of its log.
    NotReady(String),
    /// A file or process operation failed.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram(flavour) => {
                write!(f, "no server program for {flavour:?} on this machine")
            }
            Self::PortTaken(port) => write!(f, "port {port} is taken"),
            Self::NotReady(log) => {
                write!(f, "the server did not come up; its log ends with:\n{log}")
            }
            Self::Io(error) => write!(f, "starting the server: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How to start a [`Server`].
#[derive(Debug, Clone, Default)]
pub struct ServerBuilder {
    flavour: Flavour,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    port: Option<u16>,
    socket: bool,
    tls: Option<TlsFiles>,
}

impl ServerBuilder {
    /// The server program; `redis-server` from `PATH` unless told otherwise.
    #[must_use]
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Further arguments, such as `["--maxmemory", "1mb"]`; a later one beats an earlier one.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Keeps the data over a restart: `--appendonly yes`.
    #[must_use]
    pub fn persistent(self) -> Self {
        self.args(["--appendonly", "yes"])
    }

    /// Demands this password; [`Server::url`] then carries it.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        self.args(["--requirepass", password])
    }

    /// An environment variable of the server process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// A fixed port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Listens on a Unix socket in its folder, too.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Speaks TLS on a second port, too; client certificates are not asked for.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Starts it, and returns once it has answered a PING.
    ///
    /// # Errors
    /// * the program is not installed here;
    /// * the given port is taken;
    /// * the server refused its arguments or did not answer within 20 s;
    /// * its folder or process could not be made.
    pub fn start(self) -> Result<Server, StartError> {
        let program = self
            .flavour
            .available()
            .ok_or_else(|| StartError::NoProgram(self.flavour.clone()))?;
        let folder = tempfile::Builder::new().prefix("quorumlock-").tempdir()?;
        let mut taken = StartError::PortTaken(self.port.unwrap_or_default());
        for _ in 0..20 {
            let recipe = self.recipe(program.clone(), folder.path())?;
            match recipe.launch() {
                Ok(process) => return Ok(Server::new(recipe, process, folder)),
                Err(error @ StartError::PortTaken(_)) if self.port.is_none() => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    fn recipe(&self, program: PathBuf, folder: &Path) -> Result<Recipe, StartError> {
        let fresh = || free_port().ok_or(StartError::PortTaken(0));
        let port = self.port.map_or_else(fresh, Ok)?;
        let tls_port = self.tls.as_ref().map(|_| fresh()).transpose()?;
        let socket = self.socket.then(|| folder.join("socket"));
        let mut args = base_args(port, folder);
        if let Some(path) = &socket {
            args.extend(["--unixsocket".into(), path.into()]);
        }
        if let (Some(files), Some(port)) = (&self.tls, tls_port) {
            args.extend([
                "--tls-port".into(),
                port.to_string().into(),
                "--tls-auth-clients".into(),
                "no".into(),
            ]);
            args.extend([
                "--tls-cert-file".into(),
                (&files.cert).into(),
                "--tls-key-file".into(),
                (&files.key).into(),
            ]);
            args.extend(["--tls-ca-cert-file".into(), (&files.ca).into()]);
        }
        args.extend(self.args.iter().cloned());
        let password = self
            .args
            .windows(2)
            .rfind(|pair| pair[0] == "--requirepass")
            .map(|pair| pair[1].to_string_lossy().into_owned());
        Ok(Recipe {
            program,
            port,
            tls_port,
            socket,
            args,
            envs: self.envs.clone(),
            password,
            folder: folder.to_owned(),
            log: folder.join("log"),
        })
    }
}

fn base_args(port: u16, folder: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "--bind",
        "127.0.0.1",
        "--daemonize",
        "no",
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
        folder.into(),
    ]);
    args
}

/// Everything that is needed to start the same server again.
#[derive(Debug)]
pub(crate) struct Recipe {
    program: PathBuf,
    pub(crate) port: u16,
    pub(crate) tls_port: Option<u16>,
    pub(crate) socket: Option<PathBuf>,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    pub(crate) password: Option<String>,
    folder: PathBuf,
    pub(crate) log: PathBuf,
}

impl Recipe {
    pub(crate) fn launch(&self) -> Result<Process, StartError> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let before = usize::try_from(log.metadata()?.len()).unwrap_or(usize::MAX);
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.envs.iter().map(|(name, value)| (name, value)));
        command
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        let mut process = Process::spawn(&mut command, &self.folder)?;
        let came_up = poll(START, || {
            if !process.is_running() {
                return Some(false);
            }
            self.is_ready(process.id(), before).then_some(true)
        });
        if came_up == Some(true) {
            return Ok(process);
        }
        let log = self.log_since(before);
        if log.contains("Address already in use") {
            Err(StartError::PortTaken(self.port))
        } else {
            Err(StartError::NotReady(tail(&log)))
        }
    }

    /// A connection to the server, authenticated if it has a password.
    pub(crate) fn wire(&self, timeout: Duration) -> Result<Wire, CommandError> {
        let mut wire = Wire::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), timeout)?;
        if let Some(password) = &self.password {
            wire.call(&["AUTH", password])?;
        }
        Ok(wire)
    }

    /// Whether this very process answers: INFO names it; where INFO is barred, its own log says that it is ready.
    fn is_ready(&self, pid: u32, log_from: usize) -> bool {
        let Ok(mut wire) = self.wire(ASK) else {
            return false;
        };
        if wire.call(&["PING"]).is_err() {
            return false;
        }
        match wire.call(&["INFO", "server"]) {
            Ok(info) => info
                .text()
                .lines()
                .any(|line| line.trim_end() == format!("process_id:{pid}")),
            Err(_) => self
                .log_since(log_from)
                .contains("Ready to accept connections"),
        }
    }

    fn log_since(&self, from: usize) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
    }
}

/// The last lines of a log, enough to see why.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines
        .get(lines.len().saturating_sub(40)..)
        .unwrap_or_default()
        .join("\n")
}
