//! What has reached its size: it was as large half way, it is full, or it is emptied and fills up again. A buffer of fixed length, a queue
//! of so many, a list that each episode clears, what waits for Python's collector.
//!
//! A growth begins with the first of its blocks and goes on. So it is none if as much lived before those were made
//! that live now, or if as much, and not more, came again after all of them had gone. What lives within one step is
//! not compared, and neither is what passes after the last step leave.

use std::collections::BTreeMap;

use crate::{
    findings::accumulation::look::{Group, Groups, Key, Look},
    prediction::rises_in_each_part,
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

/// In a run of so many steps two may be left out.
const MANY_STEPS: u32 = 12;

/// Half of a run that shows whether something rises to the end, however slowly.
const LONG_HALF: usize = 40;

/// Takes out what there was as much of half way.
pub(super) fn drop_level(look: &Look<'_>, moment: EventId, groups: &mut BTreeMap<Key, Group>) {
    let Look { case, iterations, .. } = look;
    // Variables hold a step's values until the next one's come, of what a function returns until after the next step has ended: none of
    // these counts, because how far the replacing has come differs from moment to moment. Of few steps only one is left out.
    let firsts = groups.values().filter_map(|it| it.kept.first()).map(|(step, _)| *step);
    let since = iterations.at(moment).saturating_sub(firsts.min().unwrap_or(0));
    let young = if MANY_STEPS <= since { 2 } else { 1 };
    let is_older = |made: EventId, step: u32| iterations.at(made) + young < step;
    let nows: BTreeMap<Key, u32> =
        groups.iter().map(|(key, group)| (*key, look.now(group, moment))).collect();
    let mut half_way: BTreeMap<Key, (EventId, Bytes)> = BTreeMap::new();
    for (key, group) in &*groups {
        let first = group.kept.first().map_or(0, |(step, _)| *step);
        let middle =
            iterations.first_event(first + (nows[key].saturating_sub(first)).div_ceil(2), moment);
        half_way.insert(*key, (middle, Bytes::ZERO));
    }
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if life.alloc <= moment
            && let Some((middle, bytes)) = half_way.get_mut(&look.key(block))
            && is_older(life.alloc, iterations.at(*middle))
            && life.free.is_none_or(|free| *middle <= free)
            && !look.is_expected(block)
        {
            *bytes += life.size;
        }
    }
    let old = |key: &Key, group: &Group| -> Bytes {
        let blocks = group.kept.iter().filter(|(step, _)| *step + young < nows[key]);
        blocks.map(|(_, it)| case.life(*it).size).sum()
    };
    let is_level = |key: &Key, group: &Group| old(key, group).0 <= half_way[key].1.0 / 3 * 4;
    let mut level: BTreeMap<Key, Curve> = groups
        .iter()
        .filter(|(key, group)| is_level(key, group))
        .map(|(key, _)| (*key, Curve::default()))
        .collect();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let key = look.key(block);
        if life.alloc <= moment
            && let Some(curve) = level.get_mut(&key)
            && !look.is_expected(block)
        {
            let now = nows[&key];
            let until = life.free.map_or(now, |free| iterations.at(free).min(now));
            curve.add(iterations.at(life.alloc) + 1 + young, until, life.size);
        }
    }
    // A cache with a place for each size that may come fills up ever more slowly.
    groups.retain(|key, group| {
        level.get(key).is_none_or(|curve| {
            let (first, now) = (group.kept.first().map_or(0, |(step, _)| *step), nows[key]);
            let after = curve.levels(first + (now - first).div_ceil(2), now);
            LONG_HALF <= after.len() && rises_in_each_part(&after)
        })
    });
    // A buffer fills before it is full: if it is as large at the end of a longer run, it was full, and so it was if it
    // went on at less than a quarter of its pace. What is few is not compared by its size alone: three are much more than two.
    let last = case.last();
    let ends: BTreeMap<Key, u32> =
        groups.iter().map(|(key, group)| (*key, look.now(group, last))).collect();
    let mut later: BTreeMap<Key, Bytes> = groups.keys().map(|key| (*key, Bytes::ZERO)).collect();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let key = look.key(block);
        if life.is_live_after(last)
            && let Some(bytes) = later.get_mut(&key)
            && is_older(life.alloc, ends[&key])
            && !look.is_expected(block)
        {
            *bytes += life.size;
        }
    }
    groups.retain(|key, group| {
        let (now, end) = (nows[key], ends[key]);
        if end < now + 2 {
            return true;
        }
        let (then, later) = (old(key, group).0, later[key].0);
        let first = group.kept.first().map_or(0, |(step, _)| *step);
        let (before, since) = (u64::from(now - first).max(1), u64::from(end - now));
        let more = later.saturating_sub(then);
        let goes_on = then.saturating_mul(since) < more.saturating_mul(4 * before);
        later < then / 4 * 3 || then / 3 * 4 < later && goes_on
    });
}

/// Takes out of `groups` what is bounded.
pub(super) fn drop_bounded(look: &Look<'_>, moment: EventId, groups: &mut Groups) {
    let Look { case, iterations, .. } = look;
    let now = iterations.at(moment);
    let mut histories: BTreeMap<Key, History> = BTreeMap::new();
    for (key, group) in &*groups {
        let Some((first_step, first)) = group.kept.first().copied() else { continue };
        if !iterations.is_in_steps(case.life(first).alloc) {
            continue;
        }
        let old = group.kept.iter().filter(|(step, _)| *step < now).map(|(_, it)| *it);
        let ends: Option<Vec<u32>> = group
            .kept
            .iter()
            .map(|(_, it)| case.life(*it).free.map(|free| iterations.at(free)))
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
    let last = iterations.at(case.last());
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let Some(it) = histories.get_mut(&look.key(block)) else { continue };
        // A workspace is made once, by whichever line is the first to need it.
        if look.is_expected(block) {
            continue;
        }
        // The steps that it was there at the beginning of.
        let from = iterations.at(life.alloc) + 1;
        let until = life.free.map_or(last, |free| iterations.at(free));
        if life.alloc < it.first {
            it.before.add(from, until.min(it.first_step), life.size);
        } else if let Some(gone) = it.gone.filter(|_| moment < life.alloc) {
            it.after.add(from.max(gone + 1), until, life.size);
        }
    }
    let bounded: std::collections::BTreeSet<Key> =
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

    /// What there is in each of these steps.
    fn levels(&self, first: u32, last: u32) -> Vec<u64> {
        let before = self
            .changes
            .range(..first)
            .fold(Bytes::ZERO, |level, (_, (more, less))| (level + *more).saturating_sub(*less));
        let steps = (first..=last).scan(before, |level, step| {
            let (more, less) = self.changes.get(&step).copied().unwrap_or_default();
            *level = (*level + more).saturating_sub(less);
            Some(level.0)
        });
        steps.collect()
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
