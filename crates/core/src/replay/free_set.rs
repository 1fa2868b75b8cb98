//! The free blocks of an arena in PyTorch's order: an ordered set of keys in chunks, whose first keys are
//! searched first. A step moves a few hundred bytes at most, whatever the number of blocks, and allocates
//! next to never; a tree would follow pointers and allocate.

use crate::replay::heap::Slot;

/// A block's place in the free set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    pub(super) size: u64,
    /// What comes before what, of equal sizes (allocator.md, A.5).
    pub(super) order: u64,
    pub(super) address: u64,
    pub(super) slot: Slot,
}

/// How many keys a chunk has before it becomes two.
const FULL: usize = 64;

/// An ordered set of [`FreeKey`]s.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeSet {
    /// Each ordered, and all of one before all of the next. Invariant: none is empty.
    chunks: Vec<Vec<FreeKey>>,
    /// The first key of each chunk.
    firsts: Vec<FreeKey>,
    len: usize,
}

impl FreeKey {
    /// Below every block of `size` or more.
    pub(super) fn at_least(size: u64) -> FreeKey {
        FreeKey { size, order: 0, address: 0, slot: Slot::FIRST }
    }
}

impl FreeSet {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, key: FreeKey) {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(FULL));
            self.firsts.push(key);
        }
        let at = self.chunk_of(key);
        let chunk = &mut self.chunks[at];
        let place = chunk.partition_point(|it| *it < key);
        chunk.insert(place, key);
        if place == 0 {
            self.firsts[at] = key;
        }
        if FULL <= chunk.len() {
            let mut rest = Vec::with_capacity(FULL);
            rest.extend(chunk.drain(FULL / 2..));
            self.firsts.insert(at + 1, rest[0]);
            self.chunks.insert(at + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, key: FreeKey) {
        if self.chunks.is_empty() {
            return;
        }
        let at = self.chunk_of(key);
        let chunk = &mut self.chunks[at];
        let Ok(place) = chunk.binary_search(&key) else { return };
        chunk.remove(place);
        self.len -= 1;
        match chunk.first() {
            Some(first) => self.firsts[at] = *first,
            None => {
                self.chunks.remove(at);
                self.firsts.remove(at);
            }
        }
    }

    pub(super) fn contains(&self, key: FreeKey) -> bool {
        self.at_or_after(key).next() == Some(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &FreeKey> {
        self.chunks.iter().flatten()
    }

    pub(super) fn last(&self) -> Option<&FreeKey> {
        self.chunks.last()?.last()
    }

    /// From the first key that is not below `key`, upwards.
    pub(super) fn at_or_after(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        let (at, place) = self.place_of(key);
        let (head, tail) = match self.chunks.get(at..) {
            Some([first, tail @ ..]) => (&first[place..], tail),
            _ => (&[][..], &[][..]),
        };
        head.iter().chain(tail.iter().flatten())
    }

    /// From the last key that is below `key`, downwards.
    pub(super) fn before(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        let (at, place) = self.place_of(key);
        let (tail, head) = match self.chunks.get(..=at) {
            Some([tail @ .., last]) => (tail, &last[..place]),
            _ => (&self.chunks[..], &[][..]),
        };
        head.iter().rev().chain(tail.iter().rev().flat_map(|it| it.iter().rev()))
    }

    /// Where the first key that is not below `key` stands, or would stand.
    fn place_of(&self, key: FreeKey) -> (usize, usize) {
        if self.chunks.is_empty() {
            return (0, 0);
        }
        let at = self.chunk_of(key);
        (at, self.chunks[at].partition_point(|it| *it < key))
    }

    /// The last chunk that begins at or below `key`, or the first of all.
    fn chunk_of(&self, key: FreeKey) -> usize {
        self.firsts.partition_point(|it| *it <= key).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key(size: u64) -> FreeKey {
        FreeKey { size, ..FreeKey::at_least(0) }
    }

    proptest! {
        #[test]
        fn is_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 0_u64..400), 0..2000)) {
            let mut set = FreeSet::default();
            let mut tree = BTreeSet::new();
            for (inserts, size) in steps {
                if inserts && tree.insert(key(size)) {
                    set.insert(key(size));
                } else if !inserts {
                    tree.remove(&key(size));
                    set.remove(key(size));
                }
            }
            prop_assert_eq!(set.len(), tree.len());
            prop_assert!(set.iter().eq(&tree));
            prop_assert_eq!(set.last(), tree.last());
            for size in (0..401).step_by(7) {
                prop_assert!(set.at_or_after(key(size)).eq(tree.range(key(size)..)));
                prop_assert!(set.before(key(size)).eq(tree.range(..key(size)).rev()));
                prop_assert_eq!(set.contains(key(size)), tree.contains(&key(size)));
            }
        }
    }
}
