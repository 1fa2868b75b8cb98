//! The free blocks of an arena in PyTorch's order: an ordered set of keys in chunks, whose first keys are
//! searched first. A step moves a few hundred bytes at most, whatever the number of blocks, and allocates
//! next to never; a tree would follow pointers and allocate.

use std::cell::Cell;

use crate::replay::slot::Slot;

/// A block's place in the free set: its size, and what comes before what of equal sizes, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey(u128);

/// A free block as the set lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeBlock {
    pub(super) size: u64,
    pub(super) slot: Slot,
}

/// How many keys a chunk has before it becomes two.
const FULL: usize = 64;

/// An ordered set of free blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeSet {
    /// All of one before all of the next. Invariant: none is empty.
    chunks: Vec<Chunk>,
    /// The first key of each chunk.
    firsts: Vec<FreeKey>,
    len: usize,
    /// The chunk and the place that the last search ended at: what is found is taken out next.
    found: Cell<(usize, usize)>,
}

/// Some keys in order, and the block of each.
#[derive(Clone, Debug)]
struct Chunk {
    keys: Vec<FreeKey>,
    slots: Vec<Slot>,
}

impl FreeKey {
    pub(super) fn new(size: u64, order: u64) -> FreeKey {
        FreeKey(u128::from(size) << 64 | u128::from(order))
    }

    /// Not above any block of `size` or more.
    pub(super) fn at_least(size: u64) -> FreeKey {
        FreeKey::new(size, 0)
    }

    fn size(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl FreeSet {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, key: FreeKey, slot: Slot) {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new());
            self.firsts.push(key);
        }
        let at = self.chunk_of(key);
        let chunk = &mut self.chunks[at];
        let place = chunk.place_of(key);
        chunk.keys.insert(place, key);
        chunk.slots.insert(place, slot);
        if place == 0 {
            self.firsts[at] = key;
        }
        if FULL <= chunk.keys.len() {
            let mut rest = Chunk::new();
            rest.keys.extend(chunk.keys.drain(FULL / 2..));
            rest.slots.extend(chunk.slots.drain(FULL / 2..));
            self.firsts.insert(at + 1, rest.keys[0]);
            self.chunks.insert(at + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, key: FreeKey, slot: Slot) {
        let Some((at, place)) = self.find(key, slot) else { return };
        let chunk = &mut self.chunks[at];
        chunk.keys.remove(place);
        chunk.slots.remove(place);
        self.len -= 1;
        match chunk.keys.first() {
            Some(first) => self.firsts[at] = *first,
            None => {
                self.chunks.remove(at);
                self.firsts.remove(at);
            }
        }
    }

    pub(super) fn contains(&self, key: FreeKey, slot: Slot) -> bool {
        self.find(key, slot).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.chunks.iter().flat_map(|it| it.blocks(0, it.keys.len()))
    }

    pub(super) fn last(&self) -> Option<FreeBlock> {
        self.chunks.last()?.keys.last().zip(self.chunks.last()?.slots.last()).map(block)
    }

    /// The first block that is not below `key`.
    pub(super) fn first_at_or_after(&self, key: FreeKey) -> Option<FreeBlock> {
        let (at, place) = self.place_of(key);
        self.found.set((at, place));
        let chunk = self.chunks.get(at)?;
        match chunk.keys.get(place).zip(chunk.slots.get(place)) {
            Some(found) => Some(block(found)),
            None => self.chunks.get(at + 1).and_then(|it| it.blocks(0, 1).next()),
        }
    }

    /// From the first block that is not below `key`, upwards.
    pub(super) fn at_or_after(&self, key: FreeKey) -> impl Iterator<Item = FreeBlock> {
        let (at, place) = self.place_of(key);
        let head = self.chunks.get(at).map(|it| it.blocks(place, it.keys.len()));
        let tail = self.chunks.get(at + 1..).unwrap_or_default();
        let tail = tail.iter().flat_map(|it| it.blocks(0, it.keys.len()));
        head.into_iter().flatten().chain(tail)
    }

    /// From the last block that is below `key`, downwards.
    pub(super) fn before(&self, key: FreeKey) -> impl Iterator<Item = FreeBlock> {
        let (at, place) = self.place_of(key);
        let head = self.chunks.get(at).map(|it| it.blocks(0, place).rev());
        let tail = self.chunks[..at].iter().rev();
        head.into_iter().flatten().chain(tail.flat_map(|it| it.blocks(0, it.keys.len()).rev()))
    }

    /// Where `slot` stands; keys are equal only in damaged recordings.
    fn find(&self, key: FreeKey, slot: Slot) -> Option<(usize, usize)> {
        let (mut at, mut place) = self.found.get();
        let chunk = self.chunks.get(at);
        let is_here =
            chunk.is_some_and(|it| it.keys.get(place) == Some(&key) && it.slots[place] == slot);
        if !is_here {
            (at, place) = self.place_of(key);
        }
        loop {
            let chunk = self.chunks.get(at)?;
            match chunk.keys.get(place) {
                Some(it) if *it == key && chunk.slots[place] == slot => return Some((at, place)),
                Some(it) if *it == key => place += 1,
                Some(_) => return None,
                None => (at, place) = (at + 1, 0),
            }
        }
    }

    /// Where the first key that is not below `key` stands, or would stand.
    fn place_of(&self, key: FreeKey) -> (usize, usize) {
        // Equal keys may begin in an earlier chunk.
        let at = n_below(&self.firsts, key).saturating_sub(1);
        (at, self.chunks.get(at).map_or(0, |it| it.place_of(key)))
    }

    /// The last chunk that begins at or below `key`, or the first of all.
    fn chunk_of(&self, key: FreeKey) -> usize {
        self.firsts.partition_point(|it| *it <= key).saturating_sub(1)
    }
}

impl Chunk {
    fn new() -> Chunk {
        Chunk { keys: Vec::with_capacity(FULL), slots: Vec::with_capacity(FULL) }
    }

