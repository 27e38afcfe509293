//! The tidy test: what the house style and the documents promise, read from the files themselves.
//!
//! It uses nothing of the library, and judges text only: where the compiler or clippy can see a
//! fault, it is theirs to report. Each test reports all that it finds, not the first.

mod code;
mod documents;
mod files;
