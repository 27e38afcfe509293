//! One connection of a scripted master: reads, logs, strikes or answers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::answer::answer;
use super::fault::{ConnectFault, Fault};
use super::world::{Peer, World};
use crate::clock::pause;
use crate::lock;
use crate::resp::CommandParser;

/// A client that does not read must not stop others for long.
const WRITE: Duration = Duration::from_secs(2);

struct Session {
    id: u64,
    socket: TcpStream,
    writer: Arc<Mutex<TcpStream>>,
    world: Arc<Mutex<World>>,
    /// Commands are still read and logged, and nothing else is done about them.
    silent: bool,
}

/// Whether a connection goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Close,
}

/// Serves the client on a thread of its own; gives it back if that cannot be.
pub(super) fn start(client: TcpStream, world: Arc<Mutex<World>>) -> Result<(), TcpStream> {
    let ready = client
        .set_nodelay(true)
        .and_then(|()| client.set_write_timeout(Some(WRITE)));
    let (Ok(()), Ok(writer), Ok(socket)) = (ready, client.try_clone(), client.try_clone()) else {
        return Err(client);
    };
    let writer = Arc::new(Mutex::new(writer));
    let mut known = lock(&world);
    known.last_connection += 1;
    let id = known.last_connection;
    let peer = Peer {
        socket,
        writer: Arc::clone(&writer),
        resp3: false,
        channels: Default::default(),
    };
    known.connections.insert(id, peer);
    let fault = known.on_connect.clone();
    drop(known);
    let mut session = Session {
        id,
        socket: client,
        writer,
        world,
        silent: fault.is_some(),
    };
    let name = format!("scripted-connection-{id}");
    let run = move || {
        session.greet(fault);
        session.serve();
    };
    // A thread that cannot be made drops the session, which closes the connection.
    drop(std::thread::Builder::new().name(name).spawn(run));
    Ok(())
}

impl Session {
    fn greet(&self, fault: Option<ConnectFault>) {
        match fault {
            None | Some(ConnectFault::Silence) => {}
            Some(ConnectFault::Close) => drop(self.socket.shutdown(Shutdown::Both)),
            Some(ConnectFault::Garbage(bytes)) => {
                self.send(&bytes);
            }
        }
    }

    fn serve(&mut self) {
        let mut parser = CommandParser::default();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = self.socket.read(&mut buffer) {
            if count == 0 {
                return;
            }
            for command in parser.push(buffer.get(..count).unwrap_or_default()) {
                lock(&self.world).journal.note(self.id, command.clone());
                if !self.silent && self.handle(&command) == Next::Close {
                    return;
                }
            }
        }
    }

    fn handle(&mut self, args: &[Vec<u8>]) -> Next {
        let name = args
            .first()
            .map(|name| String::from_utf8_lossy(name).to_ascii_uppercase())
            .unwrap_or_default();
        let fault = lock(&self.world).fault_for(&name, args);
        let Some((fault, after_effect)) = fault else {
            let answer = self.honest(&name, args);
            return self.send(&answer);
        };
        let half = matches!(fault, Fault::HalfThenSilence | Fault::HalfThenCut);
        let answer = if after_effect || half {
            self.honest(&name, args)
        } else {
            Vec::new()
        };
        let first_half = answer.get(..answer.len() / 2).unwrap_or_default();
        match fault {
            Fault::Error(text) => self.send(format!("-{text}\r\n").as_bytes()),
            Fault::Answer(reply) => self.send(&reply.encode(self.is_resp3())),
            Fault::Garbage(bytes) => self.send(&bytes),
            Fault::HalfThenSilence => {
                self.silent = true;
                self.send(first_half)
            }
            Fault::HalfThenCut => {
                self.send(first_half);
                Next::Close
            }
            Fault::Silence => {
                self.silent = true;
                Next::Go
            }
            Fault::Cut => Next::Close,
            Fault::Delay(time) => {
                pause(time);
                let answer = if after_effect {
                    answer
                } else {
                    self.honest(&name, args)
                };
                self.send(&answer)
            }
        }
    }

    /// Does what an honest master does, and gives the bytes of its answer.
    fn honest(&self, name: &str, args: &[Vec<u8>]) -> Vec<u8> {
        let mut world = lock(&self.world);
        let replies = answer(&mut world, self.id, name, args);
        let resp3 = world
            .connections
            .get(&self.id)
            .is_some_and(|peer| peer.resp3);
        replies
            .iter()
            .flat_map(|reply| reply.encode(resp3))
            .collect()
    }

    fn is_resp3(&self) -> bool {
        lock(&self.world)
            .connections
            .get(&self.id)
            .is_some_and(|peer| peer.resp3)
    }

    fn send(&self, bytes: &[u8]) -> Next {
        if lock(&self.writer).write_all(bytes).is_ok() {
            Next::Go
        } else {
            Next::Close
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.socket.shutdown(Shutdown::Both));
        lock(&self.world).connections.remove(&self.id);
    }
}
