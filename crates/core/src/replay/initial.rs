//! What was there before the first recorded event: the end state, with every event undone from the last
//! to the first. A recording that began late or whose ring overwrote its beginning has such a state.

use std::collections::BTreeMap;

use crate::{
    replay::{
        Config,
        allocator::Allocator,
        driver::Driver,
        heap::{Slot, State},
        rounding::{SMALL_BUFFER, SMALL_SIZE, round_size},
    },
    trace::{Action, BlockState, DeviceTrace, Event, PoolId, SizeClass, StreamId},
    units::Bytes,
};

/// The state before the first event.
#[derive(Clone, Debug, Default)]
pub(super) struct Initial {
    extents: BTreeMap<u64, Extent>,
    pub(super) blocks: BTreeMap<u64, Held>,
    /// The private pools of segments that later events bring, by event: before 2.12 only the end state
    /// says whose a segment is.
    pub(super) pools: BTreeMap<usize, PoolId>,
}

/// A piece of memory got from the driver.
#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    stream: StreamId,
    pool: PoolId,
    class: SizeClass,
    expandable: bool,
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
    for (_, event) in device.events.iter() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => given += event.size,
            Action::SegmentFree | Action::SegmentUnmap => before += event.size,
            _ => {}
        }
    }
    before.saturating_sub(given)
}

impl Initial {
    /// Undoes the events of `device`, from the last to the first.
    pub(super) fn of(device: &DeviceTrace) -> Initial {
        let mut res = Initial::default();
        for segment in &device.segments {
            res.add(
                segment.address,
                segment.size.0,
                Extent {
                    end: 0,
                    stream: segment.stream,
                    pool: segment.pool,
                    class: segment.size_class,
                    expandable: segment.expandable,
                },
            );
        }
        for block in device.blocks.iter().filter(|it| it.state != BlockState::Free) {
            let held = Held {
                requested: block.requested,
                size: Some(block.size),
                pending: block.state == BlockState::PendingFree,
                slot: None,
            };
            res.blocks.insert(block.address, held);
        }
        for index in (0..device.events.len()).rev() {
            res.undo(index, device.events.get(index));
        }
        res
    }

    fn undo(&mut self, index: usize, event: Event) {
        let at = event.address;
        let held = |pending| Held { requested: event.size, size: None, pending, slot: None };
        match event.action {
            Action::Alloc => {
                self.blocks.remove(&at);
            }
            Action::FreeCompleted => {
                self.blocks.insert(at, held(true));
            }
            Action::FreeRequested => {
                self.blocks.entry(at).or_insert(held(false)).pending = false;
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                let pool = self.cut(at, event.size.0);
                if let Some(pool) = pool.filter(|it| *it != PoolId(0)) {
                    self.pools.insert(index, pool);
                }
            }
            Action::SegmentFree => {
                let class =
                    if event.size == SMALL_BUFFER { SizeClass::Small } else { SizeClass::Large };
                let Event { stream, pool, .. } = event;
                self.add(
                    at,
                    event.size.0,
                    Extent { end: 0, stream, pool, class, expandable: false },
                );
            }
            Action::SegmentUnmap => {
                let Event { stream, pool, .. } = event;
                let class = self.class_of_unmapped(event);
                self.add(
                    at,
                    event.size.0,
                    Extent { end: 0, stream, pool, class, expandable: true },
                );
            }
            Action::Snapshot | Action::Oom | Action::Annotate | Action::Other => {}
        }
    }

    /// Large granules are 20 MiB; ten small ones are as much, so what lies beside decides.
    fn class_of_unmapped(&self, event: Event) -> SizeClass {
        if !event.size.0.is_multiple_of(Bytes::mib(20).0) {
            return SizeClass::Small;
        }
        let near = |it: &Extent| it.expandable && it.stream == event.stream;
        let before = self.extents.range(..=event.address).next_back();
        let touching = before.filter(|(_, it)| near(it) && it.end == event.address);
        let end = event.address.saturating_add(event.size.0);
        let after = self.extents.get(&end).filter(|it| near(it));
        touching.map(|(_, it)| it).or(after).map_or(SizeClass::Large, |it| it.class)
    }

    fn add(&mut self, address: u64, size: u64, extent: Extent) {
        let mut start = address;
        let mut end = address.saturating_add(size);
        let same = |it: &Extent| {
            it.expandable && extent.expandable && it.class == extent.class && it.pool == extent.pool
        };
        if let Some((&at, before)) = self.extents.range(..address).next_back()
            && before.end == address
            && same(before)
        {
            start = at;
        }
        if let Some(after) = self.extents.get(&end).copied()
            && same(&after)
        {
            self.extents.remove(&end);
            end = after.end;
        }
        self.extents.insert(start, Extent { end, ..extent });
    }

    /// Takes a piece out; returns whose it was.
    fn cut(&mut self, address: u64, size: u64) -> Option<PoolId> {
        let end = address.saturating_add(size);
        let (&start, &extent) = self.extents.range(..=address).next_back()?;
        if extent.end < end {
            return None;
        }
        self.extents.remove(&start);
        if start < address {
            self.extents.insert(start, Extent { end: address, ..extent });
        }
        if end < extent.end {
            self.extents.insert(end, extent);
        }
        Some(extent.pool)
    }

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
            self.pieces_of_run(&allocator.config, extent, (*start, *end), &mut pieces);
            mapped_to = Some(*end);
        }
        let start = runs[0].0;
        let mut end = mapped_to.unwrap_or(start);
        if extent.expandable {
            pieces.push((end, State::Unmapped, None));
            end = end.saturating_add(allocator.config.expandable_range());
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
            // What begins inside the block before is damage.
            if *address < at {
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
