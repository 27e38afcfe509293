//! A minimal blocking client: one connection, one command, one answer.
//!
//! It never reconnects, never retries and pipelines nothing; a test must see what happened.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::resp::{Reply, encode_command};

/// Why a command got no answer that can be used.
#[derive(Debug)]
pub enum CommandError {
    /// The server was not reached, did not answer in time, or answered no RESP.
    Io(io::Error),
    /// The server answered with an error line.
    Server(String),
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "no answer: {error}"),
            Self::Server(text) => write!(f, "the server answered {text}"),
        }
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Server(_) => None,
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One blocking connection to a master.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects; every later read and write is bounded by the same time.
    ///
    /// # Errors
    /// The connection is refused or not made in time.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// * the connection failed, or the answer did not come in time;
    /// * the server answered with an error line.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, CommandError> {
        self.send(&encode_command(args))?;
        match self.receive()? {
            Reply::Error(text) => Err(CommandError::Server(text)),
            reply => Ok(reply),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer; an error line is a value here.
    ///
    /// # Errors
    /// The connection failed or ended, the answer did not come in time, or it is no RESP.
    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }

    /// A second handle on the same socket, to shut it down from another thread.
    pub(crate) fn socket(&self) -> io::Result<TcpStream> {
        self.stream.get_ref().try_clone()
    }

    /// Waits for answers without an end; whoever calls this must shut the socket down.
    pub(crate) fn wait_for_ever(&self) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(None)
    }
}
