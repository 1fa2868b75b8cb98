//! The caching allocator of one device (`DeviceCachingAllocator`): what happens in a `malloc` and in a
//! `free`, function by function under PyTorch's names. The specification is torch's source, in our own
//! words in the design notes (A.6 to A.15).
//!
//! What is left out: the callbacks that free memory; restoring checkpoints of CUDA-graph trees.

use std::collections::BTreeSet;

use crate::{
    replay::{
        Config, TorchVersion,
        driver::Driver,
        free_set::FreeKey,
        heap::{Block, Heap, State},
        rounding::{SMALL_SIZE, allocation_size, round_size, should_split},
        slot::Slot,
        stats::Stats,
    },
    trace::{PoolId, SizeClass, StreamId},
    units::Bytes,
};

/// The state of the allocator; what it gets and from where is `driver`.
#[derive(Clone, Debug)]
pub(super) struct Allocator<D> {
    pub(super) config: Config,
    pub(super) heap: Heap,
    pub(super) stats: Stats,
    pub(super) driver: D,
    /// Blocks given back that another stream may be using.
    pub(super) pending: BTreeSet<Slot>,
    /// Private pools that nobody owns any more (`graph_pools_freeable`).
    pub(super) ownerless: BTreeSet<PoolId>,
    pub(super) traits: Traits,
    /// The raw handle of each stream: the order in which sets of free blocks are walked.
    pub(super) handles: Vec<u64>,
    pub(super) limit: Option<u64>,
    pub(super) max_split: u64,
    /// How many addresses an expandable segment has at most, where a recording shows it and no setting says it.
    pub(super) range_most: Option<u64>,
}

/// What sets private pools apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Traits {
    /// Those that a graph is captured into.
    pub(super) graphs: BTreeSet<PoolId>,
    /// Those that never split a segment (`MemPool(no_split=True)`, torch 2.10 and later).
    pub(super) no_split: BTreeSet<PoolId>,
    /// Those that serve the default pool when nothing else does (`MemPool(use_on_oom=True)`, torch 2.8 and
    /// later).
    pub(super) use_on_oom: BTreeSet<PoolId>,
}

/// What the program asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) size: Bytes,
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
}

/// A request on its way (`AllocParams`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    /// The request, rounded.
    pub(super) size: u64,
    /// What the driver is asked for.
    pub(super) alloc_size: u64,
    pub(super) arena: u32,
    pub(super) pool: PoolId,
}

/// Nothing could serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfMemory {
    pub(super) params_size: u64,
    pub(super) arena: u32,
}

impl<D: Driver> Allocator<D> {
    pub(super) fn new(config: Config, handles: Vec<u64>, driver: D) -> Allocator<D> {
        Allocator {
            heap: Heap::new(config.torch.tie_break()),
            stats: Stats::default(),
            driver,
            pending: BTreeSet::new(),
            ownerless: BTreeSet::new(),
            traits: Traits::default(),
            handles,
            limit: config.limit().map(|it| it.0),
            max_split: config.max_split_size.map_or(u64::MAX, |it| it.0),
            range_most: None,
            config,
        }
    }

    /// The same, with private pools of which this is known.
    pub(super) fn with_traits(self, traits: Traits) -> Allocator<D> {
        Allocator { traits, ..self }
    }

    /// The same state, with `driver` and `config` from here on.
    pub(super) fn on<E: Driver>(self, config: Config, driver: E) -> Allocator<E> {
        let Allocator { heap, stats, pending, ownerless, traits, handles, .. } = self;
        let new = Allocator::new(config, handles, driver);
        Allocator { heap, stats, pending, ownerless, traits, ..new }
    }

    /// The program changed the settings: these hold from here on.
    pub(super) fn set(&mut self, config: Config) {
        self.limit = config.limit().map(|it| it.0);
        self.max_split = config.max_split_size.map_or(u64::MAX, |it| it.0);
        self.config = config;
    }

    /// The same state and settings, with what `change` makes of the driver.
    pub(super) fn with_driver<E>(self, change: impl FnOnce(D) -> E) -> Allocator<E> {
        let Allocator { config, heap, stats, driver, pending, ownerless, traits, .. } = self;
        let Allocator { handles, limit, max_split, range_most, .. } = self;
        let driver = change(driver);
        Allocator {
            config,
            heap,
            stats,
            driver,
            pending,
            ownerless,
            traits,
            handles,
            limit,
            max_split,
            range_most,
        }
    }

    /// Bytes got from the driver (`total_allocated_memory`).
    pub(super) fn reserved(&self) -> u64 {
        self.stats.reserved_bytes.all.current
    }

    pub(super) fn params(&mut self, request: Request) -> Params {
        let size = round_size(request.size, &self.config);
        let class = if size <= SMALL_SIZE { SizeClass::Small } else { SizeClass::Large };
        Params {
            size: size.0,
            alloc_size: allocation_size(size, &self.config).0,
            arena: self.heap.arena(request.pool, class, request.stream),
            pool: request.pool,
        }
    }

