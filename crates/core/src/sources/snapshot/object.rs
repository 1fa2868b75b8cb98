//! What the dicts, lists and tuples of a snapshot leave behind once they are in the columns.

use crate::trace::{FrameId, PoolId, StackId};

/// What a dict, list or tuple turned out to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    /// Nothing of interest.
    Ignored,
    /// A dict that has no items yet.
    Dict,
    /// A dict whose items come one by one; its place in `open`.
    Open(u32),
    Event(u32),
    Segment(u32),
    Block(u32),
    Frame(FrameId),
    /// A range's end, in `annotations`.
    Annotation,
    /// An entry of a block's `history`: its stack.
    History(StackId),
    /// The entries of `roundup_power2_divisions`, in `divisions`.
    Divisions,
    /// The settings, in `settings`.
    Settings,
    /// The whole.
    Top(Top),
    /// A list that has no items yet; also the empty stack.
    List,
    /// Frames, innermost first, in `frame_items`.
    Frames(Span),
    Stack(StackId),
    Events(Span),
    Segments(Span),
    Blocks(Span),
    /// Lists of events, by device; in `traces`.
    Traces(u32),
    /// A pool's id.
    Pool(PoolId),
}

/// The objects that the snapshot's own dict refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Top {
    pub(super) traces: Option<u32>,
    pub(super) segments: Option<u32>,
}

/// Rows of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) len: u32,
}

impl Span {
    pub(super) fn end(self) -> u32 {
        self.first + self.len
    }
}
