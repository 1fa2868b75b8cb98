//! Files that people name: how each is read within bounds and told apart, and how what they ask for is written whole or not at all.

pub(crate) mod atomic_output;
pub(crate) mod bounded_file;
pub(crate) mod follow_ahead;
pub(crate) mod open;
pub(crate) mod process_folder;
pub(crate) mod ranks;
pub(crate) mod reason;
pub(crate) mod recordings;
pub(crate) mod requested_file;
