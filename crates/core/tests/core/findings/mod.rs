//! Recordings in, findings out: what is found, at which line, and what only looks like it and is not.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod causes;
#[path = "../counted/mod.rs"]
mod counted;
mod host;
mod later;
mod leaks;
mod pairs;
mod program;
mod unused;
mod weights;
