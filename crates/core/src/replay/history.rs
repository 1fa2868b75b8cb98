//! What the allocator of one device did: every block, the largest sums, and the sums after each event.

use super::{mismatch::Mismatch, stats::Stats};
use crate::{
    trace::{Action, EventId, Events},
    units::Bytes,
};

crate::trace::define_ids! {
    /// One allocation, from its `alloc` to its `free_requested`. Unlike an address it is never used
    /// twice. Ids count up in the order of allocation, so the n-th `alloc` event (from 0) makes block
    /// n.
    BlockId;
}

/// What the allocator of one device did.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Every allocation, by [`BlockId`].
    pub blocks: Vec<BlockLife>,
    /// Every `free_requested` event, in order.
    pub freed: Vec<Freed>,
    /// What the program had before the first event, by address, as undoing all events shows it.
    pub initial: Vec<InitialBlock>,
    /// The sum of [`Replay::initial`].
    pub allocated_before: Bytes,
    /// What was held before the first event: the end minus what the events add.
    pub reserved_before: Bytes,
    /// What is held after the last event.
    pub final_reserved: Bytes,
    /// Reserved and not allocated, when reserved was largest.
    pub slack_at_peak: Bytes,
    /// What the model counted; from the first event on.
    pub stats: Stats,
    /// How many events were compared with the model: all that say something about memory.
    pub checked_events: u64,
    /// When the sum of allocated blocks was largest (`max_memory_allocated`).
    pub peak_allocated: Peak,
    /// When the sum of segments was largest (`max_memory_reserved`).
    pub peak_reserved: Peak,
    /// When the sum of what the program asked for was largest.
    pub peak_requested: Peak,
    /// Places where the recording does what the allocator would not have done; the first of them.
    pub mismatches: Vec<(EventId, Mismatch)>,
    /// How many there are in all.
    pub n_mismatches: u64,
    /// How many segments were taken for private pools' that nothing names, because the default pool alone
    /// disagrees with the recording.
    pub inferred_segments: usize,
    /// The largest limit that explains every failure; none when nothing failed.
    pub observed_limit: Option<Bytes>,
}

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLife {
    /// Where it began.
    pub address: u64,
    /// What it occupied: the request rounded, and the rest of a gap too small to split off.
    pub size: Bytes,
    /// What was asked for.
    pub requested: Bytes,
    /// The event that made it.
    pub alloc: EventId,
    /// The event that gave it back; none if it lived to the end.
    pub free: Option<EventId>,
}

/// One allocation, as [`Replay`] lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// One that was there before the first event: its index in
    /// [`Replay::initial`].
    Before(u32),
    /// One that the recording made.
    Made(BlockId),
}

/// A block given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The event that gave it back.
    pub event: EventId,
    /// The block; none when its allocation is not in the recording.
    pub block: Option<BlockId>,
    /// What it occupied, also when its allocation is not in the recording.
    pub size: Bytes,
}

/// A block that was there before the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialBlock {
    /// Where it began.
    pub address: u64,
    /// What it occupied; exact when it lived to the end, worked out from its surroundings otherwise.
    pub size: Bytes,
    /// What was asked for.
    pub requested: Bytes,
    /// The program had given it back already.
    pub pending: bool,
    /// The event that gave it back.
    pub free: Option<EventId>,
}

/// The largest value of something, and the first event after which it stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// How much.
    pub bytes: Bytes,
    /// After which event; event 0 when there was never anything.
    pub event: EventId,
}

/// Allocated and reserved bytes after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Sum of the blocks that the program had.
    pub allocated: Bytes,
    /// Sum of the segments.
    pub reserved: Bytes,
}

impl BlockLife {
    /// Whether the program had it after `event`.
    pub fn is_live_after(&self, event: EventId) -> bool {
        self.alloc <= event && self.free.is_none_or(|it| event < it)
    }
}

impl Replay {
    /// Allocated and reserved bytes before the first event.
    pub fn levels_before(&self) -> Levels {
        Levels { reserved: self.reserved_before, allocated: self.allocated_before }
    }

    /// Allocated and reserved bytes after each event.
    pub fn levels<'a>(
        &'a self,
        events: &'a Events,
    ) -> impl Iterator<Item = (EventId, Levels)> + 'a {
        let mut levels = self.levels_before();
        let mut blocks = self.blocks.iter();
        let mut freed = self.freed.iter();
        let stand_in = !events.actions().contains(&Action::FreeRequested);
        let columns = (0..).map(EventId).zip(events.actions()).zip(events.sizes());
        columns.map(move |((id, action), size)| {
            match *action {
                Action::Alloc => {
                    levels.allocated += blocks.next().map_or(Bytes::ZERO, |it| it.size);
                }
                Action::FreeRequested | Action::FreeCompleted
                    if *action == Action::FreeRequested || stand_in =>
                {
                    let size = freed.next().map_or(Bytes::ZERO, |it| it.size);
                    levels.allocated = levels.allocated.saturating_sub(size);
                }
                Action::SegmentAlloc | Action::SegmentMap => levels.reserved += *size,
                Action::SegmentFree | Action::SegmentUnmap => {
                    levels.reserved = levels.reserved.saturating_sub(*size);
                }
                _ => {}
            }
            (id, levels)
        })
    }
}

impl Peak {
    pub(super) fn rise(&mut self, bytes: Bytes, event: EventId) {
        if self.bytes < bytes {
            *self = Peak { bytes, event };
        }
    }
}

/// The number of an event or a block.
pub(super) fn id_of(index: usize) -> u32 {
    u32::try_from(index).expect("events are counted in 32 bits, and nothing outnumbers them")
}
