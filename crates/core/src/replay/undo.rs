//! The end state, with every event undone from the last to the first: what was there before the first event,
//! and whose the memory is that events bring, as far as the end or a neighbour in the same range says.

use std::collections::BTreeMap;

use crate::{
    replay::{
        initial::{Extent, Held, Initial},
        rounding::{SMALL_BUFFER, SMALL_SIZE},
    },
    trace::{Action, BlockState, DeviceTrace, Event, PoolId, SizeClass, StreamId},
    units::Bytes,
};

/// Undoes the events of `device`, from the last to the first.
pub(super) fn undo(device: &DeviceTrace) -> Initial {
    let mut undoing = Undoing { names_pools: device.events.names_pools(), ..Undoing::default() };
    for it in &device.segments {
        let owner = undoing.owner(it.stream, Some(it.pool), Some(it.size_class));
        undoing.add(it.address, it.size.0, owner, it.expandable);
    }
    for block in device.blocks.iter().filter(|it| it.state != BlockState::Free) {
        let held = Held {
            requested: block.requested,
            size: Some(block.size),
            pending: block.state == BlockState::PendingFree,
            slot: None,
        };
        undoing.blocks.insert(block.address, held);
    }
    for index in (0..device.events.len()).rev() {
        undoing.undo(index, device.events.get(index));
    }
    undoing.finish()
}

/// The state between two events, when all after it are undone.
#[derive(Default)]
struct Undoing {
    names_pools: bool,
    pieces: BTreeMap<u64, Piece>,
    blocks: BTreeMap<u64, Held>,
    owners: Vec<Owner>,
    /// Whether it may be unknown which half of its pool any is of.
    has_unclassed: bool,
    /// Who owns what events bring, by event.
    brought: BTreeMap<usize, usize>,
}

/// A piece of memory got from the driver.
#[derive(Clone, Copy)]
struct Piece {
    end: u64,
    owner: usize,
    expandable: bool,
}

/// Whose a segment is, or a range that grows. What two pieces tell that touch is told of one range.
#[derive(Clone, Copy)]
struct Owner {
    stream: StreamId,
    pool: Option<PoolId>,
    class: Option<SizeClass>,
    /// The one that it turned out to be.
    same_as: Option<usize>,
}

impl Undoing {
    fn undo(&mut self, index: usize, event: Event) {
        let Event { address, size, stream, .. } = event;
        let held = |pending| Held { requested: size, size: None, pending, slot: None };
        let pool = Some(event.pool).filter(|_| self.names_pools);
        match event.action {
            Action::Alloc => {
                self.blocks.remove(&address);
                self.serves(address, size);
            }
            Action::FreeCompleted => {
                self.blocks.insert(address, held(true));
                self.serves(address, size);
            }
            Action::FreeRequested => {
                self.blocks.entry(address).or_insert(held(false)).pending = false;
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                if let Some(owner) = self.cut(address, size.0) {
                    self.brought.insert(index, owner);
                }
            }
            Action::SegmentFree => {
                let is_small = size == SMALL_BUFFER;
                let class = if is_small { SizeClass::Small } else { SizeClass::Large };
                let owner = self.owner(stream, pool, Some(class));
                self.add(address, size.0, owner, false);
            }
            Action::SegmentUnmap => {
                self.has_unclassed = true;
                let owner = self.owner(stream, pool, None);
                self.add(address, size.0, owner, true);
            }
            Action::Snapshot | Action::Oom | Action::Annotate | Action::Other => {}
        }
    }

    fn owner(&mut self, stream: StreamId, pool: Option<PoolId>, class: Option<SizeClass>) -> usize {
        self.owners.push(Owner { stream, pool, class, same_as: None });
        self.owners.len() - 1
    }

    fn first_of(&self, mut owner: usize) -> usize {
        while let Some(same) = self.owners[owner].same_as {
            owner = same;
        }
        owner
    }

    /// Two are one: pieces of one range.
    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first_of(a), self.first_of(b));
        if a != b {
            let other = self.owners[b];
            self.owners[b].same_as = Some(a);
            let owner = &mut self.owners[a];
            owner.pool = owner.pool.or(other.pool);
            owner.class = owner.class.or(other.class);
        }
    }

    /// A block of that size shows which half of a pool a range is of.
    fn serves(&mut self, address: u64, size: Bytes) {
        if self.has_unclassed
            && let Some((_, piece)) = self.pieces.range(..=address).next_back()
            && piece.expandable
            && address < piece.end
        {
            let owner = self.first_of(piece.owner);
            let is_small = size <= SMALL_SIZE;
            let class = if is_small { SizeClass::Small } else { SizeClass::Large };
            self.owners[owner].class.get_or_insert(class);
        }
    }

    fn add(&mut self, address: u64, size: u64, owner: usize, expandable: bool) {
        let mut start = address;
        let mut end = address.saturating_add(size);
        if expandable {
            // A range is never mapped up to its end, so what touches is of the same.
            if let Some((&at, &before)) = self.pieces.range(..address).next_back()
                && before.end == address
                && before.expandable
            {
                self.unite(before.owner, owner);
                start = at;
            }
            if let Some(after) = self.pieces.get(&end).copied()
                && after.expandable
            {
                self.unite(after.owner, owner);
                self.pieces.remove(&end);
                end = after.end;
            }
        }
        self.pieces.insert(start, Piece { end, owner, expandable });
    }

    /// Takes a piece out; returns whose it was.
    fn cut(&mut self, address: u64, size: u64) -> Option<usize> {
        let end = address.saturating_add(size);
        let (&start, &piece) = self.pieces.range(..=address).next_back()?;
        if piece.end < end {
            return None;
        }
        self.pieces.remove(&start);
        if start < address {
            self.pieces.insert(start, Piece { end: address, ..piece });
        }
        if end < piece.end {
            self.pieces.insert(end, piece);
        }
        Some(piece.owner)
    }

    fn finish(self) -> Initial {
        let extent = |piece: &Piece| {
            let Owner { stream, pool, class, .. } = self.owners[self.first_of(piece.owner)];
            let class = class.unwrap_or(SizeClass::Large);
            let pool = pool.unwrap_or_default();
            Extent { end: piece.end, stream, pool, class, expandable: piece.expandable }
        };
        let known = |owner: usize| self.owners[self.first_of(owner)].pool;
        let pools = self.brought.iter().filter_map(|(at, it)| Some((*at, known(*it)?)));
        Initial {
            extents: self.pieces.iter().map(|(at, it)| (*at, extent(it))).collect(),
            pools: pools.collect(),
            blocks: self.blocks,
        }
    }
}
