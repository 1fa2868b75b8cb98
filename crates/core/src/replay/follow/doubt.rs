//! Where a recording first disagrees with the model, and which segments it may be about.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        Mismatch,
        follow::follower::{Doubt, Follower},
        heap::State,
        rounding::SMALL_BUFFER,
        slot::Slot,
    },
    trace::{Action, BlockState, Event, StackId},
    units::Bytes,
};

/// At how many places of a release it is tried whether another pool's begins.
const MOST_BREAKS: usize = 6;

impl Follower<'_> {
    /// What may be another pool's than thought, when events `start..end` are the first that disagree.
    pub(super) fn doubt_at(&self, start: usize, end: usize) -> Doubt {
        let events = (start..end).map(|it| self.device.events.get(it));
        let mut gained = Vec::new();
        let mut served = Vec::new();
        let mut lost = Vec::new();
        let mut losses = Vec::new();
        for (index, event) in (start..end).zip(events) {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap if gained.is_empty() => {
                    gained.push(index);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    // The driver may have given the same address again.
                    let made = self.made_at(event.address).filter(|it| *it < start);
                    let made =
                        made.or_else(|| self.segments.made_before.get(&event.address).copied());
                    lost.extend(made);
                    losses.extend(made.map(|made| (index, made)));
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
        groups.extend(self.lost_apart(&losses));
        groups.extend(self.same_stack(end));
        let is_open = |address: &usize| {
            !self.pools.of_segments.contains_key(address) || self.pools.thought_of.contains(address)
        };
        for group in &mut groups {
            group.retain(is_open);
            group.sort_unstable();
            group.dedup();
        }
        groups.retain(|it| !it.is_empty());
        let mut seen = BTreeSet::new();
        groups.retain(|it| seen.insert(it.clone()));
        Doubt { event: start, groups, near: self.pools.last }
    }

    /// What was lost by one pool, perhaps: PyTorch walks the halves of a pool one after the other, each in the
    /// order of its free set. `losses` has the events, and those that made what was lost; what comes before and
    /// what comes after a place where that order breaks, and the loss that agrees no more.
    fn lost_apart(&self, losses: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let key = |index: usize| {
            let Event { action, size, stream, address, .. } = self.device.events.get(index);
            let is_unmap = action == Action::SegmentUnmap;
            // The size of what is unmapped is not that of the free block.
            let place = if is_unmap { (0, 0) } else { (size.0, address) };
            (is_unmap, self.model.handle_of(stream), place)
        };
        let is_small = |index: usize| self.device.events.get(index).size == SMALL_BUFFER;
        let made = |losses: &[(usize, usize)]| losses.iter().map(|it| it.1).collect::<Vec<_>>();
        let first = self.model.driver.mismatches.first.first();
        let culprit = losses.iter().filter(|it| first.is_some_and(|(at, _)| at.index() == it.0));
        let mut res: Vec<Vec<usize>> = culprit.map(|it| vec![it.1]).collect();
        let breaks = (1..losses.len()).filter(|at| {
            let (before, after) = (losses[at - 1].0, losses[*at].0);
            is_small(before) != is_small(after) || key(after) < key(before)
        });
        for at in breaks.take(MOST_BREAKS) {
            res.push(made(&losses[at..]));
            res.push(made(&losses[..at]));
        }
        res
    }

    /// The segments that were made for requests with the stack of the one at event `end - 1`: the same line asks
    /// the same pool, mostly.
    fn same_stack(&self, end: usize) -> Option<Vec<usize>> {
        let events = &self.device.events;
        let stack = events.stack(end.checked_sub(1)?);
        let is_same = |place: &usize| {
            let event = events.get(*place);
            matches!(event.action, Action::SegmentAlloc | Action::SegmentMap)
                && event.stack == stack
        };
        (stack != StackId::EMPTY).then(|| (0..end).filter(is_same).collect())
    }

    /// The event that made the segment at `address`, which may be gone.
    fn made_at(&self, address: u64) -> Option<usize> {
        let heap = &self.model.heap;
        let is_held = |it: &Slot| heap.block(*it).state != State::Unmapped;
        let start = match heap.find(address).filter(is_held) {
            Some(_) => heap.segments.range(..=(address, Slot::NONE)).next_back()?.0,
            None => *self.segments.made.range(..=address).next_back()?.0,
        };
        self.segments.made.get(&start).copied()
    }

    /// The first mismatch, if there is one, also where only the end is another.
    pub(super) fn doubt_at_end(mut self) -> Option<Doubt> {
        if self.doubt.first.is_none() {
            self.compare_with_end();
        }
        let n_events = self.device.events.len();
        let at_end = (self.model.driver.mismatches.n != 0)
            .then(|| Doubt { event: n_events, ..Doubt::default() });
        self.doubt.first.or(at_end)
    }

    /// The recorder's own account of the end, block by block.
    pub(super) fn compare_with_end(&mut self) {
        let device = self.device;
        if device.segments.is_empty() || device.events.is_empty() {
            return;
        }
        let live: BTreeMap<u64, Bytes> = {
            let heap = &self.model.heap;
            let live = self.model.driver.live.in_order();
            live.into_iter()
                .map(|(at, it)| (at, it.slot.map_or(Bytes::ZERO, |it| Bytes(heap.block(it).size))))
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
