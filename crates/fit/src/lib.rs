//! `plimsoll fit`: how a script is made to fit. No I/O: a search says which run it wants to know about, an executor makes it.
//!
//! ```text
//! search     what to try next, given what was run so far
//! serving    what a serving engine can hold, for how many users
//! speculate  which runs the search is likely to want next, so that no core waits
//! trials     how a run is made: out of a nursery or as a process of its own, with weights that have values or without, beside others or alone
//! cost       what a plan costs: the time of a step, the blocks that are run again
//! change     what a person would change in a script instead
//! views      what was found, for people and for programs
//! ```

#![forbid(unsafe_code)]

pub mod change;
pub mod cost;
pub mod search;
pub mod serving;
pub mod speculate;
pub mod trials;
pub mod views;
