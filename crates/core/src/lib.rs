//! What a PyTorch program asked of its GPU memory, and what follows from it.
//!
//! One value flows through the crate, and each folder is one step of its way:
//!
//! ```text
//! sources ──▶ recording ──▶ replay ──▶ prediction ──▶ views
//! bytes       trace, notes  blocks      peak, verdict  text, JSON
//!                                         ▲
//!                                       cards
//! ```
//!
//! `trace` is the model of what one process asked of its allocator: it imports no other step, and
//! every step imports it. A step imports the steps whose values it takes, never one that comes after
//! it (`MAY_USE` in `xtask/tests/tidy/main.rs`).
//!
//! The crate opens no file, prints nothing, reads no clock and starts no thread: callers hand it
//! bytes and get values back.

#![forbid(unsafe_code)]

pub mod units;

pub mod spelling;

pub mod codes;
pub mod printable;

pub mod trace;

pub mod recording;

pub mod failures;

pub mod printed;

pub mod sources;

pub mod replay;

pub mod cards;

pub mod prediction;

pub mod findings;

pub mod explanation;

pub mod plan;
pub mod scene;

pub mod verification;

pub mod views;
