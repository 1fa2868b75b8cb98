//! Expandable segments (`ExpandableSegment`, since torch 2.1): ranges of addresses that get memory
//! granule by granule. Each serves one half of a pool on one stream.

use crate::{
    replay::{
        allocator::{Allocator, Params},
        driver::Driver,
        heap::State,
        rounding::SMALL_BUFFER,
        slot::Slot,
    },
    trace::SizeClass,
};

impl<D: Driver> Allocator<D> {
    /// `try_allocate_expandable_block`: maps until `params.size` bytes are free in one piece. When the
    /// driver refuses half-way, what it gave so far stays mapped and free.
    pub(super) fn try_allocate_expandable_block(&mut self, params: &Params) -> Option<Slot> {
        let mut slot = self.find_expandable_block(params)?;
        if self.heap.block(slot).state == State::Unmapped {
            let size = self.heap.block(slot).size.min(params.size);
            slot = self.map_block(slot, size)?;
        }
        while self.heap.block(slot).size < params.size {
            let missing = params.size - self.heap.block(slot).size;
            let next = self.heap.next(slot)?;
            let size = self.heap.block(next).size.min(missing);
            slot = self.map_block(next, size)?;
        }
        self.heap.set_state(slot, State::Vacant);
        Some(slot)
    }

    /// `find_expandable_block`: where to grow, by address; a new range when nothing is wide enough.
    fn find_expandable_block(&mut self, params: &Params) -> Option<Slot> {
        while let Some(start) = self.place_to_grow(params) {
            if !self.ends_before(start, params) {
                return Some(start);
            }
        }
        let granule = self.granule(self.heap.arenas[params.arena as usize].class);
        let size = self.config.expandable_range().checked_next_multiple_of(granule)?;
        if size < params.size {
            return None;
        }
        let address = self.driver.reserve(size)?;
        Some(self.heap.add_segment(address, size, params.arena, State::Unmapped, true))
    }

    /// The first place in the ranges there are that is wide enough, mapped or not.
    fn place_to_grow(&self, params: &Params) -> Option<Slot> {
        let arena = &self.heap.arenas[params.arena as usize];
        arena.unmapped.iter().find_map(|(_, unmapped)| {
            let before = self.heap.prev(*unmapped);
            let start =
                before.filter(|it| self.heap.block(*it).state == State::Free).unwrap_or(*unmapped);
            let mut width = 0_u64;
            let mut at = Some(start);
            while let Some(slot) = at {
                let block = self.heap.block(slot);
                if !matches!(block.state, State::Free | State::Unmapped) {
                    break;
                }
                width = width.saturating_add(block.size);
                if params.size <= width {
                    return self.is_in_range(start, params).then_some(start);
                }
                at = self.heap.next(slot);
            }
            None
        })
    }

    /// Whether the range of `start` is known to go on for that much, as far as anything is known of where ranges end.
    fn is_in_range(&self, start: Slot, params: &Params) -> bool {
        let Some(most) = self.range_most else { return true };
        let granule = self.granule(self.heap.class_of(start));
        self.needed_range(start, params) <= most.next_multiple_of(granule)
    }

    /// How long the range of `start` is at least, if a request is served there.
    fn needed_range(&self, start: Slot, params: &Params) -> u64 {
        self.heap.block(start).address - self.range_start(start) + params.size
    }

    /// A recording says what share of the device a range is, and not of which device. Where it grows elsewhere although there was
    /// room at `start`, up to where nothing was mapped yet, the range ends before: takes that for where all end.
    fn ends_before(&mut self, start: Slot, params: &Params) -> bool {
        if !self.config.ranges_end_early() {
            return false;
        }
        let mut width = 0;
        let mut last = start;
        let mut grows_at = None;
        for slot in std::iter::successors(Some(start), |it| self.heap.next(*it)) {
            let block = self.heap.block(slot);
            if block.state == State::Unmapped && grows_at.is_none() {
                grows_at = Some(block.address);
            }
            last = slot;
            width += block.size;
            if params.size <= width {
                break;
            }
        }
        if self.heap.next(last).is_some()
            || !grows_at.is_some_and(|it| self.driver.maps_elsewhere(it))
        {
            return false;
        }
        let granule = self.granule(self.heap.class_of(start));
        let most = (self.needed_range(start, params) - 1) / granule * granule;
        if most.next_multiple_of(self.granule(SizeClass::Large)) < self.longest_range() {
            return false;
        }
        self.range_most = Some(most);
        true
    }

    /// How far any range has got.
    fn longest_range(&self) -> u64 {
        let mapped = self.heap.segments.iter().filter_map(|(start, first)| {
            let last = std::iter::successors(Some(*first), |it| self.heap.next(*it)).last()?;
            let last = self.heap.block(last);
            let end = if last.state == State::Unmapped { last.address } else { last.end() };
            last.expandable.then_some(end - start)
        });
        mapped.max().unwrap_or(0)
    }

