//! What the allocator did with what the program asked, and what it would have done under other settings.
//!
//! One model of the allocator (`allocator`, `expandable`, `release`) runs against one of two drivers.
//! *Checked* ([`checked`], [`follow()`]), the driver is the recording: it gives what was given then, and
//! every choice of the model is compared with the recorded one. *What-if* ([`what_if`]), it is a device
//! with a capacity, and the model runs freely over what the program asked for.

mod allocator;
mod between;
mod chance;
mod conf;
mod config;
mod driver;
mod expandable;
mod follow;
mod free_set;
mod heap;
mod history;
mod initial;
mod known;
mod live_blocks;
mod malloc;
mod mismatch;
mod program;
mod recorded;
mod recorder;
mod release;
pub mod rounding;
mod sizes;
mod slot;
mod stats;
mod sweep;
#[cfg(test)]
mod tests;
mod torch_version;
mod undo;
mod what_if;
mod without;

#[cfg(test)]
pub(crate) use tests::recorded::recording;

#[cfg(test)]
pub(crate) use between::tests::{EARLY, LATE};
pub use between::{Between, Shared, depends_on_addresses, fits_at_other_addresses};
pub use conf::ConfError;
pub use config::{Config, Places, Reserve};
pub use follow::{Ahead, checked, follow, follow_best, follow_on};
pub use history::{BlockId, BlockLife, Freed, Held, InitialBlock, Levels, Peak, Replay};
pub use mismatch::Mismatch;
pub use program::Program;
pub use recorder::Recorder;
pub use stats::{Stat, StatArray, Stats};
pub use sweep::{Candidate, candidates};
pub use torch_version::{ParseVersionError, TorchVersion};
pub use what_if::{RanOut, WhatIf, what_if, what_if_seen};
pub use without::Failure;
