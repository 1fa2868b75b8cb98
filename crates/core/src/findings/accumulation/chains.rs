//! Tensors of different lengths that one line makes longer, each at its own time: what a server remembers of each conversation, a dict of
//! results. `larger` knows those that grow in step.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{
        accumulation::{
            larger::is_cache,
            look::{Group, Key, Look},
        },
        growth::{Growth, Kind},
    },
    prediction::{Counted, stacks::Signs, timeline::Stage},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// So often a line has to have replaced a tensor by a longer one.
const LEAST: u64 = 9;

/// And each of those tensors: a line that makes two sizes in turn, as pooling does with its indices, replaces a tensor by a longer one once.
const LEAST_EACH: u64 = 2;

/// What one line made.
#[derive(Default)]
struct Chains(Vec<BlockId>);

/// A block that took another one's place, or the first one in a place.
struct Link {
    /// How long the first one was.
    first: Bytes,
    /// How many stood there before.
    n: u64,
}

/// Tensors that are replaced by longer ones, of what is `live` at `moment`, but for the lines that grow in step.
pub(super) fn chains(
    look: &Look<'_>,
    moment: EventId,
    live: &BTreeMap<Key, Group>,
    known: &BTreeSet<StackId>,
) -> Vec<Growth> {
    let case = look.case;
    let large = |it: Bytes| case.matters(it, 5, Bytes::mib(1));
    let mut by_stack: BTreeMap<StackId, Chains> = live
        .iter()
        .filter(|((stack, _), group)| *stack != StackId::EMPTY && large(group.bytes))
        .filter(|((stack, _), _)| !known.contains(stack))
        .map(|((stack, _), _)| (*stack, Chains::default()))
        .collect();
    if by_stack.is_empty() {
        return Vec::new();
    }
    for block in
        (0..case.run.replay.blocks.len()).filter_map(|it| u32::try_from(it).ok()).map(BlockId)
    {
        let stack = case.run.stacks.alike(case.stack(block));
        if let Some(it) = by_stack.get_mut(&stack) {
            it.0.push(block);
        }
    }
    by_stack.into_iter().filter_map(|(stack, it)| it.growth(look, moment, stack)).collect()
}

impl Chains {
    fn growth(&self, look: &Look<'_>, moment: EventId, stack: StackId) -> Option<Growth> {
        let case = look.case;
        let life = |it: BlockId| case.life(it);
        let by_end: BTreeMap<EventId, BlockId> =
            self.0.iter().filter_map(|it| Some((life(*it).free?, *it))).collect();
        let mut links: BTreeMap<BlockId, Link> = BTreeMap::new();
        let mut replaced: BTreeSet<BlockId> = BTreeSet::new();
        let (mut longer, mut others) = (0_u64, 0_u64);
        let ends = self.0.iter().skip(1).map(|it| life(*it).alloc).chain([case.last()]);
        let ends = ends.zip(&self.0).map(|(end, it)| end.max(life(*it).alloc));
        for (block, end) in self.0.iter().zip(ends) {
            let size = life(*block).requested;
            // What went before the line made its next one, and was there before this one.
            let gone = by_end.range(life(*block).alloc..=end).map(|(_, it)| *it);
            let before = gone.filter(|it| it < block).max();
            let is_longer = before.is_some_and(|it| life(it).requested < size);
            longer += u64::from(is_longer && life(*block).alloc <= moment);
            others += u64::from(before.is_some() && !is_longer);
            replaced.extend(before);
            let old = before.filter(|_| is_longer).and_then(|it| links.get(&it));
            let link =
                old.map_or(Link { first: size, n: 0 }, |it| Link { first: it.first, n: it.n + 1 });
            links.insert(*block, link);
        }
        let n_blocks = self.0.partition_point(|it| life(*it).alloc <= moment);
        let made = &self.0[..n_blocks];
        if longer < LEAST || longer < others * 20 || longer * 2 < n_blocks as u64 {
            return None;
        }
        let held_at = |event: EventId| -> Bytes {
            let live = made.iter().filter(|it| life(**it).is_live_after(event));
            live.map(|it| life(*it).size).sum()
        };
        let held = held_at(moment);
        let half = made.get(n_blocks / 2)?;
        if held.0 / 4 * 3 < held_at(life(*half).alloc).0 {
            return None;
        }
        let live: Vec<(BlockId, &Link)> = made
            .iter()
            // While two are joined, the old one is there, too.
            .filter(|it| life(**it).is_live_after(moment) && !replaced.contains(it))
            .filter_map(|it| Some((*it, links.get(it)?)))
            .collect();
        let bytes: Bytes =
            live.iter().map(|(it, link)| life(*it).requested.saturating_sub(link.first)).sum();
        let tensors = live.iter().filter(|(_, link)| link.n != 0).count() as u64;
        let joins: u64 = live.iter().map(|(_, link)| link.n).sum();
        if joins < tensors * LEAST_EACH {
            return None;
        }
        let since = life(*made.first()?).alloc;
        let run = case.run;
        let trains = run.timeline.starts(Stage::Backward).any(|it| since <= it && it <= moment);
        let is_memory =
            is_cache(case, stack) || 2 <= tensors && run.stacks.signs(stack).has(Signs::MODULE);
        (tensors != 0 && Bytes::mib(1) <= bytes).then(|| Growth {
            kind: if is_memory && !trains { Kind::KvCache } else { Kind::Other },
            at: case.line_outside(stack),
            bytes,
            blocks: live.len() as u64,
            steps: joins / tensors,
            steps_are: Counted::default(),
            of: joins / tensors,
            since,
            per_step: Bytes(bytes.0 / longer),
            larger_each_time: true,
            apart: true,
            tensors,
            seen_at: moment,
            held,
            older: Vec::new(),
            counted: live.iter().map(|(it, _)| *it).collect(),
        })
    }
}
