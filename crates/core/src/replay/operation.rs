//! One operation of the checked replay: the events from the first that belongs to a `malloc` or to a
//! release, up to the `alloc` or `oom` that ends it; and what is done when the model would have done
//! something else.

use crate::{
    replay::{
        BlockId, BlockLife, Levels, Mismatch,
        allocator::{OutOfMemory, Request},
        checked::Follower,
        driver::DriverCall,
        heap::{FreeKey, Slot, State},
        id_of,
        program::Op,
        recorded::Live,
        rounding::{allocation_size, round_size},
    },
    trace::{Action, Event, EventId, PoolId, SizeClass, StackId},
    units::Bytes,
};

/// The events up to the end of an operation.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The request that ends it, a `free_requested` that is not of it, or the end of the recording.
    end: usize,
    first_gain: Option<usize>,
    first_loss: Option<usize>,
}

impl Follower<'_> {
    /// What comes from event `start` on, up to the request that ends it.
    fn look_ahead(&mut self, start: usize) -> Ahead {
        if let Some(ahead) = self.ahead
            && start <= ahead.end
            && ahead.first_gain.is_none_or(|it| start <= it)
            && ahead.first_loss.is_none_or(|it| start <= it)
        {
            return ahead;
        }
        let mut res = Ahead { end: start, first_gain: None, first_loss: None };
        while let Some(action) = self.device.events.actions().get(res.end) {
            match action {
                Action::Alloc | Action::Oom | Action::FreeRequested => break,
                Action::SegmentAlloc | Action::SegmentMap => {
                    res.first_gain.get_or_insert(res.end);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    res.first_loss.get_or_insert(res.end);
                }
                _ => {}
            }
            res.end += 1;
        }
        // A run of completions is walked one by one; what comes after it is looked at once.
        self.ahead = Some(res);
        res
    }

    /// Whether the completion at event `at` is one of those that a request waited for before it asked the
    /// driver again. It may as well have come before the search of that request: then the search found
    /// nothing either way. Where a split limit releases a block first, that would stand before it.
    pub(super) fn belongs_to_a_retry(&mut self, at: usize) -> bool {
        let Ahead { end, first_gain, first_loss } = self.look_ahead(at);
        let events = &self.device.events;
        let loss = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain));
        if events.len() <= end {
            return false;
        }
        let event = events.get(end);
        let Event { size, stream, pool, .. } = event;
        let params = self.model.params(Request { size, stream, pool });
        let oversize = FreeKey::at_least(self.model.max_split);
        if self.model.heap.arenas[params.arena as usize].free.range(oversize..).next().is_some() {
            return false;
        }
        match (event.action, loss) {
            (Action::Oom, None) => first_gain.is_none(),
            (Action::Oom, Some(loss)) => self.released_for(event, loss, first_gain.unwrap_or(end)),
            (Action::Alloc, Some(loss)) => {
                first_gain.is_some_and(|gain| self.released_for(event, loss, gain))
            }
            _ => false,
        }
    }

    /// Follows the operation that begins at event `start`; returns the first event after it.
    pub(super) fn operation(&mut self, start: usize) -> usize {
        let events = &self.device.events;
        let Ahead { end, first_gain, first_loss } = self.look_ahead(start);
        let last = (end < events.len()).then(|| events.get(end));
        let last = last.filter(|it| it.action != Action::FreeRequested);
        let Some(event) = last else {
            self.released(start, end);
            return end;
        };
        let fails = event.action == Action::Oom;
        if let Some(loss) = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain)) {
            let lost_until = first_gain.unwrap_or(end);
            let asks = fails || first_gain.is_some();
            if !asks || !self.released_for(event, loss, lost_until) {
                self.released(start, lost_until);
                return lost_until;
            }
        }
        self.malloc(start, end, event);
        end + 1
    }

    /// Whether the release at events `loss..until` was part of the request `event`, rather than an
    /// `empty_cache` before it. A request that released carries its stack to every segment that it gave
    /// back; an `empty_cache` carries its own, or none, and then a segment shows the stack that it was
    /// allocated with, which may be the same line. Without stacks, only a request that takes the run above
    /// all that it ever held can have been refused.
    fn released_for(&mut self, event: Event, loss: usize, until: usize) -> bool {
        let events = &self.device.events;
        let mut losses = (loss..until)
            .map(|it| events.get(it))
            .filter(|it| matches!(it.action, Action::SegmentFree | Action::SegmentUnmap));
        let has_stacks =
            event.stack != StackId::EMPTY || losses.clone().any(|it| it.stack != StackId::EMPTY);
        if has_stacks {
            return losses.all(|it| it.stack == event.stack);
        }
        let size = round_size(event.size, &self.model.config);
        let asked = allocation_size(size, &self.model.config);
        event.action == Action::Oom || self.most_reserved < self.levels.reserved + asked
    }

    /// The events `start..end` released memory without any request: `empty_cache`, or the end of a pool.
    fn released(&mut self, start: usize, end: usize) {
        let driver = &mut self.model.driver;
        (driver.at, driver.end, driver.want, driver.grows) = (start, end, None, false);
        let events = &self.device.events;
        let mut of_default = false;
        let mut private = Vec::new();
        for index in start..end {
            let event = events.get(index);
            if matches!(event.action, Action::SegmentFree | Action::SegmentUnmap) {
                let pool = if self.has_private_pools || event.pool != PoolId(0) {
                    self.pool_at(event.address).unwrap_or(event.pool)
                } else {
                    PoolId(0)
                };
                of_default |= pool == PoolId(0);
                if pool != PoolId(0) && !private.contains(&pool) {
                    private.push(pool);
                }
            }
        }
        if of_default {
            self.model.release_cached_blocks();
            self.program.push(Op::EmptyCache, start);
        }
        for pool in private {
            self.model.release_private_pool(pool);
            self.program.push(Op::DropPool(pool), start);
        }
        self.settle(start, end);
    }

    fn malloc(&mut self, start: usize, end: usize, event: Event) {
        let fails = event.action == Action::Oom;
        let pool = self.pool_of(start, end, event);
        if fails && self.stop_at == Some(end) {
            self.stopped = Some(Request { size: event.size, stream: event.stream, pool });
            return;
        }
        let driver = &mut self.model.driver;
        (driver.at, driver.end) = (start, end);
        driver.want = (!fails).then_some(event.address);
        driver.grows = fails || driver.peek().is_some();
        if fails {
            self.program.push(Op::Failed { size: event.size, stream: event.stream }, end);
            let size = round_size(event.size, &self.model.config);
            let asked = allocation_size(size, &self.model.config);
            let refused = self.levels.reserved + asked;
            self.least_refused = Some(self.least_refused.map_or(refused, |it| it.min(refused)));
        } else {
            self.program.push(Op::Alloc { size: event.size, stream: event.stream, pool }, end);
            if let Some(lost) = self.model.driver.live.get(&event.address).copied() {
                // Its free is not in the recording; it ended at the latest now.
                self.model.driver.mismatch(Mismatch::NoRoom);
                self.free_live(end, event.address, lost);
            }
        }
        let request = Request { size: event.size, stream: event.stream, pool };
        let got = self.model.malloc(request);
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
        self.levels.allocated += size;
        self.requested += requested;
        self.replay.peak_allocated.rise(self.levels.allocated, id);
        self.replay.peak_requested.rise(self.requested, id);
        if start <= self.replay.peak_reserved.event.index() {
            let Levels { reserved, allocated } = self.levels;
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
                self.model.stats.num_ooms -= u64::from(self.model.driver.grows);
                if self.model.driver.grows {
                    self.model.driver.mismatch(Mismatch::NoRoom);
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
        self.model.free_requested(slot);
        self.model.free_completed(slot);
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
                    self.program.script.push(DriverCall::Malloc { address, size: size.0 });
                }
                Action::SegmentFree => self.program.script.push(DriverCall::Free { address }),
                _ => {}
            }
            match action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    self.levels.reserved += size;
                    self.replay.peak_reserved.rise(self.levels.reserved, EventId(id_of(index)));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.levels.reserved = self.levels.reserved.saturating_sub(size);
                }
                _ => {}
            }
        }
    }

    /// Makes the model's segments what the recording says.
    fn force(&mut self, event: Event) {
        let Event { address, size: Bytes(size), stream, pool, .. } = event;
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let class = if size == 2 << 20 { SizeClass::Small } else { SizeClass::Large };
                let arena = self.model.heap.arena(pool, class, stream);
                let is_map = event.action == Action::SegmentMap;
                let inside = self.model.heap.find(address).filter(|it| {
                    let block = self.model.heap.block(*it);
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
                let found = self.model.heap.find(address).filter(|it| {
                    let block = self.model.heap.block(*it);
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

    /// Whose memory a request is served from: the recording's word, or else what lies there.
    fn pool_of(&mut self, start: usize, end: usize, event: Event) -> PoolId {
        if event.pool != PoolId(0) || !self.has_private_pools || event.action == Action::Oom {
            return event.pool;
        }
        let to_come = self.pools.range(start..end).next().map(|(_, it)| *it);
        to_come.or_else(|| self.pool_at(event.address)).unwrap_or(PoolId(0))
    }

    fn pool_at(&self, address: u64) -> Option<PoolId> {
        self.model.heap.find(address).map(|it| self.model.heap.arena_of(it).pool)
    }
}
