//! What there is more and more of; `accumulation` finds it.

use crate::{
    prediction::Counted, recording::CodeLine, replay::BlockId, trace::EventId, units::Bytes,
};

/// Steps of a long run, which a small growth is measured by.
pub(crate) const A_RUN: u64 = 10_000;

/// What a growth is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Much of what forward passes made: their graph is still there.
    Graph,
    /// The same, of forward passes that no backward pass followed.
    GraphWithoutBackward,
    /// The same, of passes that only `torch.autograd.grad` went back through: the step's own `backward()` is still to come.
    GraphAwaited,
    /// Copies of weights that autocast stores, because the script enters it in each pass and never leaves it.
    Casts,
    /// Little of what forward passes made: outputs, losses.
    Results,
    /// Keys and values of attention.
    KvCache,
    /// Made between the passes, or by a line that is made anew larger each time.
    Other,
}

impl Kind {
    /// Much of what passes made.
    pub(crate) fn is_graph(self) -> bool {
        matches!(self, Kind::Graph | Kind::GraphWithoutBackward | Kind::GraphAwaited)
    }
}

/// Something that grows.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    pub(crate) kind: Kind,
    /// The line that most of it was made at.
    pub(crate) at: Option<CodeLine>,
    /// What goes when it is fixed: all but the newest step's.
    pub(crate) bytes: Bytes,
    pub(crate) blocks: u64,
    /// Steps or passes that left something.
    pub(crate) steps: u64,
    /// Which of these.
    pub(crate) steps_are: Counted,
    /// Of how many, since the first.
    pub(crate) of: u64,
    /// When it began.
    pub(crate) since: EventId,
    /// What one step leaves.
    pub(crate) per_step: Bytes,
    /// It is tensors that are made anew, larger each time.
    pub(crate) larger_each_time: bool,
    /// Each of them at its own time: conversations that a server remembers.
    pub(crate) apart: bool,
    /// How many of these there are.
    pub(crate) tensors: u64,
    /// The moment it was seen at.
    pub(crate) seen_at: EventId,
    /// Everything of it that was live then.
    pub(crate) held: Bytes,
    /// The blocks of all steps but the newest.
    pub(crate) older: Vec<BlockId>,
    /// What its numbers count: the same, or the tensors that are larger each time.
    pub(crate) counted: Vec<BlockId>,
}
