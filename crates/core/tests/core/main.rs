//! The core from outside, by its public names: files in, answers out. One program, because each would link the core again.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;
mod counted;
mod exports;
mod findings;
mod followed_ahead;
mod oom_texts;
mod oom_texts_unseen;
mod pasted_texts;
mod pickles_of_every_writer;
mod predictions;
mod replay_agrees_with_reference;
mod reports;
mod scenes;
mod snapshots_match_the_gpu;
mod truncated_snapshots;
