//! What autograd keeps of passes that no backward pass will follow; `idle_passes` finds it.

use crate::{recording::CodeLine, replay::BlockId, units::Bytes};

/// Such a graph, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct IdleGraph {
    /// What goes when there is none.
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) bytes: Bytes,
    /// The line that called the model.
    pub(crate) at: Option<CodeLine>,
    /// The model was in evaluation mode; else it is read from lines.
    pub(crate) is_sure: bool,
}
