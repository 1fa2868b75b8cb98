//! What a request goes through until it has its block: what is free, then the driver, then what can be given back
//! first. Function by function under PyTorch's names, as in `allocator`.

use crate::{
    replay::{
        TorchVersion,
        allocator::{Allocator, OutOfMemory, Params, Request},
        driver::{Choice, Driver},
        heap::{Arena, State},
        slot::Slot,
    },
    trace::PoolId,
    units::Bytes,
};

impl<D: Driver> Allocator<D> {
    /// `malloc`, after the events of streams were processed (A.11).
    pub(super) fn malloc(&mut self, request: Request) -> Result<Slot, OutOfMemory> {
        let params = self.params(request);
        if self.counts_searches() {
            self.count_search(params.arena);
        }
        let found = self.get_free_block(&params);
        let out_of_memory = OutOfMemory { params_size: params.size, arena: params.arena };
        let block = match self.driver.choose(found, &mut self.heap) {
            Choice::Take(slot) => {
                self.heap.set_state(slot, State::Vacant);
                Some(slot)
            }
            Choice::Grow => self.get_new_block(&params),
            Choice::GrowInPlace => self.alloc_block(&params),
            Choice::GiveUp => return Err(out_of_memory),
        };
        let Some(block) = block else {
            self.stats.num_ooms += 1;
            return Err(out_of_memory);
        };
        Ok(self.alloc_found_block(block, &params, request.size.0))
    }

    /// Steps 3 to 8: everything after the search.
    fn get_new_block(&mut self, params: &Params) -> Option<Slot> {
        if self.counts_searches() {
            self.garbage_collect_cached_blocks(params);
        }
        if let Some(slot) = self.alloc_block(params) {
            return Some(slot);
        }
        let overflows_first = TorchVersion::two(11) <= self.config.torch;
        if overflows_first && let Some(slot) = self.try_mempool_fallback(params) {
            return Some(slot);
        }
        if self.config.throw_on_cudamalloc_oom
            && self.config.fraction.is_some()
            && self.config.capacity.is_some_and(|capacity| {
                let share = self.config.fraction.unwrap_or(1.0);
                Bytes(self.reserved() + params.alloc_size).share_of(capacity) > share
            })
        {
            self.stats.num_oom_rejections += 1;
            return None;
        }
        if self.release_available_cached_blocks(params)
            && let Some(slot) = self.alloc_block(params)
        {
            return Some(slot);
        }
        if !self.is_captured(params.pool) {
            self.release_cached_blocks();
            self.stats.num_alloc_retries += 1;
            if let Some(slot) = self.alloc_block(params) {
                return Some(slot);
            }
        }
        if overflows_first { None } else { self.try_mempool_fallback(params) }
    }

    /// `try_mempool_fallback`: a free block of a pool that serves when the default one cannot; of none that
    /// could grow.
    fn try_mempool_fallback(&mut self, params: &Params) -> Option<Slot> {
        if params.pool != PoolId(0) || self.config.torch < TorchVersion::two(8) {
            return None;
        }
        let Arena { class, stream, .. } = self.heap.arenas[params.arena as usize];
        let until_2_9 = self.config.torch <= TorchVersion::two(9);
        // PyTorch walks a hash set; a recording shows which pool it was.
        let pools: Vec<PoolId> = match self.driver.overflows_to() {
            Some(pool) => pool.into_iter().collect(),
            None => self.traits.use_on_oom.iter().copied().collect(),
        };
        pools.into_iter().find_map(|pool| {
            let params = Params { arena: self.heap.arena(pool, class, stream), pool, ..*params };
            if self.counts_searches() {
                self.count_search(params.arena);
            }
            let found = self.search(&params, self.config.expandable_segments && until_2_9)?;
            self.heap.set_state(found, State::Vacant);
            Some(found)
        })
    }

    /// `alloc_block`: asks the driver.
    fn alloc_block(&mut self, params: &Params) -> Option<Slot> {
        let Params { alloc_size, arena, .. } = *params;
        let is_over = |limit| limit < self.reserved().saturating_add(alloc_size);
        if self.limit.is_some_and(is_over) || self.driver.refuses() {
            return None;
        }
        if self.expandable_active(params.pool) {
            return self.try_allocate_expandable_block(params);
        }
        let (address, size) = self.driver.malloc(alloc_size)?;
        let slot = self.heap.add_segment(address, size, arena, State::Vacant, false);
        self.count_segment(slot);
        Some(slot)
    }

    /// Whether garbage is collected, for which searches are counted.
    fn counts_searches(&self) -> bool {
        0.0 < self.config.garbage_collection_threshold
            && (self.limit.is_some() || self.driver.knows_what_is_collected())
    }

    /// `get_free_blocks_call_count` is one for each half of a pool, whatever the stream.
    fn count_search(&mut self, arena: u32) {
        let (pool, class) = {
            let it = &self.heap.arenas[arena as usize];
            (it.pool, it.class)
        };
        let same = self.heap.arenas.iter_mut().filter(|it| it.pool == pool && it.class == class);
        same.for_each(|it| it.searches += 1);
    }
}