    /// Whether requests to `pool` count as part of a graph's capture, for which nothing may be released. Until
    /// torch 2.12 an active MemPool does, too.
    pub(super) fn is_captured(&self, pool: PoolId) -> bool {
        let any_pool_counts = self.config.torch <= TorchVersion::two(12);
        pool != PoolId(0) && (any_pool_counts || self.traits.graphs.contains(&pool))
    }

    /// `get_free_block`: which free block serves the request, without taking it.
    pub(super) fn get_free_block(&self, params: &Params) -> Option<Slot> {
        self.search(params, self.expandable_active(params.pool))
    }

    /// The same; blocks of expandable segments only where those can grow.
    pub(super) fn search(&self, params: &Params, can_grow: bool) -> Option<Slot> {
        let Params { size, .. } = *params;
        let max_split = self.max_split;
        let arena = &self.heap.arenas[params.arena as usize];
        let mut slot = arena.free.first_at_or_after(FreeKey::at_least(size))?.slot;
        if self.heap.block(slot).expandable {
            let candidates = arena.free.at_or_after(FreeKey::at_least(size)).skip(1);
            if can_grow {
                // A block at the end of what is mapped could grow, so it counts as that large.
                let could_grow_to = |slot: Slot| {
                    let next = self.heap.next(slot).map(|it| self.heap.block(it));
                    let room =
                        next.filter(|it| it.state == State::Unmapped).map_or(0, |it| it.size);
                    self.heap.block(slot).size.saturating_add(room)
                };
                for next in candidates {
                    if !self.heap.block(slot).expandable
                        || could_grow_to(slot) <= could_grow_to(next.slot)
                    {
                        break;
                    }
                    slot = next.slot;
                }
            } else {
                let mut rest = candidates.map(|it| it.slot);
                slot = rest.find(|it| !self.heap.block(*it).expandable)?;
            }
        }
        let found = self.heap.block(slot).size;
        if size < max_split && max_split <= found {
            return None;
        }
        if max_split <= size && size.saturating_add(self.config.max_non_split_rounding.0) <= found {
            return None;
        }
        Some(slot)
    }

    /// Whether requests to `pool` grow an expandable segment.
    pub(super) fn expandable_active(&self, pool: PoolId) -> bool {
        let private_too = TorchVersion::two(5) <= self.config.torch;
        self.config.expandable_segments && (pool == PoolId(0) || private_too)
    }

    /// A segment came.
    pub(super) fn count_segment(&mut self, slot: Slot) {
        let class = self.heap.class_of(slot);
        let size = self.heap.block(slot).size;
        self.stats.segment.increase(class, 1);
        self.stats.reserved_bytes.increase(class, size);
        self.stats.num_device_alloc += 1;
        if self.max_split <= size {
            self.stats.oversize_segments.increase(1);
        }
    }

    /// `alloc_found_block`: cuts off what is not needed, and counts. `slot` stands in no set.
    pub(super) fn alloc_found_block(
        &mut self,
        slot: Slot,
        params: &Params,
        requested: u64,
    ) -> Slot {
        let class = self.heap.class_of(slot);
        let was = *self.heap.block(slot);
        let size = Bytes(params.size);
        let rest = Bytes(was.size.saturating_sub(params.size));
        // Since 2.10 a pool that serves for another counts as one that cannot grow.
        let overflowed = params.pool != self.heap.arena_of(slot).pool;
        let can_grow = !overflowed || self.config.torch <= TorchVersion::two(9);
        let expandable = (self.config.expandable_segments && can_grow) || was.expandable;
        let is_small = class == SizeClass::Small;
        // The half of the pool decides, which for a request is the half of its size.
        let half = if is_small { Bytes(size.0.min(SMALL_SIZE.0)) } else { size };
        let splits = !self.traits.no_split.contains(&self.heap.arena_of(slot).pool);
        if splits && should_split(half, rest, expandable, &self.config) {
            let rest = self.heap.split(slot, params.size);
            self.heap.set_state(rest, State::Free);
            if !was.expandable {
                if was.is_split() {
                    self.stats.inactive_split_bytes.decrease(class, params.size);
                } else {
                    let size = self.heap.block(rest).size;
                    self.stats.inactive_split_bytes.increase(class, size);
                    self.stats.inactive_split.increase(class, 1);
                }
            }
        } else if was.is_split() && !was.expandable {
            self.stats.inactive_split_bytes.decrease(class, was.size);
            self.stats.inactive_split.decrease(class, 1);
        }
        self.hand_out(slot, requested);
        slot
    }

