//! TLS, by URL and by redis-rs's own types: `cargo test --features tls --test tls`.
//!
//! The application installs the crypto provider, since rustls comes without one.

#![cfg(feature = "tls")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails by panicking"
)]

use quorumlock::{FaultKind, Redlock, Released, redis};
use quorumlock_masters::{Server, TlsFiles};
use std::time::Duration;

/// A self-signed authority for `localhost`, as files.
fn certificates(folder: &std::path::Path) -> (TlsFiles, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let files = TlsFiles {
        cert: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        ca: folder.join("cert.pem"),
    };
    std::fs::write(&files.cert, &cert).unwrap();
    std::fs::write(&files.key, &key).unwrap();
    (files, cert.into_bytes())
}

fn localhost(server: &Server) -> String {
    let url = server.tls_url().expect("the server has a TLS port");
    url.replace("127.0.0.1", "localhost")
}

#[tokio::test]
async fn locks_over_tls_with_an_authority_of_our_own() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (files, root) = certificates(folder.path());
    let servers: Vec<Server> = (0..3)
        .map(|_| Server::builder().tls(files.clone()).start().unwrap())
        .collect();

    let trusted = servers.iter().map(|server| {
        let certificates = redis::TlsCertificates {
            client_tls: None,
            root_cert: Some(root.clone()),
        };
        let client = redis::Client::build_with_tls(localhost(server), certificates).unwrap();
        client.get_connection_info().clone()
    });
    let redlock = Redlock::connect(trusted).await.unwrap();
    let guard = redlock
        .lock("a")
        .ttl(Duration::from_secs(5))
        .try_acquire()
        .await
        .unwrap();
    assert!(guard.extend(Duration::from_secs(8)).await.is_ok());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);

    // Without the authority nobody is believed, and the error says so for each master.
    let strangers = Redlock::connect(servers.iter().map(localhost))
        .await
        .unwrap();
    let error = strangers.lock("a").try_acquire().await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    for master in error.masters() {
        match master.answer() {
            quorumlock::Answer::Failed(fault) => {
                assert_ne!(fault.kind(), FaultKind::Timeout, "{fault}");
            }
            other => panic!("{other}"),
        }
    }
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}
