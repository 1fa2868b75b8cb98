//! The binary as people meet it, run in a folder of its own with scripts that need no torch.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bad_input;
mod cache;
mod config;
mod diff;
mod ending;
mod explain;
mod export;
mod output;
mod replay;
mod strangers;
mod support;
mod upgrade;
