//! Accepts connections, joins each with one to the master, and closes them when told to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::pipe::pipe;
use super::rules::{Close, Rules, Shared, Way};
use crate::lock;

/// Serves until the rules say the end, or the relay is gone.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut rules: watch::Receiver<Rules>,
) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let Ok(mut listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        let now = *rules.borrow_and_update();
        if now.end {
            return;
        }
        if now.refuse {
            drop(listener);
            *lock(&shared.listening) = false;
            while rules.borrow_and_update().refuse {
                if rules.changed().await.is_err() || rules.borrow().end {
                    return;
                }
            }
            listener = loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    Err(_) if !rules.borrow().end => {
                        tokio::time::sleep(Duration::from_millis(5)).await
                    }
                    Err(_) => return,
                }
            };
            *lock(&shared.listening) = true;
            continue;
        }
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                let id = shared.opened();
                tokio::spawn(connection(id, client, Arc::clone(&shared), rules.clone()));
            },
            changed = rules.changed() => if changed.is_err() { return },
        }
    }
}

async fn connection(
    id: u64,
    client: TcpStream,
    shared: Arc<Shared>,
    rules: watch::Receiver<Rules>,
) {
    let _live = Live {
        id,
        shared: Arc::clone(&shared),
    };
    let open = Open(Arc::clone(&shared));
    let mut cut = rules.clone();
    let cut = async move {
        match cut.wait_for(|rules| rules.cut_through >= id).await {
            Ok(rules) => rules.cut_how,
            Err(_) => Close::Finish,
        }
    };
    tokio::pin!(cut);
    let target = tokio::select! {
        target = TcpStream::connect(shared.target) => target,
        how = &mut cut => { close(&client, how); return },
    };
    let Ok(target) = target else {
        close(&client, Close::Reset);
        return;
    };
    let how = tokio::select! {
        ended = joined(id, &client, &target, &shared, &rules, open) => ended.unwrap_or(Close::Finish),
        how = &mut cut => how,
    };
    close(&client, how);
    close(&target, how);
}

/// Runs both directions until both have ended; some when one of them was told to close all.
async fn joined(
    id: u64,
    client: &TcpStream,
    target: &TcpStream,
    shared: &Shared,
    rules: &watch::Receiver<Rules>,
    open: Open,
) -> Option<Close> {
    let eager = |stream: &TcpStream| -> io::Result<()> { stream.set_nodelay(true) };
    if eager(client).and_then(|()| eager(target)).is_err() {
        return Some(Close::Reset);
    }
    let requests = pipe(
        id,
        client,
        target,
        Way::Requests,
        shared,
        rules.clone(),
        Some(open),
    );
    let answers = pipe(
        id,
        target,
        client,
        Way::Answers,
        shared,
        rules.clone(),
        None,
    );
    tokio::try_join!(requests, answers).err()
}

/// Prepares the kind of close that follows when the stream is dropped.
fn close(stream: &TcpStream, how: Close) {
    if how == Close::Reset {
        // It fails only for a socket that is closed already.
        let _closed_already = set_socket_linger(stream, Some(Duration::ZERO));
    }
}

struct Live {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Live {
    fn drop(&mut self) {
        lock(&self.shared.connections).live.remove(&self.id);
    }
}

/// Counts the client as connected until it closes or is cut.
pub(super) struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0.connections).open -= 1;
    }
}
