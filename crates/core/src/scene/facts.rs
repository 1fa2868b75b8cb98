//! What is true of a device as a whole, and of stretches and moments of its run.

use crate::{recording::Phase, scene::position::Position, units::Bytes};

/// What to count along the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Positions.
    #[default]
    Events,
    /// Microseconds since the first event.
    Time,
}

/// What is true of a device as a whole.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The device's index in its process.
    pub device: usize,
    /// The process.
    pub pid: u32,
    /// Its rank, where the recording says it.
    pub rank: Option<u32>,
    /// Events.
    pub events: u32,
    /// Blocks that lived at any time; one more than the largest id.
    pub lives: u32,
    /// Of them, those that the program had before the first event.
    pub lives_before: u32,
    /// And their bytes.
    pub bytes_before: Bytes,
    /// What came before the first event was recorded, and overwritten: the ring was too small.
    pub overwritten: bool,
    /// How many allocations were, where something else counted them.
    pub overwritten_allocations: Option<u64>,
    /// Most allocated, what was there before included.
    pub peak_allocated: Bytes,
    /// When.
    pub peak_position: Position,
    /// Most reserved.
    pub peak_reserved: Bytes,
    /// When.
    pub peak_reserved_position: Position,
    /// Reserved when most was allocated.
    pub reserved_at_peak: Bytes,
    /// What explains every refusal: more was never given.
    pub limit: Option<Bytes>,
    /// What the device has, and what its context takes of it, where a phantom says so.
    pub capacity: Option<(Bytes, Bytes)>,
    /// Microseconds from the first event to the last; 0 when no clock was recorded.
    pub micros: u64,
    /// Whether call stacks were recorded.
    pub stacks: bool,
    /// Whether the run ended with a request that failed: what comes after it was not recorded.
    pub ends_failing: bool,
    /// Whether what lived where was recorded, so that categories are names and no guesses.
    pub named: bool,
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Its first position.
    pub from: Position,
    /// The first position after it.
    pub to: Position,
    /// What it is.
    pub phase: Phase,
}

/// One training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub step: u32,
    /// The first position after it.
    pub end: Position,
    /// Most allocated in it.
    pub allocated: Bytes,
    /// Most reserved in it.
    pub reserved: Bytes,
    /// What stayed allocated when it was over. None if it ran out of memory, or if a snapshot ends with it: its gradients may still be there, and after
    /// each earlier step what begins the next one has freed them.
    pub after: Option<Bytes>,
    /// It ran out of memory.
    pub unfinished: bool,
    /// When most was allocated in it.
    pub peak: Position,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub position: Position,
    /// What was asked for, rounded.
    pub requested: Bytes,
    /// What the device said was free.
    pub free: Bytes,
    /// Who asked.
    pub line: String,
}

/// A name that the program gave to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// When.
    pub position: Position,
    /// The name.
    pub name: String,
    /// Whether the range begins; otherwise it ends.
    pub begins: bool,
}
