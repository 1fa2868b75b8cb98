//! What the dicts, lists and tuples of a snapshot leave behind once they are in the columns.

use crate::trace::{FrameId, PoolId, StackId};

/// What a dict, list or tuple turned out to be. A snapshot has millions of these, so what needs more
/// than an id is kept by the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The whole; its place in `tops`.
    Top(u32),
    /// A list that has no items yet; also the empty stack.
    List,
    /// Frames, innermost first, that nobody refers to yet; its place in `open_frames`.
    Frames(u32),
    Stack(StackId),
    /// A list of events, segments or blocks; its place in `lists`.
    Rows(Kind, u32),
    /// Lists of events, by device; in `traces`.
    Traces(u32),
    /// A pool's id.
    Pool(PoolId),
}

const _: () = assert!(size_of::<Object>() == 8, "there is one for each dict and list");

/// What a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Events,
    Segments,
    Blocks,
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

/// A row's number. Tables that could outgrow it stop before: objects in the machine's memo, events in
/// the decoder, and no file has more of the rest than bytes / 2.
pub(super) fn row(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
