//! Everything that the connections of one scripted master share.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use super::fault::{ConnectFault, Fault, FaultRule};
use super::scripts::Scripts;
use super::store::Store;
use crate::lock;
use crate::log::Journal;
use crate::resp::Reply;

/// One connection, as others see it.
#[derive(Debug)]
pub(super) struct Peer {
    /// For closing, which must not wait for a write in progress.
    pub(super) socket: TcpStream,
    /// Answers of its own thread and messages from others take turns.
    pub(super) writer: Arc<Mutex<TcpStream>>,
    pub(super) resp3: bool,
    pub(super) channels: BTreeSet<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) scripts: Scripts,
    pub(super) journal: Journal,
    pub(super) rules: BTreeMap<u64, FaultRule>,
    next_rule: u64,
    pub(super) on_connect: Option<ConnectFault>,
    pub(super) delifeq: bool,
    pub(super) delex: bool,
    info: Vec<(&'static str, String, String)>,
    pub(super) connections: BTreeMap<u64, Peer>,
    pub(super) last_connection: u64,
    pub(super) end: bool,
}

impl World {
    pub(super) fn new(port: u16) -> Self {
        Self {
            store: Store::new(),
            scripts: Scripts::default(),
            journal: Journal::start(),
            rules: BTreeMap::new(),
            next_rule: 0,
            on_connect: None,
            delifeq: false,
            delex: false,
            info: info_of(port),
            connections: BTreeMap::new(),
            last_connection: 0,
            end: false,
        }
    }

    pub(super) fn add_rule(&mut self, rule: FaultRule) -> u64 {
        self.next_rule += 1;
        self.rules.insert(self.next_rule, rule);
        self.next_rule
    }

    /// The fault that strikes this command, and whether its effect comes first.
    pub(super) fn fault_for(&mut self, name: &str, args: &[Vec<u8>]) -> Option<(Fault, bool)> {
        let script = self.scripts.text_of(name, args);
        self.rules.values_mut().rev().find_map(|rule| {
            let strikes = rule.strikes(name, args, script.as_deref());
            strikes.then(|| (rule.fault.clone(), rule.after_effect))
        })
    }

    pub(super) fn set_info(&mut self, field: &str, value: &str) {
        match self.info.iter_mut().find(|(_, known, _)| known == field) {
            Some((_, _, old)) => value.clone_into(old),
            None => self
                .info
                .push(("replication", field.to_owned(), value.to_owned())),
        }
    }

    pub(super) fn info_field(&self, field: &str) -> String {
        self.info
            .iter()
            .find(|(_, known, _)| known == field)
            .map(|(_, _, value)| value.clone())
            .unwrap_or_default()
    }

    /// The text of INFO, of one section or of all.
    pub(super) fn info_text(&self, wanted: &str) -> String {
        let mut text = String::new();
        for (section, title) in [("server", "# Server"), ("replication", "# Replication")] {
            if wanted == section || !["server", "replication"].contains(&wanted) {
                let fields = self.info.iter().filter(|(of, _, _)| *of == section);
                text.push_str(title);
                text.push_str("\r\n");
                text.extend(
                    fields.flat_map(|(_, field, value)| {
                        [field.as_str(), ":", value.as_str(), "\r\n"]
                    }),
                );
                text.push_str("\r\n");
            }
        }
        text
    }

    /// Delivers a message; how many got it.
    pub(super) fn publish(&self, channel: &[u8], message: &[u8]) -> i64 {
        let mut count = 0;
        for peer in self
            .connections
            .values()
            .filter(|peer| peer.channels.contains(channel))
        {
            let push = Reply::Push(vec![
                Reply::bulk("message"),
                Reply::bulk(channel),
                Reply::bulk(message),
            ]);
            drop(lock(&peer.writer).write_all(&push.encode(peer.resp3)));
            count += 1;
        }
        count
    }

    pub(super) fn cut_all(&mut self) {
        for peer in self.connections.values() {
            drop(peer.socket.shutdown(Shutdown::Both));
        }
        self.connections.clear();
    }
}

fn info_of(port: u16) -> Vec<(&'static str, String, String)> {
    let run_id = format!(
        "{:040x}",
        u64::from(std::process::id()) << 16 | u64::from(port)
    );
    let port = port.to_string();
    let process = std::process::id().to_string();
    let server = [
        ("redis_version", "7.2.0"),
        ("redis_mode", "standalone"),
        ("process_id", &process),
        ("run_id", &run_id),
        ("tcp_port", &port),
        ("uptime_in_seconds", "86400"),
    ];
    let replication = [
        ("role", "master"),
        ("connected_slaves", "0"),
        ("master_replid", &run_id),
        ("second_repl_offset", "-1"),
    ];
    let of = |section: &'static str| {
        move |(field, value): (&str, &str)| (section, field.to_owned(), value.to_owned())
    };
    server
        .into_iter()
        .map(of("server"))
        .chain(replication.into_iter().map(of("replication")))
        .collect()
}
