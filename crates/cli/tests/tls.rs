//! Masters behind TLS: `cargo test -p quorumlock-cli --features tls --test tls`.
#![cfg(feature = "tls")]

mod support;

use quorumlock_masters::{Server, TlsFiles};
use support::{on_urls, output, run, words};

#[test]
fn masters_behind_tls_are_trusted_by_an_authority_of_our_own() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let files = TlsFiles {
        cert: path("cert.pem"),
        key: path("key.pem"),
        ca: path("cert.pem"),
    };
    let server = Server::builder().tls(files).start().unwrap();
    let url = server.tls_url().unwrap().replace("127.0.0.1", "localhost");
    let urls = [url];

    let mut command = on_urls(&urls);
    command.env("QUORUMLOCK_TLS_CA", path("cert.pem"));
    output(command, run("k", &["true"])).expect(0);

    let said = output(on_urls(&urls), words("acquire k --ttl 9s --no-wait"));
    assert!(said.expect(69).err.contains("ertificate"), "{said:?}");

    let mut command = on_urls(&urls);
    command.args(["--tls-ca", "/no/such/file"]);
    output(command, words("status k")).expect(2);
}
