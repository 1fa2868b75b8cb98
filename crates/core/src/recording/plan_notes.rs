//! What the agent noted of a plan, of the places for one, and of the work in a step: what a search asks for.

use std::collections::BTreeMap;

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

/// How micro-batches split a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Nothing in the model draws random numbers or keeps statistics.
    pub exact: bool,
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
    /// What it does, by one of these words.
    ///
    /// On the device:
    /// - `matmul`; `matmul-by-4` or `matmul-by-2` where rows of halves begin at multiples of so many bytes only;
    /// - `convolution`, with more words after it: `-few` of at most 8 channels, as those of a picture, and no other word; `-grouped` of
    ///   several groups of channels; `-of-64` and less of at most so many channels, a power of two, `-flat` before that in one
    ///   dimension; `-last` at the end with the channels last;
    /// - `depthwise` convolution; `depthwise-last` with the channels last; `depthwise-flat` in one dimension;
    /// - `attention`;
    /// - `recurrent`: one time step of one layer;
    /// - `batch-norm`; `native-batch-norm` where cuDNN has none and channels are in front;
    /// - `elementwise`: what is done to each number by itself, and copies;
    /// - `pointwise`: all else that only moves, as norms, softmax and sums do;
    /// - `waiting`: threads that walk through numbers one after the other, as those of softmax along another dimension than the last; how often one
    ///   of them waits for memory counts as its arithmetic;
    /// - `gathered`: numbers that an index picks, each by itself; they count as its arithmetic. Rows that it picks count as so many of these, and
    ///   so do other kernels that walk through numbers one by one: of resampling, pooling backwards, sums along a dimension, sorting;
    /// - `segment`: memory that is given back to the device and asked for again;
    /// - `link`: a copy between device and host; `link-unpinned` where the host has to copy it once more, as its memory is not pinned;
    /// - `network`: what goes to other devices;
    /// - `few-blocks`: fewer blocks of threads than the device has room for; its bytes are those of one block;
    /// - `look`: what makes no kernel at all;
    /// - `planned-convolution`, `planned-attention`: how many shapes of these a step has that cuDNN plans when it meets them first. No part of
    ///   a step: see [`first_time`].
    ///
    /// On the host alone:
    /// - `hook`: a function around a tensor that autograd keeps;
    /// - `around`: a part of a model that has such functions, each time that it is gone through;
    /// - `listed`: a tensor in a list that one operation takes (`foreach`);
    /// - `sorted`: an operation that sorts indices before it adds up what belongs to each;
    /// - `sharded`: one of FSDP2's copies into or out of what it sends;
    /// - `data`: a microsecond of the processor that made a batch, as it was measured where the phantom ran, or that draws random numbers
    ///   and makes tensors on the host;
    /// - `data-alone`: one in which the device had nothing to do, as the script had read a value of it.
    pub op: String,
    /// The type that it computes with; `tf32` for float32 products that may use it.
    pub dtype: String,
    /// How many operations of this very size.
    pub count: f64,
    /// Floating-point operations of each, a multiplication and an addition being two.
    pub flops: f64,
    /// Bytes that each reads and writes.
    pub bytes: f64,
}
