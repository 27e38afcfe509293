//! Settings, parsed once: what a list of URLs cannot say.

use super::core::{Core, Life};
use super::handle::Redlock;
use super::watchdog;
use crate::driver::{Pool, Settings};
use crate::error::Error;
use crate::master::{MasterAddress, same_place};
use crate::quorum::{Drift, MOST_MASTERS, RESERVED_PREFIX, Retry, Terms};
use std::sync::Arc;
use std::time::Duration;

/// How long `connect` waits for a quorum, and a connection attempt for its server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest TTL unless another is set.
const LONGEST_TTL: Duration = Duration::from_secs(60);
/// A drift factor that leaves at least half of the TTL.
const MOST_DRIFT_PPM: u32 = 500_000;

/// Settings of a handle; made by [`Redlock::builder`].
///
/// Setters never fail; what is wrong is said once, by [`build`](Self::build) or
/// [`connect`](Self::connect).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` or `connect`"]
pub struct Builder {
    masters: Vec<MasterAddress>,
    prefix: Vec<u8>,
    drift_ppm: u32,
    attempt_timeout: Option<Duration>,
    connect_timeout: Duration,
    longest_ttl: Duration,
    retry: (Duration, Duration),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            masters: Vec::new(),
            prefix: Vec::new(),
            drift_ppm: 10_000,
            attempt_timeout: None,
            connect_timeout: CONNECT_TIMEOUT,
            longest_ttl: LONGEST_TTL,
            retry: (Duration::from_millis(10), Duration::from_millis(250)),
        }
    }

    /// Adds one master: a URL, or redis-rs's own connection info.
    pub fn master(mut self, master: impl Into<MasterAddress>) -> Self {
        self.masters.push(master.into());
        self
    }

    /// Adds several masters.
    pub fn masters<I>(mut self, masters: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<MasterAddress>,
    {
        self.masters.extend(masters.into_iter().map(Into::into));
        self
    }

    /// Puts these bytes before every resource's name to make its key.
    ///
    /// None by default, so that locks of other Redlock clients on the same names are seen.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the drift allowance's share of the TTL, in parts per million.
    ///
    /// 10 000 (1 %) by default, as Redlock implementations share; 2 ms are always added. More
    /// shortens every validity; less trusts that client and server clocks run at closer rates.
    pub fn drift_ppm(mut self, ppm: u32) -> Self {
        self.drift_ppm = ppm;
        self
    }

    /// Sets how long a round waits for a master (R7).
    ///
    /// By default a tenth of the TTL, within 50 ms and 1 s. A quorum that answers earlier ends
    /// the round earlier; this is what a silent majority costs.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets how long `connect` waits for a quorum, and an attempt to connect for its server.
    ///
    /// One second by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the longest TTL that can be asked for; 60 s by default.
    ///
    /// A long TTL keeps a resource locked for as long after a crash. The watchdog extends, so
    /// long work needs no long TTL. Keep it equal in all clients of a deployment.
    pub fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = ttl;
        self
    }

    /// Sets the pauses between attempts: random below `first`, doubling up to `cap`.
    ///
    /// 10 ms and 250 ms by default. Bounds below 1 ms count as 1 ms, a cap below `first` as
    /// `first`.
    pub fn retry(mut self, first: Duration, cap: Duration) -> Self {
        self.retry = (first, cap);
        self
    }

    /// Makes the handle without waiting for any master (R3).
    ///
    /// Connections are made in the background, from the runtime that first uses the handle.
    ///
    /// # Errors
    /// [`ErrorKind::BadConfiguration`](crate::ErrorKind::BadConfiguration): no master or more
    /// than 64; an address that cannot be read; two equal addresses (R2); a prefix beginning
    /// with `quorumlock:`; a timeout or longest TTL of zero; a drift share over one half; a
    /// system that gives no thread.
    pub fn build(self) -> Result<Redlock, Error> {
        self.check()?;
        let retry = Retry::new(self.retry.0, self.retry.1);
        let masters = resolve(self.masters)?;
        let terms = Terms {
            masters: masters.len(),
            timeout: self.attempt_timeout,
        };
        let pool = Pool::new(Settings {
            masters,
            terms,
            connect_timeout: self.connect_timeout,
        });
        let drift = Drift::from_ppm(self.drift_ppm);
        let core = Arc::new(Core::new(
            pool,
            self.prefix.into(),
            drift,
            self.longest_ttl.min(crate::quorum::LONGEST_TTL),
            retry,
        ));
        let (commands, service) = watchdog::start(&core).map_err(|error| {
            Error::configuration(format!("the watchdog's thread cannot be started: {error}"))
        })?;
        Ok(Redlock::new(Arc::new(Life::new(core, commands, service))))
    }

    /// Makes the handle, and waits until a quorum is connected, or the connect timeout passes.
    ///
    /// A handle without a quorum is a handle all the same: masters that cannot be reached are
    /// tried again in the background, and each acquisition reports them.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`ErrorKind::BadConfiguration`](crate::ErrorKind) where two
    /// entries are seen to reach one server (R2).
    ///
    /// # Cancel safety
    /// Dropping the future drops the handle.
    pub async fn connect(self) -> Result<Redlock, Error> {
        let redlock = self.build()?;
        redlock.connected().await?;
        Ok(redlock)
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::configuration(text));
        if self.prefix.starts_with(RESERVED_PREFIX) {
            return refuse(
                "the prefix begins with 'quorumlock:', which is kept for quorumlock's own keys",
            );
        }
        if self.drift_ppm > MOST_DRIFT_PPM {
            return refuse("a drift share over one half of the TTL leaves no lock worth having");
        }
        if self.attempt_timeout == Some(Duration::ZERO) || self.connect_timeout.is_zero() {
            return refuse("a timeout of zero lets no master answer");
        }
        if self.longest_ttl < Duration::from_millis(1) {
            return refuse("a longest TTL below one millisecond allows no lock");
        }
        Ok(())
    }
}

fn resolve(addresses: Vec<MasterAddress>) -> Result<Vec<(redis::ConnectionInfo, String)>, Error> {
    if addresses.is_empty() {
        return Err(Error::configuration("no masters are given"));
    }
    if addresses.len() > MOST_MASTERS {
        return Err(Error::configuration(format!(
            "{} masters are given; a lock has at most {MOST_MASTERS}",
            addresses.len()
        )));
    }
    let mut masters: Vec<(redis::ConnectionInfo, String)> = Vec::with_capacity(addresses.len());
    for (index, address) in addresses.into_iter().enumerate() {
        let (info, shown) = address
            .resolve()
            .map_err(|reason| Error::configuration(format!("master {}: {reason}", index + 1)))?;
        if let Some(twin) = masters
            .iter()
            .position(|(other, _)| same_place(other, &info))
        {
            return Err(duplicate((twin, &masters[twin].1), (index, &shown)));
        }
        masters.push((info, shown));
    }
    Ok(masters)
}

/// The error that names two entries which reach one server.
pub(crate) fn duplicate(one: (usize, &str), other: (usize, &str)) -> Error {
    Error::configuration(format!(
        "master {} ({}) and master {} ({}) are one server, which would vote twice",
        one.0 + 1,
        one.1,
        other.0 + 1,
        other.1
    ))
}