    /// How much a request that finds no free block would map.
    pub(super) fn would_map(&self, params: &Params) -> u64 {
        let granule = self.granule(self.heap.arenas[params.arena as usize].class);
        let mut at = self.place_to_grow(params);
        let mut missing = params.size;
        let mut mapped = 0_u64;
        while let Some(slot) = at.filter(|_| 0 < missing) {
            let block = self.heap.block(slot);
            let mut part = block.size;
            if block.state == State::Unmapped {
                part = missing.next_multiple_of(granule).min(block.size);
                mapped = mapped.saturating_add(part);
            }
            missing = missing.saturating_sub(part);
            at = self.heap.next(slot);
        }
        mapped.saturating_add(missing.next_multiple_of(granule))
    }

    /// `map_block`: puts memory behind the first `size` bytes of an unmapped block, in whole granules.
    /// Returns the free block that has them.
    pub(super) fn map_block(&mut self, slot: Slot, size: u64) -> Option<Slot> {
        let class = self.heap.class_of(slot);
        let block = *self.heap.block(slot);
        let size = size.checked_next_multiple_of(self.granule(class))?.min(block.size);
        if !self.driver.map(block.address, size) {
            return None;
        }
        self.heap.set_state(slot, State::Vacant);
        if size < block.size {
            let rest = self.heap.split(slot, size);
            self.heap.set_state(rest, State::Unmapped);
        }
        let merged = self.merge_free(slot);
        self.heap.set_state(merged, State::Free);
        self.stats.reserved_bytes.increase(class, size);
        self.stats.num_device_alloc += 1;
        Some(merged)
    }

    /// `unmap_block`: takes the memory of a free block's whole granules away. Returns whether the range
    /// has nothing left.
    pub(super) fn unmap_block(&mut self, slot: Slot) -> bool {
        let class = self.heap.class_of(slot);
        let granule = self.granule(class);
        let block = *self.heap.block(slot);
        let base = self.range_start(slot);
        let up = |it: u64| base + (it - base).next_multiple_of(granule);
        let low = up(block.address);
        let high = base + (block.end() - base) / granule * granule;
        if high <= low || !self.driver.unmap(low, high - low) {
            return false;
        }
        self.unmap_range(slot, low, high);
        true
    }

    /// What unmapping `low..high` of the free block `slot` does to the blocks.
    pub(super) fn unmap_range(&mut self, slot: Slot, low: u64, high: u64) -> Slot {
        let class = self.heap.class_of(slot);
        let block = *self.heap.block(slot);
        self.heap.set_state(slot, State::Vacant);
        let mut middle = slot;
        if block.address < low {
            middle = self.heap.split(slot, low - block.address);
            self.heap.set_state(slot, State::Free);
        }
        if high < block.end() {
            let after = self.heap.split(middle, high - low);
            self.heap.set_state(after, State::Free);
        }
        self.stats.reserved_bytes.decrease(class, high - low);
        self.stats.num_device_free += 1;
        if let Some(next) = self.heap.next(middle)
            && self.heap.block(next).state == State::Unmapped
        {
            self.heap.set_state(next, State::Vacant);
            self.heap.join_next(middle, middle);
        }
        if let Some(prev) = self.heap.prev(middle)
            && self.heap.block(prev).state == State::Unmapped
        {
            self.heap.set_state(prev, State::Vacant);
            self.heap.join_next(prev, middle);
            middle = prev;
        }
        self.heap.set_state(middle, State::Unmapped);
        if !self.heap.block(middle).is_split() {
            self.heap.remove_segment(middle);
        }
        middle
    }

    /// Maps `size` bytes at `address`, which lie in the unmapped block `slot`, because a recording says
    /// so.
    pub(super) fn force_map(&mut self, slot: Slot, address: u64, size: u64) {
        let block = *self.heap.block(slot);
        let class = self.heap.class_of(slot);
        self.heap.set_state(slot, State::Vacant);
        let mut middle = slot;
        if block.address < address {
            middle = self.heap.split(slot, address - block.address);
            self.heap.set_state(slot, State::Unmapped);
        }
        if address.saturating_add(size) < block.end() {
            let after = self.heap.split(middle, size);
            self.heap.set_state(after, State::Unmapped);
        }
        let merged = self.merge_free(middle);
        self.heap.set_state(merged, State::Free);
        self.stats.reserved_bytes.increase(class, size);
        self.stats.num_device_alloc += 1;
    }

    /// Joins the free neighbours of `slot`, which stands in no set, to it.
    pub(super) fn merge_free(&mut self, slot: Slot) -> Slot {
        let mut merged = slot;
        if let Some(prev) = self.heap.prev(slot)
            && self.heap.block(prev).state == State::Free
        {
            self.heap.set_state(prev, State::Vacant);
            self.heap.join_next(prev, slot);
            merged = prev;
        }
        if let Some(next) = self.heap.next(merged)
            && self.heap.block(next).state == State::Free
        {
            self.heap.set_state(next, State::Vacant);
            self.heap.join_next(merged, merged);
        }
        merged
    }

    /// What memory is mapped in: the size of one physical handle.
    fn granule(&self, class: SizeClass) -> u64 {
        match class {
            SizeClass::Small => SMALL_BUFFER.0,
            SizeClass::Large => self.config.large_segment_size.0,
        }
    }

    fn range_start(&self, slot: Slot) -> u64 {
        let address = self.heap.block(slot).address;
        let mut upto = self.heap.segments.range(..=(address, Slot::NONE));
        upto.next_back().map_or(address, |(start, _)| *start)
    }
}
