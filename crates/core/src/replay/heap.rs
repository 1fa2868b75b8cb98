//! The memory that an allocator holds, as recorded addresses show it: pieces got from the driver, and
//! the blocks in use within them.
//!
//! There are no free blocks in here: between operations no two free neighbours exist, so free memory
//! is exactly the gaps between blocks in use.

use std::collections::BTreeMap;

use crate::{replay::BlockId, units::Bytes};

/// The pieces and the blocks in use.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// By where they begin. Invariant: they do not overlap, and two expandable ones do not touch.
    pieces: BTreeMap<u64, Piece>,
    /// By where they begin. Invariant: they do not overlap.
    in_use: BTreeMap<u64, InUse>,
}

/// A segment of `cudaMalloc`, or a mapped run of an expandable one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) end: u64,
    pub(super) expandable: bool,
}

/// A block that the program has, or another stream may still be using.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse {
    pub(super) end: u64,
    pub(super) block: BlockId,
}

/// The free memory that a block was cut from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// From the block's address to the next block in use, or the end of the piece.
    pub(super) size: Bytes,
    pub(super) expandable: bool,
    /// The block begins where the free memory begins, as the allocator always cuts it.
    pub(super) from_its_start: bool,
}

impl Heap {
    /// The free memory at `address`; none outside all pieces and within a block in use.
    pub(super) fn gap(&self, address: u64) -> Option<Gap> {
        let (&start, piece) = self.pieces.range(..=address).next_back()?;
        if piece.end <= address {
            return None;
        }
        let before = self.in_use.range(start..=address).next_back();
        let start = before.map_or(start, |(_, it)| it.end);
        if address < start {
            return None;
        }
        let next = self.in_use.range(address..piece.end).next();
        let end = next.map_or(piece.end, |(at, _)| *at);
        Some(Gap {
            size: Bytes(end - address),
            expandable: piece.expandable,
            from_its_start: start == address,
        })
    }

    /// `block` takes `size` at `address`; what was in use there before is returned.
    pub(super) fn take(&mut self, address: u64, size: Bytes, block: BlockId) -> Option<InUse> {
        self.in_use.insert(address, InUse { end: address.saturating_add(size.0), block })
    }

    /// The block at `address` becomes free.
    pub(super) fn give_back(&mut self, address: u64) -> Option<InUse> {
        self.in_use.remove(&address)
    }

    /// The block in use that begins at `address`.
    pub(super) fn at(&self, address: u64) -> Option<InUse> {
        self.in_use.get(&address).copied()
    }

    /// The driver gave a segment.
    pub(super) fn add(&mut self, address: u64, size: Bytes) {
        let end = address.saturating_add(size.0);
        self.pieces.insert(address, Piece { end, expandable: false });
    }

    /// A range of an expandable segment was mapped; it joins its mapped neighbours.
    pub(super) fn map(&mut self, address: u64, size: Bytes) {
        let mut start = address;
        let mut end = address.saturating_add(size.0);
        if let Some((&at, piece)) = self.pieces.range(..address).next_back()
            && piece.expandable
            && piece.end == address
        {
            start = at;
        }
        if let Some(next) = self.pieces.get(&end).copied()
            && next.expandable
        {
            self.pieces.remove(&end);
            end = next.end;
        }
        self.pieces.insert(start, Piece { end, expandable: true });
    }

    /// A segment went back to the driver, or a range of an expandable one was unmapped: what was
    /// mapped around it stays. Returns whether it was there.
    pub(super) fn remove(&mut self, address: u64, size: Bytes) -> bool {
        let end = address.saturating_add(size.0);
        let Some((&start, &piece)) = self.pieces.range(..=address).next_back() else {
            return false;
        };
        if piece.end < end || piece.end <= address {
            return false;
        }
        self.pieces.remove(&start);
        if start < address {
            self.pieces.insert(start, Piece { end: address, ..piece });
        }
        if end < piece.end {
            self.pieces.insert(end, piece);
        }
        true
    }

    /// The blocks in use, by address.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u64, InUse)> {
        self.in_use.iter().map(|(at, it)| (*at, *it))
    }

    /// How much the pieces are in all.
    pub(super) fn held(&self) -> Bytes {
        self.pieces.iter().map(|(start, it)| Bytes(it.end - start)).sum()
    }
}
