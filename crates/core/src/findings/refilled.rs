//! What is full, or is emptied and fills up again: a queue of so many, a list that each episode clears, what waits
//! for Python's collector.
//!
//! A growth begins with the first of its blocks and goes on. So it is none if as much lived before those were made
//! that live now, or if as much, and not more, came again after all of them had gone. What lives within one step is
//! not compared, and neither is what passes after the last step leave.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{
        Case,
        clock::Clock,
        growth::{Groups, Key, is_expected, key},
    },
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

/// Takes out of `groups` what is bounded.
pub(super) fn drop_bounded(
    case: &Case<'_>,
    clock: &Clock,
    moment: EventId,
    (groups, repeated): (&mut Groups, &BTreeSet<Key>),
) {
    let now = clock.at(moment);
    let mut histories: BTreeMap<Key, History> = BTreeMap::new();
    for (key, group) in &*groups {
        let Some((first_step, first)) = group.kept.first().copied() else { continue };
        if !clock.is_in_steps(case.life(first).alloc) {
            continue;
        }
        let old = group.kept.iter().filter(|(step, _)| *step < now).map(|(_, it)| *it);
        let ends: Option<Vec<u32>> = group
            .kept
            .iter()
            .map(|(_, it)| case.life(*it).free.map(|free| clock.at(free)))
            .collect();
        let history = History {
            first: case.life(first).alloc,
            first_step,
            level: old.map(|it| case.life(it).size).sum(),
            gone: ends.and_then(|it| it.into_iter().max()),
            ..History::default()
        };
        histories.insert(*key, history);
    }
    if histories.is_empty() {
        return;
    }
    let last = clock.at(case.last());
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let Some(it) = histories.get_mut(&key(case, block)) else { continue };
        // A workspace is made once, by whichever line is the first to need it.
        if is_expected(case, clock, block, repeated) {
            continue;
        }
        // The steps that it was there at the beginning of.
        let from = clock.at(life.alloc) + 1;
        let until = life.free.map_or(last, |free| clock.at(free));
        if life.alloc < it.first {
            it.before.add(from, until.min(it.first_step), life.size);
        } else if let Some(gone) = it.gone.filter(|_| moment < life.alloc) {
            it.after.add(from.max(gone + 1), until, life.size);
        }
    }
    let bounded: BTreeSet<Key> =
        histories.into_iter().filter(|(_, it)| it.is_bounded()).map(|(key, _)| key).collect();
    groups.retain(|(key, _)| !bounded.contains(key));
}

/// What lived of one stack before the blocks that are looked at were made, and after they had gone.
#[derive(Debug, Default)]
struct History {
    first: EventId,
    first_step: u32,
    /// What earlier steps left of it at the moment that is looked at.
    level: Bytes,
    /// The step in which the last of it went; none if something stays to the end.
    gone: Option<u32>,
    before: Curve,
    after: Curve,
}

impl History {
    fn is_bounded(&self) -> bool {
        let enough = Bytes(self.level.0 / 4 * 3);
        let again = self.after.most();
        self.level != Bytes::ZERO
            && (enough <= self.before.most() || enough <= again && again.0 / 4 * 3 <= self.level.0)
    }
}

/// Bytes by step.
#[derive(Debug, Default)]
struct Curve {
    /// What comes with a step, and what goes.
    changes: BTreeMap<u32, (Bytes, Bytes)>,
}

impl Curve {
    /// `size` more from step `first` to step `last`.
    fn add(&mut self, first: u32, last: u32, size: Bytes) {
        if first <= last {
            self.changes.entry(first).or_default().0 += size;
            self.changes.entry(last + 1).or_default().1 += size;
        }
    }

    fn most(&self) -> Bytes {
        let mut level = Bytes::ZERO;
        let levels = self.changes.values().map(|(more, less)| {
            level = (level + *more).saturating_sub(*less);
            level
        });
        levels.max().unwrap_or_default()
    }
}
