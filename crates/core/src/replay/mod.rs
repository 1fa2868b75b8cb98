//! What the allocator did with what the program asked. This is its beginning, the *checked* replay:
//! it follows the recorded addresses, works out the real size of every block, and says where the
//! recording does what the allocator would not have done.
//!
//! What is left out: choosing addresses (nothing is searched, so nothing can be asked under another
//! configuration), the state before a recording that began late, statistics by pool.

mod heap;
pub mod rounding;

use crate::{
    replay::{
        heap::Heap,
        rounding::{round_size, should_split},
    },
    trace::{Action, BlockState, DeviceTrace, EventId, Events, Settings},
    units::Bytes,
};

crate::trace::define_ids! {
    /// One allocation, from its `alloc` to its `free_requested`. Unlike an address it is never used
    /// twice. Ids count up in the order of allocation, so the n-th `alloc` event (from 0) makes block
    /// n.
    BlockId;
}

/// How many mismatches are kept with their place; all are counted.
const KEPT_MISMATCHES: usize = 100;

/// What the allocator of one device did.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Every allocation, by [`BlockId`].
    pub blocks: Vec<BlockLife>,
    /// Every `free_requested` event, in order.
    pub freed: Vec<Freed>,
    /// What was held before the first event: the end minus what the events add.
    pub reserved_before: Bytes,
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

/// A block given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The event that gave it back.
    pub event: EventId,
    /// The block; none when its allocation is not in the recording.
    pub block: Option<BlockId>,
}

/// The largest value of something, and the first event after which it stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// How much.
    pub bytes: Bytes,
    /// After which event; event 0 when there was never anything.
    pub event: EventId,
}

/// Something that the allocator would not have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A block outside all segments, or inside another block.
    NoRoom,
    /// A block that does not begin where free memory begins.
    NotAtStart,
    /// A block larger than the free memory at its address.
    TooLarge,
    /// A free of a block that is not in use.
    NotInUse,
    /// A segment given back that was not held.
    NoSuchSegment,
    /// The end state holds a block of another size, or one that the events did not make.
    EndState,
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

/// Follows the recorded addresses of `trace`, under the allocator's `settings`.
pub fn checked(trace: &DeviceTrace, settings: &Settings) -> Replay {
    let mut res = Replay { reserved_before: reserved_before(trace), ..Replay::default() };
    let mut heap = Heap::default();
    let mut levels = Levels { reserved: res.reserved_before, ..Levels::default() };
    let mut requested = Bytes::ZERO;
    // A recorder can be told to skip kinds of events; then one of the two frees stands for both.
    let actions = trace.events.actions();
    let requests = actions.contains(&Action::FreeRequested);
    let completes = actions.contains(&Action::FreeCompleted);

    for (id, event) in trace.events.iter() {
        let at = event.address;
        match event.action {
            Action::Alloc => {
                let block = BlockId(id_of(res.blocks.len()));
                let rounded = round_size(event.size, settings);
                let size = match heap.gap(at) {
                    None => {
                        res.mismatch(id, Mismatch::NoRoom);
                        rounded
                    }
                    Some(gap) if gap.size < rounded => {
                        res.mismatch(id, Mismatch::TooLarge);
                        rounded
                    }
                    Some(gap) => {
                        if !gap.from_its_start {
                            res.mismatch(id, Mismatch::NotAtStart);
                        }
                        let expandable = gap.expandable || settings.expandable_segments;
                        let rest = gap.size - rounded;
                        let split = should_split(rounded, rest, expandable, settings);
                        if split { rounded } else { gap.size }
                    }
                };
                if let Some(lost) = heap.take(at, size, block) {
                    // Its free is not in the recording; it ended at the latest now.
                    res.end(lost.block, id, &mut levels, &mut requested);
                }
                levels.allocated += size;
                requested += event.size;
                res.blocks.push(BlockLife {
                    address: at,
                    size,
                    requested: event.size,
                    alloc: id,
                    free: None,
                });
                res.peak_allocated.rise(levels.allocated, id);
                res.peak_requested.rise(requested, id);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                let is_request = event.action == Action::FreeRequested || !requests;
                let is_completion = event.action == Action::FreeCompleted || !completes;
                let found = if is_completion { heap.give_back(at) } else { heap.at(at) };
                if found.is_none() {
                    res.mismatch(id, Mismatch::NotInUse);
                }
                if is_request {
                    res.freed.push(Freed { event: id, block: found.map(|it| it.block) });
                    if let Some(found) = found {
                        res.end(found.block, id, &mut levels, &mut requested);
                    }
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                if event.action == Action::SegmentAlloc {
                    heap.add(at, event.size);
                } else {
                    heap.map(at, event.size);
                }
                levels.reserved += event.size;
                res.peak_reserved.rise(levels.reserved, id);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                if !heap.remove(at, event.size) {
                    res.mismatch(id, Mismatch::NoSuchSegment);
                }
                levels.reserved = levels.reserved.saturating_sub(event.size);
            }
            Action::Snapshot | Action::Oom | Action::Annotate | Action::Other => {}
        }
    }
    res.peak_reserved.rise(res.reserved_before, EventId(0));
    res.compare_with_end(trace, &heap);
    res
}

/// The segments in the end, without what the events gave.
fn reserved_before(trace: &DeviceTrace) -> Bytes {
    let mut before: Bytes = trace.segments.iter().map(|it| it.size).sum();
    let mut given = Bytes::ZERO;
    for (_, event) in trace.events.iter() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => given += event.size,
            Action::SegmentFree | Action::SegmentUnmap => before += event.size,
            _ => {}
        }
    }
    before.saturating_sub(given)
}

