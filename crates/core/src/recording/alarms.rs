//! What went wrong in a run that is watched: the agent's alarms, each of which it writes once.

use crate::{codes::AlarmCode, units::Bytes};

/// One alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmNote {
    /// Steps finished when it was raised.
    pub step: u64,
    /// The device, as torch counts.
    pub device: u32,
    /// When, in seconds since 1970.
    pub at: f64,
    /// What the process could reserve on the device then, with what it had.
    pub room: Bytes,
    /// What is wrong.
    pub what: Alarm,
}

/// What can go wrong in a long run.
#[derive(Clone, Debug, PartialEq)]
pub enum Alarm {
    /// More and more lives at the ends of steps.
    Growth {
        /// Bytes that a step adds, on average.
        per_step: Bytes,
        /// What was added since the step below.
        grown: Bytes,
        /// Where it was first seen.
        since: u64,
        /// The step at which there is no room left, if it goes on.
        runs_out_at: u64,
        /// The folder, in the session, of a recording of the last steps.
        look: Option<String>,
    },
    /// More is reserved than a plan or a prediction says.
    OverPlan {
        /// What they say.
        expected: Bytes,
        /// What was reserved at most.
        reserved: Bytes,
    },
    /// Steps need more and more, though little of it stays, and soon it is all there is.
    Drift {
        /// Bytes that each step needs more than the one before, on average.
        per_step: Bytes,
        /// What was needed at most.
        needed: Bytes,
        /// The step since which it is so.
        since: u64,
        /// The step at which there is no room left, if it goes on.
        runs_out_at: u64,
    },
    /// Other processes took what was free.
    Neighbour {
        /// What they took since the first steps.
        taken: Bytes,
        /// What is free on the device.
        free: Bytes,
        /// The device's number for itself, where torch tells it.
        uuid: Option<String>,
    },
    /// What is reserved and free is in pieces too small to use.
    Fragmentation {
        /// That.
        useless: Bytes,
        /// How often the allocator gave memory back and asked again.
        retries: u64,
    },
}

impl Alarm {
    /// Its stable code, which docs/watch.md explains.
    pub fn code(&self) -> AlarmCode {
        match self {
            Alarm::Growth { .. } => AlarmCode::Growth,
            Alarm::OverPlan { .. } => AlarmCode::OverPlan,
            Alarm::Drift { .. } => AlarmCode::Drift,
            Alarm::Neighbour { .. } => AlarmCode::Neighbour,
            Alarm::Fragmentation { .. } => AlarmCode::Fragmentation,
        }
    }
}
