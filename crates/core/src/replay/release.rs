//! Giving memory back to the driver: collection of garbage, and what a request that the driver refused
//! tries before it fails (A.12 to A.14).

use crate::{
    replay::{
        allocator::{Allocator, Params},
        driver::Driver,
        free_set::FreeKey,
        slot::Slot,
    },
    trace::{PoolId, SizeClass},
    units::Bytes,
};

impl<D: Driver> Allocator<D> {
    /// `garbage_collect_cached_blocks`: segments that were not used for long, until the reserved bytes
    /// are below the threshold. A pass never stops early. Where the limit is not known, the driver says
    /// what was collected.
    #[expect(clippy::cast_precision_loss, reason = "as PyTorch computes it: an age in searches")]
    pub(super) fn garbage_collect_cached_blocks(&mut self, params: &Params) {
        let goal = self.limit.map(|it| self.config.garbage_line(Bytes(it)).0);
        let reserved = self.reserved();
        let mut unsplit: Vec<(Slot, u64)> = Vec::new();
        for arena in self.arenas_of(PoolId(0), SizeClass::Large) {
            let arena = &self.heap.arenas[arena as usize];
            for key in arena.free.iter() {
                let block = self.heap.block(key.slot);
                if !block.is_split() {
                    unsplit.push((key.slot, arena.searches.saturating_sub(block.searches)));
                }
            }
        }
        let mut total_age: f64 = unsplit.iter().map(|(_, age)| *age as f64).sum();
        let mut released = 0;
        while !unsplit.is_empty() {
            let threshold = total_age / unsplit.len() as f64;
            let is_due = |(slot, age): &(Slot, u64)| {
                threshold <= *age as f64 && !self.heap.block(*slot).expandable
            };
            let pass: Vec<(Slot, u64)> = unsplit.iter().copied().filter(is_due).collect();
            if pass.is_empty() {
                return;
            }
            let goes_on = match goal {
                Some(goal) => goal.saturating_add(released) < reserved,
                None => {
                    let place = |(slot, _): &(Slot, u64)| self.heap.block(*slot).address;
                    let due: Vec<u64> = pass.iter().map(place).collect();
                    let all: Vec<u64> = self.releasable(PoolId(0)).collect();
                    self.driver.collects(reserved - released, params.alloc_size, &due, &all)
                }
            };
            if !goes_on {
                return;
            }
            let before = released;
            for (slot, age) in pass {
                let size = self.heap.block(slot).size;
                if self.release_block(slot) {
                    released += size;
                    total_age -= age as f64;
                    unsplit.retain(|(it, _)| *it != slot);
                }
            }
            if released == before {
                return;
            }
        }
    }

    /// `release_available_cached_blocks`: one or more whole segments of at least `max_split_size`.
    /// What was released stays so, even when it was too little.
    pub(super) fn release_available_cached_blocks(&mut self, params: &Params) -> bool {
        if self.max_split == u64::MAX {
            return false;
        }
        let wanted = params.size.max(self.max_split);
        let free = |this: &Self| this.heap.arenas[params.arena as usize].free.clone();
        let set = free(self);
        if let Some(found) = set.at_or_after(FreeKey::at_least(wanted)).next() {
            let is_expandable = self.heap.block(found.slot).expandable;
            if !is_expandable {
                return self.release_block(found.slot);
            }
        }
        let mut released = 0;
        for key in set.before(FreeKey::at_least(wanted)) {
            if wanted <= released || key.size < self.max_split {
                break;
            }
            if !self.heap.block(key.slot).expandable && self.release_block(key.slot) {
                released += key.size;
            }
        }
        wanted <= released
    }

    /// `release_cached_blocks` of the default pool: everything that is wholly free, of pools that nobody owns
    /// any more, too. Pools that a MemPool or a graph still owns keep all they have.
    pub(super) fn release_cached_blocks(&mut self) {
        self.synchronize_and_free_events();
        self.release_blocks(PoolId(0), SizeClass::Large);
        self.release_blocks(PoolId(0), SizeClass::Small);
        // PyTorch walks a hash map; a recording shows in which order it did.
        let mut left = self.ownerless.clone();
        while let Some(pool) = self.driver.next_pool(&self.heap) {
            left.remove(&pool);
            self.release_private_pool(pool);
        }
        for pool in left {
            self.release_private_pool(pool);
        }
    }

    /// A private pool that nobody owns any more gives back what is free; small blocks first.
    pub(super) fn release_private_pool(&mut self, pool: PoolId) {
        self.ownerless.insert(pool);
        self.release_blocks(pool, SizeClass::Small);
        self.release_blocks(pool, SizeClass::Large);
    }

    /// The whole segments that [`Allocator::release_cached_blocks`] would give back of `pool`, by address, in
    /// that order.
    pub(super) fn releasable(&self, pool: PoolId) -> impl Iterator<Item = u64> {
        let halves = [SizeClass::Large, SizeClass::Small].into_iter();
        let arenas = halves.flat_map(move |half| self.arenas_of(pool, half));
        let keys = arenas.flat_map(|it| self.heap.arenas[it as usize].free.iter());
        let blocks = keys.map(|it| self.heap.block(it.slot));
        blocks.filter(|it| !it.is_split() && !it.expandable).map(|it| it.address)
    }

    /// `release_blocks`: of one half of a pool, segments first, then the granules of expandable ones.
    fn release_blocks(&mut self, pool: PoolId, class: SizeClass) {
        let mut to_unmap = Vec::new();
        for arena in self.arenas_of(pool, class) {
            let slots: Vec<Slot> =
                self.heap.arenas[arena as usize].free.iter().map(|it| it.slot).collect();
            for slot in slots {
                let block = self.heap.block(slot);
                if block.expandable {
                    to_unmap.push(slot);
                } else if !block.is_split() {
                    self.release_block(slot);
                }
            }
        }
        for slot in to_unmap {
            self.unmap_block(slot);
        }
    }

    /// `release_block`: one whole segment goes back; false when the driver's record says it did not.
    fn release_block(&mut self, slot: Slot) -> bool {
        let block = *self.heap.block(slot);
        if !self.driver.free(block.address, block.size) {
            return false;
        }
        self.forget_segment(slot);
        true
    }

    /// What giving back the segment of `slot` does to the blocks and the counts.
    pub(super) fn forget_segment(&mut self, slot: Slot) {
        let class = self.heap.class_of(slot);
        let size = self.heap.block(slot).size;
        self.stats.segment.decrease(class, 1);
        self.stats.reserved_bytes.decrease(class, size);
        self.stats.num_device_free += 1;
        if self.max_split <= size {
            self.stats.oversize_segments.decrease(1);
        }
        self.heap.remove_segment(slot);
    }
}
