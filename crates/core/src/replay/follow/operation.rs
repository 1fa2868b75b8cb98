//! One operation of the checked replay: the events from the first that belongs to a `malloc` or to a
//! release, up to the `alloc` or `oom` that ends it; and what is done when the model would have done
//! something else.

use std::collections::BTreeSet;

use crate::{
    replay::{
        BlockId, BlockLife, Levels, Mismatch,
        allocator::{OutOfMemory, Request},
        driver::DriverCall,
        follow::follower::Follower,
        heap::State,
        history::id_of,
        live_blocks::Live,
        program::Op,
        rounding::{allocation_size, round_size},
        slot::Slot,
    },
    trace::{Action, Event, EventId, PoolId, SizeClass},
    units::Bytes,
};

impl Follower<'_> {
    /// The events `start..end` released memory without any request: `empty_cache`, or the end of a pool.
    pub(super) fn released(&mut self, start: usize, end: usize) {
        // Pools that went before the first segment of the default one did went by themselves.
        let of = |this: &Self, at: usize| this.pool_lost_at(at).filter(|it| *it != PoolId(0));
        let is_default = |it: &usize| self.pool_lost_at(*it) == Some(PoolId(0));
        let of_default = (start..end).find(is_default);
        let mut at = start;
        for index in start..of_default.unwrap_or(end) {
            if let Some(pool) = of(self, index).filter(|_| at <= index) {
                self.complete(at, index);
                self.begin(index, end);
                self.model.release_private_pool(pool);
                self.program.push(Op::DropPool(pool), index);
                at = self.model.driver.at.max(index);
            }
        }
        self.begin(at, end);
        if of_default.is_some() {
            let n_ops = self.program.ops.len();
            let ownerless = self.model.ownerless.clone();
            self.model.release_cached_blocks();
            self.program.push(Op::EmptyCache, at);
            self.dropped_before(n_ops, at, &ownerless);
        }
        self.settle(start, end);
    }

    /// The events `at..end` are what the model has to explain; nothing was asked for.
    fn begin(&mut self, at: usize, end: usize) {
        let driver = &mut self.model.driver;
        (driver.at, driver.end, driver.want, driver.grows) = (at, end, None, false);
        driver.walked.clear();
    }

    /// What the events `start..end` complete.
    pub(super) fn complete(&mut self, start: usize, end: usize) {
        for at in start..end {
            let event = self.device.events.get(at);
            if event.action == Action::FreeCompleted {
                self.begin(at, at);
                self.free(at, event, false, true);
            }
        }
    }

    /// Pools that were given back by the way, and that were not in `ownerless`: nobody owned them any more
    /// before the operation that begins at `n_ops`.
    fn dropped_before(&mut self, n_ops: usize, event: usize, ownerless: &BTreeSet<PoolId>) {
        for pool in std::mem::take(&mut self.model.driver.walked) {
            if !ownerless.contains(&pool) {
                self.program.insert(n_ops, Op::DropPool(pool), event);
            }
        }
    }

    pub(super) fn malloc(&mut self, start: usize, end: usize, event: Event) {
        let fails = event.action == Action::Oom;
        let n_ops = self.program.ops.len();
        let served_by = self.pool_of(start, end, event);
        let overflow = self.overflowed(start, end, event, served_by);
        let pool = if overflow.is_some() { PoolId(0) } else { served_by };
        if fails && self.halt.before == Some(end) {
            self.halt.reached = Some(Request { size: event.size, stream: event.stream, pool });
            return;
        }
        let driver = &mut self.model.driver;
        (driver.at, driver.end) = (start, end);
        driver.walked.clear();
        driver.want = (!fails).then_some(event.address);
        driver.overflow = overflow;
        self.model.traits.use_on_oom.extend(overflow);
        let driver = &mut self.model.driver;
        driver.grows = fails || driver.peek().is_some();
        if fails {
            let Event { size, stream, .. } = event;
            self.program.push(Op::Failed { size, stream: stream.into(), pool }, end);
            let size = round_size(event.size, &self.model.config);
            let asked = allocation_size(size, &self.model.config);
            let refused = self.totals.levels.reserved + asked;
            self.limits.least_refused =
                Some(self.limits.least_refused.map_or(refused, |it| it.min(refused)));
        } else {
            let Event { size, stream, .. } = event;
            self.program.push(Op::Alloc { size, stream: stream.into(), pool }, end);
            if let Some(lost) = self.model.driver.live.get(event.address) {
                // Its free is not in the recording; it ended at the latest now.
                self.model.driver.mismatch(Mismatch::NoRoom);
                self.free_live(end, event.address, lost);
            }
        }
        self.pools.last = if fails { self.pools.last } else { pool };
        if (self.pools.has_private || self.pools.in_events) && !fails && served_by == PoolId(0) {
            self.pools.default_stacks.insert(event.stack);
        }
        let request = Request { size: event.size, stream: event.stream, pool };
        // Whatever gave back what it had, somebody owns it.
        self.model.ownerless.remove(&pool);
        let ownerless = self.model.ownerless.clone();
        let got = self.model.malloc(request);
        self.dropped_before(n_ops, start, &ownerless);
        self.settle(start, end);
        if fails {
            if let Ok(slot) = got {
                self.model.driver.mismatch(Mismatch::NeedNotFail);
                self.take_back(slot);
            }
            return;
        }
        let slot = self.resolve(got, request, event);
        let size = match slot {
            Some(slot) => Bytes(self.model.heap.block(slot).size),
            None => round_size(event.size, &self.model.config),
        };
        let block = BlockId(id_of(self.replay.blocks.len()));
        let handle = id_of(self.replay.initial.len()) + block.0;
        self.model.driver.live.insert(event.address, Live { slot, handle });
        let id = EventId(id_of(end));
        let requested = event.size;
        let life = BlockLife { address: event.address, size, requested, alloc: id, free: None };
        self.replay.blocks.push(life);
        self.totals.levels.allocated += size;
        self.totals.requested += requested;
        self.replay.peak_allocated.rise(self.totals.levels.allocated, id);
        self.replay.peak_requested.rise(self.totals.requested, id);
        if start <= self.replay.peak_reserved.event.index() {
            let Levels { reserved, allocated } = self.totals.levels;
            self.replay.slack_at_peak = reserved.saturating_sub(allocated);
        }
    }

    /// The block that the recording says, whatever the model did.
    fn resolve(
        &mut self,
        got: Result<Slot, OutOfMemory>,
        request: Request,
        event: Event,
    ) -> Option<Slot> {
        match got {
            Ok(slot) if self.model.heap.block(slot).address == event.address => return Some(slot),
            Ok(slot) => {
                self.model.driver.mismatch(Mismatch::OtherBlock);
                self.take_back(slot);
            }
            Err(_) => {
                let driver = &mut self.model.driver;
                // A free block that is taken without asking is one that the search should have found.
                let mismatch = if driver.grows { Mismatch::NoRoom } else { Mismatch::OtherBlock };
                if !std::mem::take(&mut driver.gave_up) {
                    self.model.stats.num_ooms -= 1;
                    driver.mismatch(mismatch);
                }
            }
        }
        let params = self.model.params(request);
        let found = self.model.heap.find(event.address)?;
        let block = *self.model.heap.block(found);
        if block.state != State::Free {
            return None;
        }
        if block.end() - event.address < params.size {
            self.model.driver.mismatch(Mismatch::TooLarge);
            return None;
        }
        self.model.heap.set_state(found, State::Vacant);
        let mut slot = found;
        if block.address < event.address {
            slot = self.model.heap.split(found, event.address - block.address);
            self.model.heap.set_state(found, State::Free);
        }
        Some(self.model.alloc_found_block(slot, &params, request.size.0))
    }

    fn take_back(&mut self, slot: Slot) {
        self.model.free(slot);
    }

    /// Does what the recording did in `start..end` and the model had no reason for, then counts the
    /// segments.
    fn settle(&mut self, start: usize, end: usize) {
        while let Some(event) = self.model.driver.peek() {
            if event.action == Action::FreeCompleted {
                let at = self.model.driver.at;
                self.free(at, event, false, true);
            } else {
                self.model.driver.mismatch(Mismatch::Unexplained);
                self.force(event);
            }
            self.model.driver.at += 1;
        }
        for handle in std::mem::take(&mut self.model.driver.completed) {
            self.program.push(Op::FreeCompleted(handle), end);
        }
        for index in start..end {
            let Event { action, size, address, .. } = self.device.events.get(index);
            match action {
                Action::SegmentAlloc => {
                    if self.model.heap.is_twice(address) {
                        self.model.driver.mismatch(Mismatch::SegmentTwice);
                    }
                    self.segments.note(address, index);
                    self.program.script.push(DriverCall::Malloc { address, size: size.0 });
                }
                Action::SegmentMap if self.model.driver.reserved.contains(&address) => {
                    self.segments.note(address, index);
                }
                Action::SegmentFree => self.program.script.push(DriverCall::Free { address }),
                _ => {}
            }
            match action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    self.totals.levels.reserved += size;
                    self.replay
                        .peak_reserved
                        .rise(self.totals.levels.reserved, EventId(id_of(index)));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.totals.levels.reserved = self.totals.levels.reserved.saturating_sub(size);
                }
                _ => {}
            }
        }
        self.model.driver.reserved.clear();
    }

    /// Makes the model's segments what the recording says.
    fn force(&mut self, event: Event) {
        let Event { address, size: Bytes(size), stream, pool, .. } = event;
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let class = if size == 2 << 20 { SizeClass::Small } else { SizeClass::Large };
                let arena = self.model.heap.arena(pool, class, stream);
                let is_map = event.action == Action::SegmentMap;
                let inside = self.model.heap.find(address).filter(|slot| {
                    let block = self.model.heap.block(*slot);
                    is_map && block.state == State::Unmapped && size <= block.end() - address
                });
                if let Some(unmapped) = inside {
                    self.model.force_map(unmapped, address, size);
                } else {
                    let model = &mut self.model;
                    let slot = model.heap.add_segment(address, size, arena, State::Free, is_map);
                    model.count_segment(slot);
                }
            }
            _ => {
                let end = address.saturating_add(size);
                let found = self.model.heap.find(address).filter(|slot| {
                    let block = self.model.heap.block(*slot);
                    block.state == State::Free && end <= block.end()
                });
                let Some(slot) = found else {
                    self.model.driver.mismatch(Mismatch::NoSuchSegment);
                    return;
                };
                let block = *self.model.heap.block(slot);
                if block.expandable {
                    self.model.unmap_range(slot, address, end);
                } else if !block.is_split() && block.size == size {
                    self.model.forget_segment(slot);
                }
            }
        }
    }
}
