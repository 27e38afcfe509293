//! x
pub mod quorum;
