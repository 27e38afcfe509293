//! One verb's time with the masters: connect, work, close; a signal ends it at any point, and everything is rolled back.

use std::time::Duration;

use quorumlock::{MasterAddress, Redlock};

use crate::failure::Failure;
use crate::render::Answer;
use crate::settings::Settings;
use crate::signals::Signals;

/// What is still on its way (rollbacks, releases) gets this long before the process ends.
const CLOSE_AT_MOST: Duration = Duration::from_millis(100);

/// Connects, asks, closes; or fails with the signal that ended it.
pub(crate) async fn ask(
    settings: &Settings,
    work: impl AsyncFnOnce(&Redlock) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let signals = Signals::ending();
    let mut signals = signals.map_err(|error| Failure::system("cannot take signals", &error))?;
    let redlock = tokio::select! {
        connected = connect(settings) => connected?,
        number = signals.next_ending() => return Err(Failure::signal(number)),
    };
    let result = tokio::select! {
        result = work(&redlock) => result,
        number = signals.next_ending() => Err(Failure::signal(number)),
    };
    close(&redlock).await;
    result
}

/// Connects to the masters that the settings name.
pub(crate) async fn connect(settings: &Settings) -> Result<Redlock, Failure> {
    let masters = settings.masters()?;
    let mut builder = Redlock::builder().masters(addresses(masters, settings)?);
    if let Some(prefix) = settings.prefix() {
        builder = builder.prefix(prefix);
    }
    if let Some(longest) = settings.max_ttl() {
        builder = builder.longest_ttl(longest);
    }
    if let Some(timeout) = settings.timeout() {
        builder = builder.attempt_timeout(timeout);
    }
    Ok(builder.connect().await?)
}

/// Lets what is on its way arrive. What is left then is left to its TTL; the docs say so (R9).
pub(crate) async fn close(redlock: &Redlock) {
    let _remaining = redlock.close(CLOSE_AT_MOST).await;
}

#[cfg(not(feature = "tls"))]
fn addresses(urls: Vec<String>, settings: &Settings) -> Result<Vec<MasterAddress>, Failure> {
    if settings.tls_ca().is_some() {
        return Err(Failure::bad_input(
            "--tls-ca was given, but this quorumlock was built without its feature 'tls'",
        ));
    }
    Ok(urls.into_iter().map(MasterAddress::from).collect())
}

#[cfg(feature = "tls")]
fn addresses(urls: Vec<String>, settings: &Settings) -> Result<Vec<MasterAddress>, Failure> {
    use quorumlock::redis::{Client, TlsCertificates};

    // An error means that it is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let Some(file) = settings.tls_ca() else {
        return Ok(urls.into_iter().map(MasterAddress::from).collect());
    };
    let unreadable =
        |why: &str| Failure::bad_input(format!("cannot trust {}: {why}", file.display()));
    let authority = std::fs::read(file).map_err(|error| unreadable(&error.to_string()))?;
    let address = |url: String| {
        if !url.starts_with("rediss://") && !url.starts_with("valkeys://") {
            return Ok(MasterAddress::from(url));
        }
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(authority.clone()),
        };
        // redis-rs's error is left out: it could repeat the URL with its password.
        Client::build_with_tls(url, certificates)
            .map(|client| MasterAddress::from(client.get_connection_info().clone()))
            .map_err(|_| unreadable("it, or the URL of a master, cannot be read"))
    };
    urls.into_iter().map(address).collect()
}
