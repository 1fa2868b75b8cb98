//! From a file's syntax to what happens in it: values, events, loops.

mod calls;
pub(crate) mod events;
mod expressions;
pub(crate) mod file;
pub(crate) mod guess;
mod library;
mod statements;
pub(crate) mod story;
pub(crate) mod value;
mod walker;
