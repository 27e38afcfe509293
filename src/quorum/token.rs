//! The random value that proves ownership (R4).
//!
//! A token is text, because redis-rs 1.x passes compare values through a lossy conversion to
//! UTF-8: a binary token would be mangled and never match again.

use std::fmt;
use std::sync::Arc;

/// The random value that proves who holds a lock.
///
/// Tokens of ours are random version 4 UUIDs written as 32 hexadecimal digits: 122 random bits,
/// fresh for every attempt, so that an undo that arrives late cannot delete what a later attempt
/// of the same client has set. A token adopted from elsewhere can be any non-empty text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// A token out of 16 random bytes, stamped as a version 4 UUID.
    pub fn from_random_bytes(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let mut text = [0_u8; 32];
        for (place, byte) in bytes.into_iter().enumerate() {
            text[place * 2] = HEX[usize::from(byte >> 4)];
            text[place * 2 + 1] = HEX[usize::from(byte & 0x0f)];
        }
        Self(Arc::from(str::from_utf8(&text).unwrap_or_default()))
    }

    /// A token somebody else made, as text.
    pub fn from_text(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The token as it stands in the masters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_version_4_uuid_in_hexadecimal() {
        assert_eq!(
            Token::from_random_bytes([0xff; 16]).as_str(),
            "ffffffffffff4fffbfffffffffffffff"
        );
        assert_eq!(
            Token::from_random_bytes([0; 16]).as_str(),
            "00000000000040008000000000000000"
        );
    }

    #[test]
    fn differs_where_the_bytes_differ() {
        let mut bytes = [7; 16];
        let one = Token::from_random_bytes(bytes);
        bytes[0] = 8;
        assert_ne!(one, Token::from_random_bytes(bytes));
    }
}
