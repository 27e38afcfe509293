//! What is refused before a byte is sent (R28), and the words that say why.

use std::fmt;
use std::time::Duration;

/// Keys with this beginning belong to quorumlock itself and are no resources.
pub const RESERVED_PREFIX: &[u8] = b"quorumlock:";

/// The longest key a Redis or Valkey server takes (`proto-max-bulk-len`, 512 MB by default).
const LONGEST_KEY: usize = 512 * 1024 * 1024;

/// Input that can never be right, whatever the masters say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadInput {
    /// The resource's name is empty.
    EmptyResource,
    /// The key begins with `quorumlock:`, which is kept for counters, markers and channels.
    ReservedResource,
    /// The key is longer than a server takes.
    ResourceTooLong {
        /// The key's length in bytes.
        bytes: usize,
    },
    /// The TTL is below one millisecond, the unit the servers count in.
    TtlBelowMillisecond {
        /// The TTL asked for.
        ttl: Duration,
    },
    /// The drift allowance leaves nothing of the TTL.
    TtlWithinDrift {
        /// The TTL asked for.
        ttl: Duration,
        /// The allowance for clock rates that this TTL needs.
        drift: Duration,
    },
    /// The TTL is longer than the longest that was agreed on, or than a server can store.
    TtlTooLong {
        /// The TTL asked for.
        ttl: Duration,
        /// The longest TTL allowed here.
        longest: Duration,
    },
    /// The least validity asked for can never be had from this TTL.
    ValidityOutOfReach {
        /// The least validity asked for.
        least: Duration,
        /// What the TTL leaves after drift, if the acquisition took no time at all.
        most: Duration,
    },
    /// A token is empty.
    EmptyToken,
    /// The longest time to hold has passed: nothing is extended any more.
    PastLongestHold,
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyResource => write!(f, "the resource's name is empty"),
            Self::ReservedResource => write!(
                f,
                "the resource's key begins with 'quorumlock:', which is kept for quorumlock's own keys"
            ),
            Self::ResourceTooLong { bytes } => {
                write!(
                    f,
                    "the resource's key has {bytes} bytes; a server takes at most {LONGEST_KEY}"
                )
            }
            Self::TtlBelowMillisecond { ttl } => {
                write!(
                    f,
                    "a TTL of {ttl:?} is below one millisecond, the unit in which servers count"
                )
            }
            Self::TtlWithinDrift { ttl, drift } => write!(
                f,
                "a TTL of {ttl:?} leaves no validity: the allowance for clock drift alone is {drift:?}"
            ),
            Self::TtlTooLong { ttl, longest } => {
                write!(
                    f,
                    "a TTL of {ttl:?} is longer than the longest allowed here, {longest:?}"
                )
            }
            Self::ValidityOutOfReach { least, most } => write!(
                f,
                "a validity of at least {least:?} was asked for, but this TTL gives at most {most:?}"
            ),
            Self::EmptyToken => write!(f, "the token is empty"),
            Self::PastLongestHold => {
                write!(
                    f,
                    "the longest time to hold has passed: nothing is extended any more"
                )
            }
        }
    }
}

impl std::error::Error for BadInput {}

/// Checks the key of a resource: any bytes, not empty, not one of ours.
///
/// # Errors
/// - [`BadInput::EmptyResource`] for no bytes at all.
/// - [`BadInput::ReservedResource`] for a key that begins with `quorumlock:`.
/// - [`BadInput::ResourceTooLong`] for a key no server would take.
pub fn check_key(key: &[u8]) -> Result<(), BadInput> {
    if key.is_empty() {
        return Err(BadInput::EmptyResource);
    }
    if key.starts_with(RESERVED_PREFIX) {
        return Err(BadInput::ReservedResource);
    }
    if key.len() > LONGEST_KEY {
        return Err(BadInput::ResourceTooLong { bytes: key.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_name_but_none_and_ours() {
        let check = |key: &[u8], expected| assert_eq!(check_key(key), expected, "{key:?}");
        check(b"", Err(BadInput::EmptyResource));
        check(b"quorumlock:", Err(BadInput::ReservedResource));
        check(b"quorumlock:fence:a", Err(BadInput::ReservedResource));
        check(b"quorumlock", Ok(()));
        check(b"\x00\xff\n\r ", Ok(()));
        check(b"{tag} with spaces", Ok(()));
        check(&vec![b'x'; 1024 * 1024], Ok(()));
    }
}
