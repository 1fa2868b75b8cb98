//! The part of a process's address space that nobody uses, and the kernel's choice in it: the upper
//! end of the highest gap that is large enough (`vm_unmapped_area`, top-down).

use std::collections::BTreeMap;

/// What the kernel hands out address space in.
const PAGE: u64 = 4096;

/// Unused address space.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    /// Start and size; no two touch.
    by_start: BTreeMap<u64, u64>,
}

impl Gaps {
    /// One gap.
    pub(crate) fn new(floor: u64, ceiling: u64) -> Gaps {
        let bytes = ceiling.saturating_sub(floor);
        Gaps { by_start: if bytes == 0 { BTreeMap::new() } else { [(floor, bytes)].into() } }
    }

    /// Reserves `bytes`, a multiple of the chunk, at a multiple of it.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let asked = bytes.checked_add(CHUNK - PAGE)?;
        let (&start, &size) = self.by_start.iter().rev().find(|it| asked <= *it.1)?;
        let end = start + size;
        // What the kernel gave begins at `end - asked`; what lies before a multiple, and after, goes back.
        let at = (end - asked).next_multiple_of(CHUNK);
        self.by_start.remove(&start);
        for (from, to) in [(start, at), (at + bytes, end)] {
            if from < to {
                self.by_start.insert(from, to - from);
            }
        }
        Some(at)
    }

    /// What was reserved goes back.
    pub(crate) fn give_back(&mut self, at: u64, bytes: u64) {
        join(&mut self.by_start, at, bytes);
    }
}

/// Adds a range to others, and joins it with those that it touches; the size of what it is then.
pub(crate) fn join(ranges: &mut BTreeMap<u64, u64>, mut at: u64, mut bytes: u64) -> u64 {
    if let Some((&before, &size)) = ranges.range(..at).next_back()
        && before + size == at
    {
        ranges.remove(&before);
        (at, bytes) = (before, size + bytes);
    }
    if let Some(size) = ranges.remove(&(at + bytes)) {
        bytes += size;
    }
    ranges.insert(at, bytes);
    bytes
}

/// What the driver takes address space in.
pub(crate) const CHUNK: u64 = 32 << 20;
