//! What people say on the command line, as types: the grammar, the values that options take, and commands put back into words.

pub(crate) mod assumption;
pub(crate) mod beside;
pub(crate) mod cli;
pub(crate) mod constraint;
mod expectation;
pub(crate) mod factor_values;
pub(crate) mod ghost_weights;
mod number;
#[cfg(feature = "phantom")]
pub(crate) mod refusal;
#[cfg(feature = "phantom")]
pub(crate) mod shown_command;
pub(crate) mod size;
#[cfg(feature = "phantom")]
pub(crate) mod worst_batches;
pub(crate) mod worst_sequence;
pub(crate) mod worst_size;
