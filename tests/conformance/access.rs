//! The same steps through every way of reaching a server: passwords, users, databases, sockets,
//! without `INFO` and `HELLO`.

use crate::site::{Site, say};
use crate::steps;
use quorumlock_masters::Flavour;

/// Runs it for every kind of server that can be had.
async fn on_all<F: Future<Output = ()>>(run: impl Fn(Flavour) -> F) {
    for flavour in [Flavour::Redis, Flavour::Redis8, Flavour::Valkey9] {
        if flavour.available().is_some() {
            run(flavour).await;
        } else {
            say(&format!(
                "conformance: {flavour:?} cannot be had here; its access did not run"
            ));
        }
    }
}

#[tokio::test]
async fn conformance_with_a_password() {
    on_all(|flavour| async move {
        // Characters that a URL has to escape.
        let site = Site::set_up(&flavour, 3, |builder| builder.password("p:@/ ?#%&"))
            .by("password", |server| {
                format!("redis://:p%3A%40%2F%20%3F%23%25%26@{}", server.address())
            })
            .after(&["AUTH", "p:@/ ?#%&"]);
        steps::run(&site).await;
    })
    .await;
}

#[tokio::test]
async fn conformance_in_another_database() {
    on_all(|flavour| async move {
        let site = Site::servers(&flavour, 3)
            .by("database 3", |server| format!("{}/3", server.url()))
            .after(&["SELECT", "3"]);
        steps::run(&site).await;
        for server in site.fleet().iter() {
            assert!(server.keys().is_empty(), "something is in database 0");
        }
    })
    .await;
}

#[tokio::test]
async fn conformance_by_unix_sockets() {
    on_all(|flavour| async move {
        let site = Site::set_up(&flavour, 3, |builder| {
            builder.unix_socket().args(["--unixsocketperm", "700"])
        })
        .by("unix socket", |server| {
            format!("unix://{}", server.socket().unwrap().display())
        });
        steps::run(&site).await;
    })
    .await;
}

/// A server or proxy that knows no `HELLO` speaks the older protocol.
#[tokio::test]
async fn conformance_without_hello() {
    on_all(|flavour| async move {
        let site = Site::set_up(&flavour, 3, |builder| {
            builder
                .password("secret")
                .args(["--rename-command", "HELLO", ""])
        })
        .after(&["AUTH", "secret"]);
        steps::run(&site).await;
    })
    .await;
}