    fn place_of(&self, key: FreeKey) -> usize {
        n_below(&self.keys, key)
    }

    fn blocks(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = FreeBlock> {
        self.keys[from..to].iter().zip(&self.slots[from..to]).map(block)
    }
}

/// How many of `keys`, which are in order, are below `key`. What the processor cannot foresee, it does not have to: each
/// comparison chooses between two numbers, and not between two ways to go on.
fn n_below(keys: &[FreeKey], key: FreeKey) -> usize {
    let mut from = 0;
    let mut len = keys.len();
    while 1 < len {
        let half = len / 2;
        let is_below = keys[from + half - 1] < key;
        from = std::hint::select_unpredictable(is_below, from + half, from);
        len -= half;
    }
    from + usize::from(keys.get(from).is_some_and(|it| *it < key))
}

fn block((key, slot): (&FreeKey, &Slot)) -> FreeBlock {
    FreeBlock { size: key.size(), slot: *slot }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn is_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 0_u64..300, 0_u64..2), 0..2000)) {
            let mut set = FreeSet::default();
            let mut tree = BTreeSet::new();
            let slot = Slot::FIRST;
            for (inserts, size, order) in steps {
                if inserts && tree.insert((size, order)) {
                    set.insert(FreeKey::new(size, order), slot);
                } else if !inserts {
                    tree.remove(&(size, order));
                    set.remove(FreeKey::new(size, order), slot);
                }
            }
            prop_assert_eq!(set.len(), tree.len());
            let sizes = |it: &(u64, u64)| FreeBlock { size: it.0, slot };
            prop_assert!(set.iter().eq(tree.iter().map(sizes)));
            prop_assert_eq!(set.last(), tree.last().map(sizes));
            for size in 0..301 {
                let key = FreeKey::at_least(size);
                prop_assert!(set.at_or_after(key).eq(tree.range((size, 0)..).map(sizes)));
                prop_assert_eq!(set.first_at_or_after(key), set.at_or_after(key).next());
                prop_assert!(set.before(key).eq(tree.range(..(size, 0)).rev().map(sizes)));
                prop_assert_eq!(set.contains(key, slot), tree.contains(&(size, 0)));
            }
        }
    }
}