    /// Marks a block as the program's, and counts it.
    pub(super) fn hand_out(&mut self, slot: Slot, requested: u64) {
        let class = self.heap.class_of(slot);
        self.heap.set_state(slot, State::Allocated);
        let block = self.heap.block_mut(slot);
        block.requested = requested;
        let size = block.size;
        self.stats.allocation.increase(class, 1);
        self.stats.allocated_bytes.increase(class, size);
        self.stats.active.increase(class, 1);
        self.stats.active_bytes.increase(class, size);
        self.stats.requested_bytes.increase(class, requested);
        if self.max_split <= size {
            self.stats.oversize_allocations.increase(1);
        }
    }

    /// `free` of a block that no other stream uses.
    pub(super) fn free(&mut self, slot: Slot) {
        self.give_back(slot);
        self.complete(slot);
    }

    /// The first half of `free`: the program gives a block back that another stream may be using.
    pub(super) fn free_requested(&mut self, slot: Slot) {
        self.give_back(slot);
        self.heap.set_state(slot, State::Pending);
        self.pending.insert(slot);
    }

    fn give_back(&mut self, slot: Slot) {
        let class = self.heap.class_of(slot);
        let size = self.heap.block(slot).size;
        self.stats.allocation.decrease(class, 1);
        self.stats.allocated_bytes.decrease(class, size);
        if self.max_split <= size {
            self.stats.oversize_allocations.decrease(1);
        }
    }

    /// The second half: nobody uses the pending block any more.
    pub(super) fn free_completed(&mut self, slot: Slot) {
        self.pending.remove(&slot);
        self.complete(slot);
    }

    /// `free_block`: a block becomes reusable and joins its neighbours.
    fn complete(&mut self, slot: Slot) {
        let class = self.heap.class_of(slot);
        let Block { size: original, requested, expandable, prev, .. } = *self.heap.block(slot);
        let mut n_swallowed = 0;
        let mut swallowed = 0;
        let mut merged = slot;
        if prev != Slot::NONE && self.heap.block(prev).state == State::Free {
            n_swallowed += 1;
            swallowed += self.heap.block(prev).size;
            self.heap.set_state(prev, State::Vacant);
            self.heap.join_next(prev, slot);
            merged = prev;
        }
        if let Some(next) = self.heap.next(merged)
            && self.heap.block(next).state == State::Free
        {
            n_swallowed += 1;
            swallowed += self.heap.block(next).size;
            self.heap.set_state(next, State::Vacant);
            self.heap.join_next(merged, merged);
        }
        self.heap.block_mut(merged).requested = requested;
        self.heap.set_state(merged, State::Free);
        if !expandable {
            let block = self.heap.block(merged);
            let (n_more, more) = if block.is_split() { (1, block.size) } else { (0, 0) };
            let Stats { inactive_split, inactive_split_bytes, .. } = &mut self.stats;
            change(n_more, n_swallowed, |up, n| match up {
                true => inactive_split.increase(class, n),
                false => inactive_split.decrease(class, n),
            });
            change(more, swallowed, |up, n| match up {
                true => inactive_split_bytes.increase(class, n),
                false => inactive_split_bytes.decrease(class, n),
            });
        }
        self.stats.active.decrease(class, 1);
        self.stats.active_bytes.decrease(class, original);
        self.stats.requested_bytes.decrease(class, requested);
    }

    /// `synchronize_and_free_events`: waits until no other stream uses a block that was given back.
    pub(super) fn synchronize_and_free_events(&mut self) {
        self.stats.num_sync_all_streams += 1;
        for slot in self.driver.synchronize(&self.pending) {
            self.free_completed(slot);
        }
    }

    /// The arenas of one half of a pool, in the order in which PyTorch walks the free set: by stream.
    pub(super) fn arenas_of(&self, pool: PoolId, class: SizeClass) -> Vec<u32> {
        let arenas = self.heap.arenas.iter().zip(0..);
        let mut res: Vec<_> = arenas
            .filter(|(it, _)| it.pool == pool && it.class == class)
            .map(|(it, id)| (self.handle_of(it.stream), id))
            .collect();
        res.sort_unstable();
        res.into_iter().map(|(_, id)| id).collect()
    }

    /// The raw handle of `stream`.
    pub(super) fn handle_of(&self, stream: StreamId) -> u64 {
        self.handles.get(stream.index()).copied().unwrap_or(u64::from(stream.0))
    }

    /// Stops a debug build whose state is not what the rules allow.
    pub(super) fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            assert_eq!(self.heap.broken_invariant(), None);
            let mut reserved = 0;
            let mut active = 0;
            for (_, block) in self.heap.blocks() {
                if block.state != State::Unmapped {
                    reserved += block.size;
                }
                if matches!(block.state, State::Allocated | State::Pending) {
                    active += block.size;
                }
            }
            assert_eq!(reserved, self.reserved(), "what is mapped is what is reserved");
            assert_eq!(active, self.stats.active_bytes.all.current, "active bytes are counted");
        }
    }
}

/// Calls `apply` with the difference and whether it goes up; not at all when there is none.
fn change(more: u64, less: u64, apply: impl FnOnce(bool, u64)) {
    if more != less {
        apply(less < more, more.abs_diff(less));
    }
}
