//! What the allocator asks of the world: the driver's memory, and the order of the choices that a
//! recording has already made.

use std::collections::BTreeSet;

use plimsoll_addresses::Addresses;

use crate::replay::heap::{Heap, Slot};

/// The other side of the allocator. Sizes and addresses are bytes.
pub(super) trait Driver {
    /// `cudaMalloc`: where it lies, and how large it is; none when there is no memory.
    fn malloc(&mut self, size: u64) -> Option<(u64, u64)>;
    /// `cudaFree`; false when the recording did not do it.
    fn free(&mut self, address: u64, size: u64) -> bool;
    /// A range of addresses for an expandable segment.
    fn reserve(&mut self, size: u64) -> Option<u64>;
    /// Puts memory behind a range; false when there is none.
    fn map(&mut self, address: u64, size: u64) -> bool;
    /// Takes it away again; false when the recording did not do it.
    fn unmap(&mut self, address: u64, size: u64) -> bool;
    /// What `find_free` found, before it is taken.
    fn choose(&mut self, found: Option<Slot>, heap: &mut Heap) -> Choice;
    /// Waits for all streams: the pending blocks that are free then.
    fn synchronize(&mut self, pending: &BTreeSet<Slot>) -> Vec<Slot>;
}

/// Which block a request is served from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one.
    Take(Slot),
    /// None: more memory is needed.
    Grow,
    /// None, and the recording shows that nothing was tried: the state is not what it was.
    GiveUp,
}

/// A device with so much memory, and a driver that follows the phantom's rule of addresses.
#[derive(Debug)]
pub(super) struct FreeDriver {
    left: u64,
    addresses: Addresses,
    /// Where the next expandable range begins: far from what `cudaMalloc` gives.
    next_range: u64,
}

/// Where segments lie: a window as large as a driver has.
const FLOOR: u64 = 0x7000_0000_0000;
const CEILING: u64 = 0x7f00_0000_0000;
/// Where ranges begin.
const RANGES: u64 = 0x1000_0000_0000;

impl FreeDriver {
    /// A device that gives `capacity` bytes.
    pub(super) fn new(capacity: u64) -> FreeDriver {
        FreeDriver {
            left: capacity,
            addresses: Addresses::new(FLOOR, CEILING),
            next_range: RANGES,
        }
    }

    /// What was taken before the replay begins.
    pub(super) fn take(&mut self, size: u64) {
        self.left = self.left.saturating_sub(size);
    }
}

impl Driver for FreeDriver {
    fn malloc(&mut self, size: u64) -> Option<(u64, u64)> {
        let left = self.left.checked_sub(size)?;
        // The driver rounds up to what it maps; PyTorch counts what it asked for.
        let address = self.addresses.take(size.checked_next_multiple_of(2 << 20)?)?;
        self.left = left;
        Some((address, size))
    }

    fn free(&mut self, address: u64, size: u64) -> bool {
        self.left = self.left.saturating_add(size);
        // A segment from before the recording lies where the recording says; it is not reused.
        let _ = self.addresses.give_back(address);
        true
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        let at = self.next_range;
        self.next_range = at.checked_add(size)?.checked_next_multiple_of(1 << 30)?;
        Some(at)
    }

    fn map(&mut self, _: u64, size: u64) -> bool {
        let left = self.left.checked_sub(size);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    fn unmap(&mut self, _: u64, size: u64) -> bool {
        self.left = self.left.saturating_add(size);
        true
    }

    fn choose(&mut self, found: Option<Slot>, _: &mut Heap) -> Choice {
        found.map_or(Choice::Grow, Choice::Take)
    }

    fn synchronize(&mut self, pending: &BTreeSet<Slot>) -> Vec<Slot> {
        pending.iter().copied().collect()
    }
}
