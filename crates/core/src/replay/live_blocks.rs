//! The blocks in use while a recording is followed, found by their address: every event of a block looks one up.
//!
//! It is not a map: nobody can walk over it but in order of address, so that no order of a hash ends up in a report.

use std::{collections::BTreeMap, hash::BuildHasher as _};

use foldhash::fast::RandomState;

use crate::replay::slot::Slot;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    /// None when the model found no room for it.
    pub(super) slot: Option<Slot>,
    /// Its number in the program: see [`super::program::Program`].
    pub(super) handle: u32,
}

/// Each of them by its address.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveBlocks {
    /// Open addressing. Invariant: a power of two long, at most half full, and between the place that an address hashes to
    /// and where it stands nothing is empty.
    places: Vec<Option<(u64, Live)>>,
    len: usize,
    /// Keyed at random, so that no file can be made whose addresses all collide.
    hasher: RandomState,
}

impl LiveBlocks {
    /// The block at `address`.
    pub(super) fn get(&self, address: u64) -> Option<Live> {
        self.places[self.find(address)?].map(|it| it.1)
    }

    /// From now on the one at `address`.
    pub(super) fn insert(&mut self, address: u64, live: Live) {
        if self.places.len() <= (self.len + 1) * 2 {
            let places = vec![None; (self.places.len() * 2).max(64)];
            let old = std::mem::replace(&mut self.places, places);
            for it in old.into_iter().flatten() {
                let at = self.place_for(it.0);
                self.places[at] = Some(it);
            }
        }
        let at = self.place_for(address);
        self.len += usize::from(self.places[at].is_none());
        self.places[at] = Some((address, live));
    }

    /// The block at `address`, which is no longer in use.
    pub(super) fn remove(&mut self, address: u64) -> Option<Live> {
        let mut hole = self.find(address)?;
        let removed = self.places[hole].take();
        self.len -= 1;
        // What stands behind the hole and may stand in it moves up.
        let mut at = hole;
        loop {
            at = self.after(at);
            let Some((address, _)) = self.places[at] else { break };
            let home = self.home_of(address);
            let last = self.places.len() - 1;
            if (at.wrapping_sub(hole) & last) <= (at.wrapping_sub(home) & last) {
                self.places[hole] = self.places[at].take();
                hole = at;
            }
        }
        removed.map(|it| it.1)
    }

    /// All of them, in order of address.
    pub(super) fn in_order(&self) -> BTreeMap<u64, Live> {
        self.places.iter().flatten().copied().collect()
    }

    fn find(&self, address: u64) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let at = self.place_for(address);
        self.places[at].is_some().then_some(at)
    }

    /// Where `address` stands, or would stand.
    fn place_for(&self, address: u64) -> usize {
        let mut at = self.home_of(address);
        while self.places[at].is_some_and(|it| it.0 != address) {
            at = self.after(at);
        }
        at
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits of a hash are what is wanted"
    )]
    fn home_of(&self, address: u64) -> usize {
        self.hasher.hash_one(address) as usize & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_map(steps in prop::collection::vec((0_u8..3, 0_u64..200), 0..2000)) {
            let mut found = LiveBlocks::default();
            let mut expected = BTreeMap::new();
            for (handle, (what, address)) in (0..).zip(steps) {
                let live = Live { slot: None, handle };
                match what {
                    0 => {
                        found.insert(address, live);
                        expected.insert(address, live);
                    }
                    1 => prop_assert_eq!(found.remove(address), expected.remove(&address)),
                    _ => prop_assert_eq!(found.get(address), expected.get(&address).copied()),
                }
            }
            prop_assert_eq!(found.in_order(), expected);
        }
    }
}
