//! What was there before the first recorded event. A recording that began late or whose ring overwrote its
//! beginning has such a state.

use std::collections::BTreeMap;

use crate::{
    replay::{
        Config,
        allocator::Allocator,
        driver::Driver,
        heap::State,
        rounding::{SMALL_SIZE, round_size},
        slot::Slot,
    },
    trace::{Action, DeviceTrace, PoolId, SizeClass, StreamId},
    units::Bytes,
};

/// The state before the first event.
#[derive(Clone, Debug, Default)]
pub(super) struct Initial {
    pub(super) extents: BTreeMap<u64, Extent>,
    pub(super) blocks: BTreeMap<u64, Held>,
    /// Whose the segments are that later events bring, by event, where it is known: before 2.12 only the end
    /// state says it.
    pub(super) pools: BTreeMap<usize, PoolId>,
}

/// A piece of memory got from the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) end: u64,
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
    pub(super) class: SizeClass,
    pub(super) expandable: bool,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) requested: Bytes,
    /// Known when the block lived to the end, or was placed.
    pub(super) size: Option<Bytes>,
    pub(super) pending: bool,
    pub(super) slot: Option<Slot>,
}

/// Whether anything was there before the first event, as far as the sums tell.
pub(super) fn reserved_before(device: &DeviceTrace) -> Bytes {
    let mut before: Bytes = device.segments.iter().map(|it| it.size).sum();
    let mut given = Bytes::ZERO;
    for (_, event) in device.events.of_segments() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => given += event.size,
            Action::SegmentFree | Action::SegmentUnmap => before += event.size,
            _ => {}
        }
    }
    before.saturating_sub(given)
}

impl Initial {
    /// The segments, by address: start and size. Ranges of expandable segments are not the driver's to
    /// give again.
    pub(super) fn segments(&self) -> BTreeMap<u64, u64> {
        let segments = self.extents.iter().filter(|(_, it)| !it.expandable);
        segments.map(|(at, it)| (*at, it.end - at)).collect()
    }

    /// Bytes in expandable segments.
    pub(super) fn mapped(&self) -> u64 {
        let mapped = self.extents.iter().filter(|(_, it)| it.expandable);
        mapped.map(|(at, it)| it.end - at).sum()
    }

    /// Puts the state into `allocator`, which is empty, and the slots and sizes into the blocks.
    pub(super) fn place<D: Driver>(&mut self, allocator: &mut Allocator<D>) {
        let extents: Vec<(u64, Extent)> = self.extents.iter().map(|(at, it)| (*at, *it)).collect();
        let key = |it: &Extent| (it.pool, it.class, it.stream);
        let mut at = 0;
        while let Some(&(start, extent)) = extents.get(at) {
            let arena = allocator.heap.arena(extent.pool, extent.class, extent.stream);
            let mut runs = vec![(start, extent.end)];
            at += 1;
            if extent.expandable {
                // Runs that nothing else lies between are of one range.
                while let Some((start, next)) = extents.get(at)
                    && next.expandable
                    && key(next) == key(&extent)
                {
                    runs.push((*start, next.end));
                    at += 1;
                }
            }
            self.place_segment(allocator, arena, extent, &runs);
        }
        allocator.stats.begin_here();
    }

    fn place_segment<D: Driver>(
        &mut self,
        allocator: &mut Allocator<D>,
        arena: u32,
        extent: Extent,
        runs: &[(u64, u64)],
    ) {
        let mut pieces: Vec<(u64, State, Option<u64>)> = Vec::new();
        let mut mapped_to = None;
        for (start, end) in runs {
            if mapped_to.is_some_and(|it| it < *start) {
                pieces.push((mapped_to.unwrap_or(*start), State::Unmapped, None));
            }
            // Runs that overlap are damage.
            let start = mapped_to.map_or(*start, |it| it.max(*start));
            if *end <= start {
                continue;
            }
            self.pieces_of_run(&allocator.config, extent, (start, *end), &mut pieces);
            mapped_to = Some(*end);
        }
        pieces.dedup_by(|it, before| it.1 == State::Free && before.1 == State::Free);
        let start = runs[0].0;
        let mut end = mapped_to.unwrap_or(start);
        if extent.expandable {
            let mapped = end;
            end = end.saturating_add(allocator.config.expandable_range());
            // At the last addresses, where no driver maps anything, nothing is left.
            if mapped < end {
                pieces.push((mapped, State::Unmapped, None));
            }
        }
        let size = end - start;
        let class = extent.class;
        let mut slot =
            allocator.heap.add_segment(start, size, arena, State::Vacant, extent.expandable);
        let n_pieces = pieces.len();
        let mut mapped = 0;
        for (i, (address, state, held)) in pieces.iter().enumerate() {
            let next = pieces.get(i + 1).map_or(end, |it| it.0);
            let rest = (next < end).then(|| allocator.heap.split(slot, next - address));
            if *state != State::Unmapped {
                mapped += next - address;
            }
            match state {
                State::Allocated | State::Pending => {
                    let held = held.and_then(|it| self.blocks.get_mut(&it));
                    let requested = held.as_ref().map_or(Bytes::ZERO, |it| it.requested);
                    allocator.hand_out(slot, requested.0);
                    if *state == State::Pending {
                        allocator.free_requested(slot);
                    }
                    if let Some(held) = held {
                        held.slot = Some(slot);
                        held.size = Some(Bytes(next - address));
                    }
                }
                state => {
                    allocator.heap.set_state(slot, *state);
                    if *state == State::Free && !extent.expandable && 1 < n_pieces {
                        allocator.stats.inactive_split.increase(class, 1);
                        allocator.stats.inactive_split_bytes.increase(class, next - address);
                    }
                }
            }
            slot = rest.unwrap_or(slot);
        }
        allocator.stats.reserved_bytes.increase(class, mapped);
        if !extent.expandable {
            allocator.stats.segment.increase(class, 1);
        }
    }

    /// The blocks of one mapped run: where each begins, and whose it is.
    fn pieces_of_run(
        &self,
        config: &Config,
        extent: Extent,
        (start, end): (u64, u64),
        pieces: &mut Vec<(u64, State, Option<u64>)>,
    ) {
        let held_blocks: Vec<(u64, Held)> =
            self.blocks.range(start..end).map(|(at, it)| (*at, *it)).collect();
        let mut at = start;
        for (i, (address, held)) in held_blocks.iter().enumerate() {
            // What begins inside the block before is damage, and so is a block of no bytes.
            if *address < at || held.size == Some(Bytes::ZERO) {
                continue;
            }
            if at < *address {
                pieces.push((at, State::Free, None));
            }
            let room = held_blocks.get(i + 1).map_or(end, |it| it.0) - address;
            let size =
                held.size.map_or_else(|| guessed_size(config, extent, held, room), |it| it.0);
            let size = size.min(room);
            let state = if held.pending { State::Pending } else { State::Allocated };
            pieces.push((*address, state, Some(*address)));
            at = address + size;
        }
        if at < end {
            pieces.push((at, State::Free, None));
        }
    }
}

/// The size of a block that is gone by the end: the request rounded; in a segment of large blocks also a
/// rest of up to 1 MiB, which would not have been split off.
fn guessed_size(config: &Config, extent: Extent, held: &Held, room: u64) -> u64 {
    let rounded = round_size(held.requested, config).0;
    let splits =
        extent.class == SizeClass::Small || extent.expandable || config.expandable_segments;
    if !splits && rounded <= room && room - rounded <= SMALL_SIZE.0 { room } else { rounded }
}
