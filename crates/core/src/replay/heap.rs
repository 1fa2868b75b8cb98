//! Blocks, the segments that they tile, and the sets of free ones. Knows how a block is split and
//! merged; not when, and nothing of the driver.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        free_set::{FreeKey, FreeSet},
        slot::Slot,
        torch_version::TieBreak,
    },
    trace::{PoolId, SizeClass, StreamId},
};

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The allocator: it stands in the free set.
    Free,
    /// The program.
    Allocated,
    /// The program gave it back; another stream may still be using it.
    Pending,
    /// Addresses without memory, in an expandable segment.
    Unmapped,
    /// Nobody: the slot is to be used again.
    Vacant,
}

/// A contiguous piece of a segment (`Block`). Sizes and addresses are bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) size: u64,
    /// What the program asked for; stale when free.
    pub(super) requested: u64,
    /// Its place among blocks of equal size (allocator.md, A.5): the address; or the number of the block
    /// object; or the number of the segment, and the place in it in units of 512 bytes.
    order: u64,
    /// The count of searches when it became free (`gc_count_base`).
    pub(super) searches: u64,
    pub(super) prev: Slot,
    pub(super) next: Slot,
    pub(super) arena: u32,
    pub(super) state: State,
    pub(super) expandable: bool,
}

/// What may serve whom: free blocks of one half of a pool on one stream.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    pub(super) pool: PoolId,
    pub(super) class: SizeClass,
    pub(super) stream: StreamId,
    /// The free blocks in the order of PyTorch's free set, whose first key, the stream, is this arena's.
    pub(super) free: FreeSet,
    /// The unmapped blocks, by address.
    pub(super) unmapped: BTreeSet<(u64, Slot)>,
    /// Searches so far (`get_free_blocks_call_count`), counted for collection of garbage.
    pub(super) searches: u64,
}

/// All blocks of one device.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    blocks: Vec<Block>,
    vacant: Vec<Slot>,
    pub(super) arenas: Vec<Arena>,
    arena_ids: BTreeMap<(PoolId, SizeClass, StreamId), u32>,
    /// The last arena asked for, by half: programs stay on their stream.
    last: [Option<(PoolId, StreamId, u32)>; 2],
    /// The address and the first block of every segment, and of every expandable range. Two are at one
    /// address only in a recording that contradicts itself; both are kept, so that what is counted is here.
    pub(super) segments: BTreeSet<(u64, Slot)>,
    tie_break: TieBreak,
    counter: u64,
}

impl Block {
    /// Whether it is one of several in its segment.
    pub(super) fn is_split(&self) -> bool {
        self.prev != Slot::NONE || self.next != Slot::NONE
    }

    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

impl Heap {
    pub(super) fn new(tie_break: TieBreak) -> Heap {
        Heap {
            blocks: Vec::new(),
            vacant: Vec::new(),
            arenas: Vec::new(),
            arena_ids: BTreeMap::new(),
            last: [None; 2],
            segments: BTreeSet::new(),
            tie_break,
            counter: 0,
        }
    }

    pub(super) fn block(&self, slot: Slot) -> &Block {
        &self.blocks[slot.0 as usize]
    }

    pub(super) fn block_mut(&mut self, slot: Slot) -> &mut Block {
        &mut self.blocks[slot.0 as usize]
    }

    pub(super) fn next(&self, slot: Slot) -> Option<Slot> {
        self.block(slot).next.some()
    }

    pub(super) fn prev(&self, slot: Slot) -> Option<Slot> {
        self.block(slot).prev.some()
    }

    pub(super) fn arena_of(&self, slot: Slot) -> &Arena {
        &self.arenas[self.block(slot).arena as usize]
    }

    pub(super) fn class_of(&self, slot: Slot) -> SizeClass {
        self.arena_of(slot).class
    }

