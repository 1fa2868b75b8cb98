//! From a file's syntax to what happens in it: values, events, loops.

pub(crate) mod events;
pub(crate) mod expressions;
pub(crate) mod file;
pub(crate) mod guess;
mod keeping;
mod library;
pub(crate) mod names;
mod statements;
pub(crate) mod story;
pub(crate) mod value;
mod walker;
