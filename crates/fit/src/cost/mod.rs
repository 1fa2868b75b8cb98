//! What a plan costs: how much longer a step takes, and which blocks of a model are run again.

pub mod blocks;
mod step_time;

pub use step_time::{Factor, factor, seconds};