    /// The arena of a half of a pool on a stream, made when it is first asked for.
    pub(super) fn arena(&mut self, pool: PoolId, class: SizeClass, stream: StreamId) -> u32 {
        let half = usize::from(class == SizeClass::Large);
        if let Some((p, s, arena)) = self.last[half]
            && p == pool
            && s == stream
        {
            return arena;
        }
        let Heap { arenas, arena_ids, .. } = self;
        let arena = *arena_ids.entry((pool, class, stream)).or_insert_with(|| {
            arenas.push(Arena {
                pool,
                class,
                stream,
                free: FreeSet::default(),
                unmapped: BTreeSet::new(),
                searches: 0,
            });
            super::history::id_of(arenas.len() - 1)
        });
        self.last[half] = Some((pool, stream, arena));
        arena
    }

    /// A new segment, as one block in `state`.
    pub(super) fn add_segment(
        &mut self,
        address: u64,
        size: u64,
        arena: u32,
        state: State,
        expandable: bool,
    ) -> Slot {
        self.counter += 1;
        let slot = self.push(Block {
            address,
            size,
            requested: 0,
            order: match self.tie_break {
                TieBreak::Address => address,
                TieBreak::BlockMade => self.counter,
                TieBreak::SegmentMade => self.counter << 32,
            },
            searches: 0,
            prev: Slot::NONE,
            next: Slot::NONE,
            arena,
            state: State::Vacant,
            expandable,
        });
        self.segments.insert((address, slot));
        self.set_state(slot, state);
        slot
    }

    /// The only block of a segment goes, and the segment with it.
    pub(super) fn remove_segment(&mut self, slot: Slot) {
        debug_assert!(!self.block(slot).is_split(), "a segment goes when it is one block");
        self.set_state(slot, State::Vacant);
        let address = self.block(slot).address;
        self.segments.remove(&(address, slot));
        self.vacant.push(slot);
    }

    /// Moves a block between the sets.
    pub(super) fn set_state(&mut self, slot: Slot, state: State) {
        let key = self.key(slot);
        let Heap { blocks, arenas, .. } = self;
        let block = &mut blocks[slot.0 as usize];
        let arena = &mut arenas[block.arena as usize];
        match block.state {
            State::Free => {
                arena.free.remove(key, slot);
            }
            State::Unmapped => {
                arena.unmapped.remove(&(block.address, slot));
            }
            _ => {}
        }
        block.state = state;
        match state {
            State::Free => {
                block.searches = arena.searches;
                arena.free.insert(key, slot);
            }
            State::Unmapped => {
                arena.unmapped.insert((block.address, slot));
            }
            _ => {}
        }
    }

    /// Cuts `slot`, which stands in no set, after `size` bytes; the rest is returned, in no set either.
    /// The front keeps the slot.
    pub(super) fn split(&mut self, slot: Slot, size: u64) -> Slot {
        let front = *self.block(slot);
        debug_assert!(0 < size && size < front.size, "both parts have bytes");
        let rest = self.push(Block {
            // The last addresses there are occur in damage only.
            address: front.address.saturating_add(size),
            size: front.size - size,
            order: match self.tie_break {
                TieBreak::Address => front.order.saturating_add(size),
                // The front part is the new object, and the rest keeps its number.
                TieBreak::BlockMade => front.order,
                TieBreak::SegmentMade => front.order + size / 512,
            },
            prev: slot,
            state: State::Vacant,
            ..front
        });
        if let Some(next) = front.next.some() {
            self.block_mut(next).prev = rest;
        }
        let made = self.next_order();
        let block = self.block_mut(slot);
        block.size = size;
        block.next = rest;
        if let Some(made) = made {
            block.order = made;
        }
        rest
    }

    /// Joins the right neighbour to `slot`; both stand in no set. The result has the number of `whose`.
    pub(super) fn join_next(&mut self, slot: Slot, whose: Slot) {
        let Some(next) = self.next(slot) else { return };
        let Block { size, next: after, .. } = *self.block(next);
        let order = self.block(whose).order;
        if let Some(after) = after.some() {
            self.block_mut(after).prev = slot;
        }
        let block = self.block_mut(slot);
        block.size += size;
        block.next = after;
        if self.tie_break == TieBreak::BlockMade {
            self.block_mut(slot).order = order;
        }
        self.block_mut(next).state = State::Vacant;
        self.vacant.push(next);
    }

