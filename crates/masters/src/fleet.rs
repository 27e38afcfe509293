//! Several servers at once, started side by side.
//!
//! They share nothing but the machine; they are no cluster and know nothing of each other.

use std::ops::Deref;
use std::thread;
use std::time::Duration;

use crate::clock::eventually;
use crate::fail;
use crate::server::Server;
use crate::start::{ServerBuilder, StartError};

/// N servers, used as a slice of [`Server`].
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Server>,
}

impl Fleet {
    /// Starts this many default servers in parallel.
    ///
    /// # Panics
    /// One does not start; [`Fleet::with`] gives the error instead.
    #[must_use]
    #[track_caller]
    pub fn start(count: usize) -> Self {
        Self::with(count, |_| Server::builder()).unwrap_or_else(|error| fail(&error.to_string()))
    }

    /// Starts this many servers in parallel, each with the settings given for its index.
    ///
    /// # Errors
    /// The first error of [`ServerBuilder::start`]; the others are ended.
    pub fn with(
        count: usize,
        settings: impl Fn(usize) -> ServerBuilder,
    ) -> Result<Self, StartError> {
        let builders: Vec<_> = (0..count).map(settings).collect();
        let started: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = builders
                .into_iter()
                .map(|builder| scope.spawn(|| builder.start()))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| fail("a server's starter panicked"))
                })
                .collect()
        });
        Ok(Self {
            servers: started.into_iter().collect::<Result<_, _>>()?,
        })
    }

    /// The URL of each, in order.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// How many keys there are on all running servers together.
    ///
    /// # Panics
    /// A running server does not answer.
    #[must_use]
    #[track_caller]
    pub fn total_keys(&self) -> usize {
        self.servers
            .iter()
            .filter(|server| server.is_running())
            .map(|server| server.keys().len())
            .sum()
    }

    /// The indices of the running servers that have the key.
    ///
    /// # Panics
    /// A running server does not answer.
    #[must_use]
    #[track_caller]
    pub fn holders(&self, key: impl AsRef<[u8]>) -> Vec<usize> {
        let key = key.as_ref();
        let found = self
            .servers
            .iter()
            .enumerate()
            .filter(|(_, server)| server.is_running() && server.exists(key));
        found.map(|(index, _)| index).collect()
    }

    /// Waits until no running server has the key.
    ///
    /// # Panics
    /// * one still has it after that time; the message says which, its value and its time left;
    /// * a running server does not answer.
    #[track_caller]
    pub fn assert_no_key(&self, key: impl AsRef<[u8]>, within: Duration) {
        let key = key.as_ref();
        if !eventually(within, || self.holders(key).is_empty()) {
            let left: Vec<_> = self
                .holders(key)
                .into_iter()
                .map(|index| self.describe(index, key))
                .collect();
            fail(&format!(
                "after {within:?} the key {} is still on: {}",
                key.escape_ascii(),
                left.join("; ")
            ));
        }
    }

    #[track_caller]
    fn describe(&self, index: usize, key: &[u8]) -> String {
        let server = &self.servers[index];
        let value = server
            .command(&[b"GET".as_slice(), key])
            .map_or_else(|error| error.to_string(), |reply| reply.text());
        format!(
            "server {index} at {} ({value}, {:?} left)",
            server.address(),
            server.pttl(key)
        )
    }
}

impl Deref for Fleet {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}
