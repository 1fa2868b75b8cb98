//! What the agent noted of a plan, of the places for one, and of the work in a step: what a search asks for.

use std::collections::BTreeMap;

use plimsoll_remedies::Op;

use crate::{recording::Sites, units::Bytes};

/// Everything of that which one process wrote. Of what is noted several times, the last counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanNotes {
    /// Remedies that do not suit the program, of which the process ended.
    pub refused: Vec<Refused>,
    /// The names of the repeated blocks of a model.
    pub blocks: Option<Vec<String>>,
    /// The memory at the borders of blocks, in one step.
    pub block_memory: Option<Vec<Reading>>,
    /// The operations of each block.
    pub block_work: Option<Vec<Vec<Work>>>,
    /// The operations of a step.
    pub work: Option<Vec<Work>>,
    /// How batches are split.
    pub split: Option<Split>,
    /// Whether a remedy leaves results as they are.
    pub exact: Option<bool>,
    /// What was looked for in the program.
    pub survey: Option<Survey>,
    /// The program uses `torch.compile`.
    pub compiles: bool,
    /// How many graphs it found compiled; none if it compiled nothing.
    pub found_compiled: Option<u64>,
    /// The process was ended because it took more than can ever fit.
    pub hopeless: bool,
    /// What was done to the batches, in sentences.
    pub batches: Vec<String>,
    /// Batches differ in size, and the worst ones came first.
    pub sizes_differ: bool,
    /// The script draws sizes by itself, and drew the largest first.
    pub sizes_are_drawn: bool,
}

/// A remedy that does not suit the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub id: String,
    /// What of the program it does not suit, and why.
    pub why: String,
}

/// What a look at a program found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// The places for a change.
    pub sites: Sites,
    /// Remedies that have nothing to do, each with why where a person may wonder.
    pub idle: Option<BTreeMap<String, Option<String>>>,
    /// It came to its end without a backward pass.
    pub trains_nothing: bool,
}

/// What the loss of a batch averages over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Averages {
    /// The labels that count, without the first of each row.
    ShiftedLabels,
    /// The labels that count.
    Labels,
    /// The samples.
    Samples,
}

/// How micro-batches split a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Nothing in the model draws random numbers or keeps statistics.
    pub exact: bool,
    /// The model returns its loss.
    pub has_loss: bool,
    /// What that averages over, if it is no sum.
    pub averages: Option<Averages>,
    /// How many samples a batch has.
    pub samples: Option<u64>,
}

/// Where in a step memory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The forward pass enters this block.
    Enter(usize),
    /// The forward pass leaves it.
    Leave(usize),
    /// The gradient of its output is there: backward enters it.
    Back(usize),
    /// Backward, or the step, is over.
    End,
}

/// One reading of PyTorch's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where.
    pub at: At,
    /// Allocated now.
    pub current: Bytes,
    /// The most that was allocated since the reading before.
    pub peak: Bytes,
}

/// One kind of operation in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What it does.
    pub op: Op,
    /// The type that it computes with; `tf32` for float32 products that may use it.
    pub dtype: String,
    /// How many operations of this very size.
    pub count: f64,
    /// Floating-point operations of each, a multiplication and an addition being two; of [`Op::Walk`], numbers.
    pub flops: f64,
    /// Bytes that each reads and writes.
    pub bytes: f64,
}
