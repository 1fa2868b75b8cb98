//! What one process asked of its GPU allocators, in order, and what it held in the end. The one
//! model that every source is turned into and every later step reads; it knows no file format and
//! does not say what an event meant for the heap (that is `replay`).

mod events;
mod ids;
mod interner;
mod portion;
mod settings;
mod stacks;

pub use events::{Action, Event, Events};
pub(crate) use ids::define_ids;
pub use ids::{EventId, PoolId, StreamId, TextId};
pub use interner::Interner;
pub use portion::{Keeper, Portion};
pub use settings::{Settings, SettingsChange};
pub use stacks::{Frame, FrameId, StackId, StackTable};

use std::ops::Range;

use crate::units::Bytes;

/// The recording of one process. Made by a source; never changed afterwards.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What happened on each device that the process had, by device index.
    pub devices: Vec<DeviceTrace>,
    /// The call stacks that events, segments and blocks point to.
    pub stacks: StackTable,
    /// Metadata and file names; frames point here as well.
    pub texts: Interner,
    /// The raw handle of each stream; 0 is the default stream.
    pub streams: Vec<i64>,
    /// The pair that PyTorch calls a pool's id; `(0, 0)`, the default pool, comes first.
    pub pools: Vec<(i64, i64)>,
    /// The allocator's settings when the recording was written, when it says.
    pub settings: Option<Settings>,
    /// The first minor version of torch 2 that writes all the keys that were found: this one or a later one
    /// wrote the recording. None when nothing tells it.
    pub written_since: Option<u8>,
    /// Ranges that the program named (`record_function`, profiler steps), by time only.
    pub annotations: Vec<Annotation>,
    /// The recording was cut off or damaged here, by byte offset, and whatever came after it is not in
    /// this trace: events, and often all segments. None when it was read to its end.
    pub cut_at: Option<u64>,
}

/// What happened on one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrace {
    /// Every event that the recorder kept, oldest first.
    pub events: Events,
    /// The segments that the allocator held when the recording was written, by address.
    pub segments: Vec<Segment>,
    /// The blocks of [`DeviceTrace::segments`], in their order.
    pub blocks: Vec<Block>,
    /// How the program changed the allocator's settings while it ran, in order.
    pub settings_changes: Vec<SettingsChange>,
}

impl DeviceTrace {
    /// Nothing happened.
    pub(crate) const NONE: DeviceTrace = DeviceTrace {
        events: Events::NONE,
        segments: Vec::new(),
        blocks: Vec::new(),
        settings_changes: Vec::new(),
    };
}

/// One contiguous piece of device memory that the allocator held from the driver in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// How much of it is mapped.
    pub size: Bytes,
    /// The stream that its blocks serve.
    pub stream: StreamId,
    /// The pool that owns it.
    pub pool: PoolId,
    /// Which half of the pool: blocks of at most 1 MiB, or larger ones.
    pub size_class: SizeClass,
    /// A mapped run of an expandable segment, rather than one `cudaMalloc`.
    pub expandable: bool,
    /// The stack that asked the driver for it, when the recorder kept one.
    pub stack: StackId,
    /// Its blocks in [`DeviceTrace::blocks`].
    pub blocks: Range<u32>,
}

/// The half of a pool that a block belongs to, by its rounded size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeClass {
    /// At most 1 MiB.
    Small,
    /// More than 1 MiB.
    #[default]
    Large,
}

/// A piece of a segment in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// What it occupies: the request rounded, and the rest of a gap too small to split off.
    pub size: Bytes,
    /// What the program asked for; stale when the block is free.
    pub requested: Bytes,
    /// Who has it.
    pub state: BlockState,
    /// The stack that allocated it, when the recorder kept one.
    pub stack: StackId,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The program.
    Allocated,
    /// The program gave it back, but another stream may still be using it.
    PendingFree,
    /// The allocator.
    Free,
}

/// One end of a range of time that the program named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: TextId,
    /// Where the range begins; otherwise where it ends.
    pub begins: bool,
    /// The device index that it was recorded for.
    pub device: u32,
    /// When, in microseconds of the recorder's clock.
    pub time_micros: i64,
}

impl Trace {
    /// The text of `id`.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// The frames of `stack`, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Frame> {
        self.stacks.frames(stack)
    }
}
