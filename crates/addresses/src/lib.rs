//! Which address the driver hands out. PyTorch breaks ties between equal free blocks by address
//! (before torch 2.12), so the order decides which block is used again, and with it the reserved
//! bytes. Knows neither capacity nor contents.
//!
//! A crate of its own, because both need it and neither may link the other: the phantom, which goes into
//! somebody else's process, and the replay, which asks where segments would have been.
//!
//! The rule is read off recordings of real H200 runs (`bench/replay` says how many it reproduces):
//! address space is taken in chunks of 32 MiB, each new one directly below the last; a request
//! begins at the start of its chunk; a later one that fits goes into the unused end of an existing
//! chunk, of several the lowest.

use std::collections::BTreeMap;

/// What the driver maps memory in: every allocation is a multiple of it.
pub const GRANULE: u64 = 2 << 20;
/// What the driver takes address space in.
const CHUNK: u64 = 32 << 20;

/// The address space of one device for `cudaMalloc`.
#[derive(Clone, Debug)]
pub struct Addresses {
    floor: u64,
    /// Everything at and above this, up to the ceiling, has been taken as chunks.
    lowest: u64,
    /// Free ranges inside the chunks, by address. Invariant: no two touch.
    holes: BTreeMap<u64, u64>,
    /// Ranges handed out, by address.
    taken: BTreeMap<u64, u64>,
}

impl Addresses {
    /// An address space that hands out `floor..ceiling`, from the top.
    pub fn new(floor: u64, ceiling: u64) -> Addresses {
        let lowest = ceiling / CHUNK * CHUNK;
        Addresses { floor, lowest, holes: BTreeMap::new(), taken: BTreeMap::new() }
    }

    /// An address space in which `taken`, starts and sizes, is in use, as somebody else's record has it:
    /// what lies between two ranges is free when it is less than 1 GiB, and else no part of this space.
    pub fn holding(floor: u64, ceiling: u64, taken: &BTreeMap<u64, u64>) -> Addresses {
        const FAR: u64 = 1 << 30;
        let mut res = Addresses::new(floor, ceiling);
        let Some((&first, _)) = taken.first_key_value() else { return res };
        res.lowest = first / CHUNK * CHUNK;
        res.taken.clone_from(taken);
        let mut free_from = res.lowest;
        for (&at, &bytes) in taken {
            let gap = at.saturating_sub(free_from);
            let hole = if gap < FAR { gap } else { free_from.next_multiple_of(CHUNK) - free_from };
            if 0 < hole {
                res.insert_hole(free_from, hole);
            }
            free_from = free_from.max(at.saturating_add(bytes));
        }
        let tail = free_from.checked_next_multiple_of(CHUNK).map_or(0, |it| it - free_from);
        if 0 < tail {
            res.insert_hole(free_from, tail);
        }
        res
    }

    /// The start of a new range of `bytes`, a multiple of [`GRANULE`]. `None` if the address space
    /// is used up.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let hole =
            self.holes.iter().find(|&(_, &size)| bytes <= size).map(|(&at, &size)| (at, size));
        let at = match hole {
            Some((at, size)) => {
                self.holes.remove(&at);
                if bytes < size {
                    self.holes.insert(at + bytes, size - bytes);
                }
                at
            }
            None => {
                let whole = bytes.checked_next_multiple_of(CHUNK)?;
                let at = self.lowest.checked_sub(whole).filter(|&it| self.floor <= it)?;
                self.lowest = at;
                if bytes < whole {
                    self.insert_hole(at + bytes, whole - bytes);
                }
                at
            }
        };
        self.taken.insert(at, bytes);
        Some(at)
    }

    /// Takes the range that starts at `at` back. `None` if there is none.
    pub fn give_back(&mut self, at: u64) -> Option<u64> {
        let bytes = self.taken.remove(&at)?;
        self.insert_hole(at, bytes);
        Some(bytes)
    }

    /// The range that `address` lies in: start and size.
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let (&at, &bytes) = self.taken.range(..=address).next_back()?;
        (address < at + bytes).then_some((at, bytes))
    }

    fn insert_hole(&mut self, mut at: u64, mut bytes: u64) {
        if let Some((&before, &size)) = self.holes.range(..at).next_back()
            && before + size == at
        {
            self.holes.remove(&before);
            (at, bytes) = (before, size + bytes);
        }
        if let Some(size) = self.holes.remove(&(at + bytes)) {
            bytes += size;
        }
        self.holes.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x7f00_0000_0000;
    const MIB: u64 = 1 << 20;

    fn space() -> Addresses {
        Addresses::new(0x7000_0000_0000, TOP)
    }

    #[test]
    fn chunks_go_down_and_tails_are_filled_upwards() {
        // As in the recording of GPT-2, batch 4: 148 MiB takes five chunks, and the first 2 MiB
        // segment lands directly behind it.
        let mut space = space();
        let large = space.take(148 * MIB).expect("room");
        assert_eq!(large, TOP - 160 * MIB);
        let first = space.take(20 * MIB).expect("room");
        assert_eq!(first, large - 32 * MIB, "20 MiB does not fit the tail of 12");
        assert_eq!(space.take(2 * MIB), Some(first + 20 * MIB), "of two tails the lower one");
        assert_eq!(space.take(12 * MIB), Some(large + 148 * MIB), "the other tail fits exactly");
    }

    #[test]
    fn what_is_given_back_is_used_again_and_joined() {
        let mut space = space();
        let a = space.take(32 * MIB).expect("room");
        let b = space.take(32 * MIB).expect("room");
        assert_eq!(space.give_back(a), Some(32 * MIB));
        assert_eq!(space.give_back(b), Some(32 * MIB));
        assert_eq!(space.take(64 * MIB), Some(b));
        assert_eq!(space.give_back(a), None, "no range starts there any more");
    }

    #[test]
    fn an_address_is_found_in_its_range() {
        let mut space = space();
        let a = space.take(4 * MIB).expect("room");
        assert_eq!(space.range_of(a + 5), Some((a, 4 * MIB)));
        assert_eq!(space.range_of(a + 4 * MIB), None);
        assert_eq!(space.range_of(a - 1), None);
    }

    #[test]
    fn goes_on_from_what_somebody_else_holds() {
        let taken = [(TOP - 64 * MIB, 20 * MIB), (TOP - 32 * MIB, 32 * MIB)].into();
        let mut space = Addresses::holding(0x7000_0000_0000, TOP, &taken);
        assert_eq!(space.take(12 * MIB), Some(TOP - 44 * MIB), "the tail between the two");
        assert_eq!(space.take(2 * MIB), Some(TOP - 96 * MIB), "a chunk below all");
        assert_eq!(space.give_back(TOP - 32 * MIB), Some(32 * MIB));
    }

    #[test]
    fn a_request_larger_than_the_space_is_refused() {
        let mut space = Addresses::new(TOP - 64 * MIB, TOP);
        assert_eq!(space.take(96 * MIB), None);
        assert_eq!(space.take(u64::MAX - 5), None);
        assert!(space.take(64 * MIB).is_some());
    }
}
