//! The only file that draws random numbers.
//!
//! Tokens come straight from the operating system, not from a generator in this process: after
//! a fork parent and child would draw the same tokens from the same generator.

use crate::quorum::Token;

/// A fresh token, 122 random bits of the operating system's.
pub(crate) fn token() -> Token {
    Token::from_random_bytes(uuid::Uuid::new_v4().into_bytes())
}

/// A random number over the whole range, for pauses.
#[expect(clippy::disallowed_methods, reason = "the one place that draws")]
pub(crate) fn draw() -> u64 {
    rand::Rng::next_u64(&mut rand::rng())
}
