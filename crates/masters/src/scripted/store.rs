//! The memory of a scripted master: keys with values and expiry by real time.
//!
//! Strings only; a key can be marked as something else, so that string commands answer WRONGTYPE.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Stopwatch;

/// What a string command answers on a key of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Debug)]
struct Entry {
    /// None for a key that holds no string.
    value: Option<Vec<u8>>,
    /// On the clock of the store.
    expires: Option<Duration>,
}

/// Keys and values, as scripts see them.
#[derive(Debug)]
pub struct Store {
    watch: Stopwatch,
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            watch: Stopwatch::start(),
            entries: BTreeMap::new(),
        }
    }

    /// The string at a key; none if it is missing.
    ///
    /// # Errors
    /// The key holds something else: the text is the master's error.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        self.expire();
        match self.entries.get(key) {
            None => Ok(None),
            Some(Entry {
                value: Some(value), ..
            }) => Ok(Some(value.clone())),
            Some(Entry { value: None, .. }) => Err(WRONG_TYPE),
        }
    }

    /// Whether the key exists, whatever it holds.
    #[must_use]
    pub fn exists(&mut self, key: &[u8]) -> bool {
        self.expire();
        self.entries.contains_key(key)
    }

    /// Sets a string; without a TTL it never expires.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: Option<Duration>) {
        let expires = self.moment(ttl);
        self.entries.insert(
            key.to_vec(),
            Entry {
                value: Some(value.to_vec()),
                expires,
            },
        );
    }

    /// Makes the key hold something that is no string.
    pub fn set_other_type(&mut self, key: &[u8]) {
        self.entries.insert(
            key.to_vec(),
            Entry {
                value: None,
                expires: None,
            },
        );
    }

    /// Removes the key; whether it was there.
    pub fn del(&mut self, key: &[u8]) -> bool {
        self.expire();
        self.entries.remove(key).is_some()
    }

    /// What PTTL answers: milliseconds left, −1 without an expiry, −2 if missing.
    #[must_use]
    pub fn pttl(&mut self, key: &[u8]) -> i64 {
        self.expire();
        let now = self.watch.elapsed();
        match self.entries.get(key) {
            None => -2,
            Some(Entry { expires: None, .. }) => -1,
            Some(Entry {
                expires: Some(at), ..
            }) => i64::try_from(at.saturating_sub(now).as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// Sets a new expiry; whether the key was there.
    pub fn pexpire(&mut self, key: &[u8], ttl: Duration) -> bool {
        self.expire();
        let expires = self.moment(Some(ttl));
        self.entries
            .get_mut(key)
            .map(|entry| entry.expires = expires)
            .is_some()
    }

    /// Adds to a number, from zero if the key is missing; its expiry stays.
    ///
    /// # Errors
    /// The key holds no number: the text is the master's error.
    pub fn incr(&mut self, key: &[u8], by: i64) -> Result<i64, &'static str> {
        let no_number = "ERR value is not an integer or out of range";
        let text = self.get(key)?.unwrap_or_else(|| b"0".to_vec());
        let number: i64 = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or(no_number)?;
        let sum = number.checked_add(by).ok_or(no_number)?;
        let expires = self.entries.get(key).and_then(|entry| entry.expires);
        self.entries.insert(
            key.to_vec(),
            Entry {
                value: Some(sum.to_string().into_bytes()),
                expires,
            },
        );
        Ok(sum)
    }

    /// Every key, sorted.
    #[must_use]
    pub fn keys(&mut self) -> Vec<Vec<u8>> {
        self.expire();
        self.entries.keys().cloned().collect()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn moment(&self, ttl: Option<Duration>) -> Option<Duration> {
        ttl.map(|ttl| self.watch.elapsed().saturating_add(ttl))
    }

    /// As a master: a key is gone when the time is past its expiry, not at it.
    fn expire(&mut self) {
        let now = self.watch.elapsed();
        self.entries
            .retain(|_, entry| entry.expires.is_none_or(|at| now <= at));
    }
}
