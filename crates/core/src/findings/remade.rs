//! A tensor that is made anew, larger each time: `cat` in a loop, a cache of keys and values.

use std::collections::BTreeMap;

use crate::{
    findings::{
        Case,
        growth::{Group, Growth, Key, Kind, is_cache},
    },
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// One tensor in the place of the one before, and larger: a cache, or `cat` in a loop.
pub(super) fn larger_each_time(
    case: &Case<'_>,
    moment: EventId,
    live: &BTreeMap<Key, Group>,
) -> Vec<Growth> {
    #[derive(Default)]
    struct Series {
        n: u64,
        rises: u64,
        falls: u64,
        /// Made while the smaller one before it was live, as `cat` does; the next step's larger batch
        /// is not.
        beside: u64,
        smaller: Option<BlockId>,
        newest: Option<BlockId>,
        first: Bytes,
        last: Bytes,
        since: EventId,
    }
    let large = |it: Bytes| case.matters(it, 1, Bytes::mib(1));
    let mut series: BTreeMap<StackId, Series> = live
        .iter()
        .filter(|((stack, _), group)| *stack != StackId::EMPTY && large(group.bytes))
        .map(|((stack, _), _)| (*stack, Series::default()))
        .collect();
    if series.is_empty() {
        return Vec::new();
    }
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if moment < life.alloc {
            break;
        }
        let Some(it) = series.get_mut(&case.stack(block)) else { continue };
        if it.n == 0 {
            (it.first, it.since) = (life.requested, life.alloc);
        }
        if it.last < life.requested {
            it.rises += 1;
            it.smaller = it.newest;
        }
        let is_beside = |old: BlockId| {
            let old = &case.run.replay.blocks[old.index()];
            old.requested < life.requested && old.free.is_none_or(|free| life.alloc < free)
        };
        if it.last < life.requested && it.smaller.is_some_and(is_beside) {
            it.beside += 1;
        }
        it.newest = Some(block);
        it.falls += u64::from(life.requested < it.last);
        it.last = life.requested;
        it.n += 1;
    }
    let grown = series.into_iter().filter(|(_, it)| {
        8 < it.rises
            && it.falls * 20 < it.rises
            && it.rises < it.beside * 2
            && it.first.0.saturating_mul(3) / 2 < it.last.0
    });
    let mut res: Vec<Growth> = Vec::new();
    for (stack, it) in grown {
        let group = &live[&(stack, Bytes::ZERO)];
        let is_cache = is_cache(case, stack);
        let kind = if is_cache { Kind::KvCache } else { Kind::Other };
        let at = case.line_outside(stack);
        let share = it
            .last
            .0
            .saturating_sub(it.first.0)
            .checked_div(it.last.0 / 1000 + 1)
            .unwrap_or(0)
            .min(1000);
        let growth = Growth {
            kind,
            at,
            bytes: Bytes(group.bytes.0 / 1000 * share),
            blocks: group.kept.len() as u64,
            steps: it.rises,
            of: it.rises,
            since: it.since,
            per_step: Bytes((group.bytes.0 / 1000 * share) / it.rises.max(1)),
            larger_each_time: true,
            seen_at: moment,
            held: group.bytes,
            older: Vec::new(),
        };
        // Keys and values are two stacks of one cache.
        match res.iter_mut().find(|old| old.kind == kind && (is_cache || old.at == growth.at)) {
            Some(old) => {
                old.bytes += growth.bytes;
                old.blocks += growth.blocks;
                old.per_step += growth.per_step;
                old.held += growth.held;
            }
            None => res.push(growth),
        }
    }
    res
}
