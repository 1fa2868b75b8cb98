//! Where a recording first disagrees with the model, and which segments it may be about.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        Mismatch,
        checked::Follower,
        heap::{Slot, State},
    },
    trace::{Action, BlockState, PoolId},
    units::Bytes,
};

/// Where a recording first disagrees with the model, and whose the memory may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// The event.
    pub(super) event: usize,
    /// Groups of segments, by the events that made them, any of which may be another pool's.
    pub(super) groups: Vec<Vec<usize>>,
    /// The pool that served last.
    pub(super) near: PoolId,
}

impl Follower<'_> {
    /// What may be another pool's than thought, when events `start..end` are the first that disagree.
    pub(super) fn doubt_at(&self, start: usize, end: usize) -> Doubt {
        let events = (start..end).map(|it| self.device.events.get(it));
        let mut gained = Vec::new();
        let mut served = Vec::new();
        let mut lost = Vec::new();
        for (index, event) in (start..end).zip(events) {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap if gained.is_empty() => {
                    gained.push(index);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    // The driver may have given the same address again.
                    let made = self.made_at(event.address).filter(|it| *it < start);
                    let made =
                        made.or_else(|| self.segments_made_before.get(&event.address).copied());
                    lost.extend(made);
                }
                Action::Alloc => served.extend(self.made_at(event.address)),
                _ => {}
            }
        }
        let blamed: Vec<usize> =
            self.model.driver.blamed.iter().filter_map(|it| self.made_at(*it)).collect();
        let late = blamed.iter().filter(|it| lost.contains(it)).copied().collect();
        let rest = lost.iter().filter(|it| !blamed.contains(it)).copied().collect();
        let mut groups = vec![gained, served, late, rest, lost, blamed.clone()];
        groups.extend(blamed.iter().take(4).map(|it| vec![*it]));
        let is_open = |it: &usize| !self.pools.contains_key(it) || self.thought_of.contains(it);
        for group in &mut groups {
            group.retain(is_open);
            group.sort_unstable();
            group.dedup();
        }
        groups.retain(|it| !it.is_empty());
        let mut seen = BTreeSet::new();
        groups.retain(|it| seen.insert(it.clone()));
        Doubt { event: start, groups, near: self.last_pool }
    }

    /// The event that made the segment at `address`, which may be gone.
    fn made_at(&self, address: u64) -> Option<usize> {
        let heap = &self.model.heap;
        let is_held = |it: &Slot| heap.block(*it).state != State::Unmapped;
        let start = match heap.find(address).filter(is_held) {
            Some(_) => heap.segments.range(..=(address, Slot::NONE)).next_back()?.0,
            None => *self.segments_made.range(..=address).next_back()?.0,
        };
        self.segments_made.get(&start).copied()
    }

    /// The first mismatch, if there is one, also where only the end is another.
    pub(super) fn doubt_at_end(mut self) -> Option<Doubt> {
        if self.doubt.is_none() {
            self.compare_with_end();
        }
        let n_events = self.device.events.len();
        let at_end = (self.model.driver.mismatches.n != 0)
            .then(|| Doubt { event: n_events, ..Doubt::default() });
        self.doubt.or(at_end)
    }

    /// The recorder's own account of the end, block by block.
    pub(super) fn compare_with_end(&mut self) {
        let device = self.device;
        if device.segments.is_empty() || device.events.is_empty() {
            return;
        }
        let live: BTreeMap<u64, Bytes> = {
            let heap = &self.model.heap;
            let sizes = self.model.driver.live.iter();
            sizes
                .map(|(at, it)| (*at, it.slot.map_or(Bytes::ZERO, |it| Bytes(heap.block(it).size))))
                .collect()
        };
        let mut n_found = 0;
        for block in device.blocks.iter().filter(|it| it.state != BlockState::Free) {
            if live.get(&block.address) == Some(&block.size) {
                n_found += 1;
            } else {
                self.model.driver.mismatch(Mismatch::EndState);
            }
        }
        if n_found < live.len() {
            self.model.driver.mismatch(Mismatch::EndState);
        }
        let held: Bytes = device.segments.iter().map(|it| it.size).sum();
        if held.0 != self.model.reserved() {
            self.model.driver.mismatch(Mismatch::EndState);
        }
    }
}
