//! Runs of one script, several at a time where that changes no answer.
//!
//! [`Trials`] asks a [`Workshop`] to begin runs and to wait for them, and keeps what it knows:
//!
//! ```text
//! schedule   the runs: wanted, under way, over; how many at a time; who was in whose way
//! weights    whether weights on the host need values: unknown, believed and being checked, free, needed
//! outcome    what came of a run, as far as the two need it: its failure, its first steps
//! ```
//!
//! Three things can go wrong, and each ends in the answer that one run after the other would have given:
//!
//! - Two runs are in each other's way (a port, a lock). A run that failed with company is made again alone; if it then ends another way, runs are
//!   made one at a time from there on.
//! - The nursery dies, or runs of it are lost. What was under way in it is made again, by itself.
//! - Weights without values change what the script asks for. The search begins anew, with values ([`ValuesMatter`]).

mod outcome;
mod schedule;
#[cfg(test)]
mod tests;
mod weights;

pub use self::{
    outcome::{EARLY, Failure, Mark, Start, Trial},
    schedule::{Order, Purpose, Trials, Waited, Workshop},
    weights::{Values, ValuesMatter},
};