    /// The block that has `address`, walking from the start of its segment.
    pub(super) fn find(&self, address: u64) -> Option<Slot> {
        let &(_, first) = self.segments.range(..=(address, Slot::NONE)).next_back()?;
        let mut at = Some(first);
        while let Some(slot) = at {
            let block = self.block(slot);
            if address < block.end() {
                return (block.address <= address).then_some(slot);
            }
            at = block.next.some();
        }
        None
    }

    /// Whether several of what `cudaMalloc` gave begin at `address`.
    pub(super) fn is_twice(&self, address: u64) -> bool {
        let here = self.segments.range((address, Slot(0))..=(address, Slot::NONE));
        1 < here.filter(|(_, first)| !self.block(*first).expandable).count()
    }

    /// The blocks of all segments, by address.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Slot, &Block)> {
        self.segments.iter().flat_map(|(_, first)| {
            std::iter::successors(Some(*first), |it| self.next(*it))
                .map(|slot| (slot, self.block(slot)))
        })
    }

    /// What `cudaMalloc` gave: where, and how much. Ranges of expandable segments are not among it.
    pub(super) fn whole_segments(&self) -> BTreeMap<u64, u64> {
        let mut res = BTreeMap::new();
        for (at, first) in &self.segments {
            if !self.block(*first).expandable {
                let blocks = std::iter::successors(Some(*first), |it| self.next(*it));
                res.insert(*at, blocks.map(|it| self.block(it).size).sum());
            }
        }
        res
    }

    /// The private pools that were asked, the newest first.
    pub(super) fn private_pools(&self) -> Vec<PoolId> {
        let mut res = Vec::new();
        for pool in self.arenas.iter().rev().map(|it| it.pool).filter(|it| *it != PoolId(0)) {
            if !res.contains(&pool) {
                res.push(pool);
            }
        }
        res
    }

    /// The largest free block that `arena` could be served from, and the largest of all.
    pub(super) fn largest_free(&self, arena: u32) -> (u64, u64) {
        let largest = |it: &Arena| it.free.last().map_or(0, |it| it.size);
        (
            largest(&self.arenas[arena as usize]),
            self.arenas.iter().map(largest).max().unwrap_or_default(),
        )
    }

    /// The sentence that is broken, if any is.
    pub(super) fn broken_invariant(&self) -> Option<&'static str> {
        let mut before: Option<&Block> = None;
        for (slot, block) in self.blocks() {
            let Some(last) = before.replace(block).filter(|_| block.prev != Slot::NONE) else {
                continue;
            };
            if last.end() != block.address {
                return Some("the blocks of a segment tile it");
            }
            if last.state == block.state && matches!(block.state, State::Free | State::Unmapped) {
                return Some("no two free neighbours have the same mapped state");
            }
            if block.state == State::Free
                && !self.arena_of(slot).free.contains(self.key(slot), slot)
            {
                return Some("a free block stands in the free set");
            }
        }
        let n_free = self.blocks().filter(|(_, it)| it.state == State::Free).count();
        let n_in_sets: usize = self.arenas.iter().map(|it| it.free.len()).sum();
        (n_free != n_in_sets).then_some("what stands in the free sets is free")
    }

    fn key(&self, slot: Slot) -> FreeKey {
        let block = self.block(slot);
        FreeKey::new(block.size, block.order)
    }

    fn next_order(&mut self) -> Option<u64> {
        (self.tie_break == TieBreak::BlockMade).then(|| {
            self.counter += 1;
            self.counter
        })
    }

    fn push(&mut self, block: Block) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.blocks[slot.0 as usize] = block;
            return slot;
        }
        self.blocks.push(block);
        Slot(super::history::id_of(self.blocks.len() - 1))
    }
}
