//! Finds free ports on loopback, below the range from which the system takes ports for outgoing connections.
//!
//! A port is not reserved: whoever starts a listener on it must be ready to lose the race and to ask again. Ports of
//! the outgoing range are avoided because one could be taken while a killed server waits for its restart.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const LOWEST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago, and that this process has not been given before (until all were given).
pub(crate) fn free_port() -> Option<u16> {
    (0..COUNT).find_map(|_| listener_on(next_candidate()).map(|(_, port)| port))
}

/// A listener on a port of its own, from the same range.
pub(crate) fn free_listener() -> Option<(TcpListener, u16)> {
    (0..COUNT).find_map(|_| listener_on(next_candidate()))
}

fn listener_on(port: u16) -> Option<(TcpListener, u16)> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .ok()
        .map(|listener| (listener, port))
}

/// Each process walks the range from a place of its own, so that parallel test processes seldom meet.
fn next_candidate() -> u16 {
    let step = NEXT.fetch_add(1, Ordering::Relaxed);
    let start = std::process::id().wrapping_mul(131);
    let port = LOWEST + start.wrapping_add(step) % COUNT;
    u16::try_from(port).unwrap_or(u16::MAX)
}