impl Replay {
    /// Allocated and reserved bytes after each event.
    pub fn levels<'a>(
        &'a self,
        events: &'a Events,
    ) -> impl Iterator<Item = (EventId, Levels)> + 'a {
        let mut levels = Levels { reserved: self.reserved_before, ..Levels::default() };
        let mut blocks = self.blocks.iter();
        let mut freed = self.freed.iter();
        let stand_in = !events.actions().contains(&Action::FreeRequested);
        events.iter().map(move |(id, event)| {
            match event.action {
                Action::Alloc => {
                    levels.allocated += blocks.next().map_or(Bytes::ZERO, |it| it.size);
                }
                Action::FreeRequested | Action::FreeCompleted
                    if event.action == Action::FreeRequested || stand_in =>
                {
                    let block = freed.next().and_then(|it| it.block);
                    let size = block.map_or(Bytes::ZERO, |it| self.blocks[it.index()].size);
                    levels.allocated = levels.allocated.saturating_sub(size);
                }
                Action::SegmentAlloc | Action::SegmentMap => levels.reserved += event.size,
                Action::SegmentFree | Action::SegmentUnmap => {
                    levels.reserved = levels.reserved.saturating_sub(event.size);
                }
                _ => {}
            }
            (id, levels)
        })
    }

    fn mismatch(&mut self, event: EventId, mismatch: Mismatch) {
        self.n_mismatches += 1;
        if self.mismatches.len() < KEPT_MISMATCHES {
            self.mismatches.push((event, mismatch));
        }
    }

    /// `block` is no longer the program's.
    fn end(&mut self, block: BlockId, event: EventId, levels: &mut Levels, requested: &mut Bytes) {
        let life = &mut self.blocks[block.index()];
        // A pending block that is given back completely was ended by the request.
        if life.free.is_none() {
            life.free = Some(event);
            levels.allocated = levels.allocated.saturating_sub(life.size);
            *requested = requested.saturating_sub(life.requested);
        }
    }

    /// The recorder's own account of the end, block by block.
    fn compare_with_end(&mut self, trace: &DeviceTrace, heap: &Heap) {
        if trace.segments.is_empty() || trace.events.is_empty() {
            return;
        }
        let last = EventId(id_of(trace.events.len() - 1));
        let recorded = trace.blocks.iter().filter(|it| it.state != BlockState::Free);
        let replayed: Vec<(u64, Bytes)> =
            heap.in_use().map(|(at, it)| (at, self.blocks[it.block.index()].size)).collect();
        let mut n_found = 0;
        for block in recorded {
            match replayed.binary_search_by_key(&block.address, |(at, _)| *at) {
                Ok(found) if replayed[found].1 == block.size => n_found += 1,
                // Blocks from before the recording are no mismatch.
                Err(_) if self.reserved_before != Bytes::ZERO => {}
                _ => self.mismatch(last, Mismatch::EndState),
            }
        }
        if n_found < replayed.len() {
            self.mismatch(last, Mismatch::EndState);
        }
        let held: Bytes = trace.segments.iter().map(|it| it.size).sum();
        if self.reserved_before == Bytes::ZERO && held != heap.held() {
            self.mismatch(last, Mismatch::EndState);
        }
    }
}

impl Peak {
    fn rise(&mut self, bytes: Bytes, event: EventId) {
        if self.bytes < bytes {
            *self = Peak { bytes, event };
        }
    }
}

fn id_of(index: usize) -> u32 {
    u32::try_from(index).expect("events are counted in 32 bits, and nothing outnumbers them")
}
