//! A tensor that is made anew, larger each time: `cat` in a loop, a cache of keys and values.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{
        Case,
        accumulation::look::{Group, Key, Look},
        growth::{Growth, Kind},
    },
    prediction::{Counted, stacks::Signs, timeline::Stage},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// How one line made the same tensor again and again.
#[derive(Default)]
struct Series {
    /// Made until the moment that is looked at.
    n: u64,
    rises: u64,
    falls: u64,
    /// Made while the smaller one before it was live, as `cat` does; the next step's larger batch is not.
    beside: u64,
    /// Made since the last rise, to the end of the run, and not larger.
    level: u64,
    /// Of these, those at the end that are exactly as large: a bank that is full.
    same: u64,
    /// Most that were made between two rises.
    longest: u64,
    last_rise: u64,
    smaller: Option<BlockId>,
    newest: Option<BlockId>,
    first: Bytes,
    last: Bytes,
    since: EventId,
}

impl Series {
    fn add(&mut self, case: &Case<'_>, block: BlockId) {
        let life = case.life(block);
        if self.n == 0 {
            (self.first, self.since) = (life.requested, life.alloc);
        }
        if self.last < life.requested {
            self.rises += 1;
            self.smaller = self.newest;
            self.longest = self.longest.max(self.n - self.last_rise);
            self.last_rise = self.n;
        }
        let is_beside = |old: BlockId| {
            let old = case.life(old);
            old.requested < life.requested && old.free.is_none_or(|free| life.alloc < free)
        };
        if self.last < life.requested && self.smaller.is_some_and(is_beside) {
            self.beside += 1;
        }
        self.newest = Some(block);
        self.falls += u64::from(life.requested < self.last);
        self.last = life.requested;
        self.n += 1;
    }

    fn is_larger_each_time(&self) -> bool {
        8 < self.rises
            && self.falls * 20 < self.rises
            && self.first.0.saturating_mul(3) / 2 < self.last.0
    }

    fn is_growth(&self) -> bool {
        self.is_larger_each_time()
            && self.rises < self.beside * 2
            && self.level * 4 < self.n
            && self.same <= 2 * self.longest
    }

    /// How many tensors the line keeps: layers of one kind share a line.
    fn tensors(&self) -> u64 {
        (self.n + self.rises / 2) / self.rises.max(1)
    }

    /// Of one size, and larger as often: keys and values are.
    fn is_alike(&self, other: &Series) -> bool {
        let step = self.last.saturating_sub(self.first).0 / self.rises.max(1);
        self.last.0.abs_diff(other.last.0) <= step && self.rises.abs_diff(other.rises) <= 1
    }
}

/// One tensor in the place of the one before, and larger: a cache, or `cat` in a loop. And the stacks that make such.
pub(super) fn larger_each_time(
    case: &Case<'_>,
    moment: EventId,
    live: &BTreeMap<Key, Group>,
) -> (Vec<Growth>, BTreeSet<StackId>) {
    let large = |it: Bytes| case.matters(it, 1, Bytes::mib(1));
    let mut series: BTreeMap<StackId, Series> = live
        .iter()
        .filter(|((stack, _), group)| *stack != StackId::EMPTY && large(group.bytes))
        .map(|((stack, _), _)| (*stack, Series::default()))
        .collect();
    if series.is_empty() {
        return (Vec::new(), BTreeSet::new());
    }
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let Some(it) = series.get_mut(&case.run.stacks.alike(case.stack(block))) else { continue };
        it.level = if it.last < life.requested { 0 } else { it.level + 1 };
        it.same = if it.last == life.requested { it.same + 1 } else { 0 };
        if life.alloc <= moment {
            it.add(case, block);
        }
    }
    series.retain(|_, it| it.is_growth());
    // A step that trains is no token.
    let is_trained = |series: &Series| {
        let backward = case.run.timeline.starts(Stage::Backward);
        series.rises
            <= 2 * backward.filter(|event| series.since <= *event && *event <= moment).count()
                as u64
    };
    let caches: Vec<StackId> = series
        .iter()
        .filter(|(stack, it)| !is_trained(it) && remembers(case, &series, **stack))
        .map(|(stack, _)| *stack)
        .collect();
    let stacks = series.keys().copied().collect();
    let mut res: Vec<Growth> = Vec::new();
    for (stack, it) in series {
        let group = &live[&(stack, Bytes::ZERO)];
        let is_cache = caches.contains(&stack);
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
            steps_are: Counted::default(),
            of: it.rises,
            since: it.since,
            per_step: Bytes((group.bytes.0 / 1000 * share) / it.rises.max(1)),
            larger_each_time: true,
            apart: false,
            tensors: it.tensors(),
            seen_at: moment,
            held: group.bytes,
            older: Vec::new(),
            counted: group.kept.iter().map(|(_, it)| *it).collect(),
        };
        // Keys and values are two stacks of one cache.
        match res.iter_mut().find(|old| old.kind == kind && (is_cache || old.at == growth.at)) {
            Some(old) => {
                old.bytes += growth.bytes;
                old.blocks += growth.blocks;
                old.per_step += growth.per_step;
                old.held += growth.held;
                old.tensors += growth.tensors;
                old.counted.extend(growth.counted);
            }
            None => res.push(growth),
        }
    }
    (res, stacks)
}

/// Whether what `stack` makes is a model's memory of what it has read: keys and values, of each layer.
///
/// Names say so, or several tensors of one function grow in step: two inside a model's pass, four anywhere
/// (a loop over batches joins its predictions and its labels, which are two).
fn remembers(case: &Case<'_>, series: &BTreeMap<StackId, Series>, stack: StackId) -> bool {
    let function = |stack: StackId| case.line_of(stack).map(|it| (it.file, it.function));
    let this = &series[&stack];
    let alike = series.iter().filter(|(other, it)| {
        (**other == stack || function(**other) == function(stack)) && it.is_alike(this)
    });
    let tensors: u64 = alike.map(|(_, it)| it.tensors()).sum();
    let signs = case.run.stacks.signs(stack);
    // What an evaluation of the Trainer collects may be as many tensors: hidden states, each with a part of every batch.
    let is_collected = signs.has(Signs::COLLECTED);
    let in_pass = signs.has(Signs::MODULE);
    is_cache(case, stack) || in_pass && 2 <= tensors || !is_collected && 4 <= tensors
}

/// The stacks that make a cache's parts, which the same function joins again for each pass: what it reads
/// grows although nothing of that stays. Results are not read by the pass that made them.
pub(super) fn pages(look: &Look<'_>, groups: &BTreeMap<Key, Group>) -> BTreeSet<StackId> {
    let Look { case, iterations, .. } = look;
    let function = |stack: StackId| case.line_of(stack).map(|it| (it.file, it.function));
    let in_pass = |stack: StackId| case.run.stacks.signs(stack).has(Signs::MODULE);
    // Keys and values, or layers: several blocks of one size in a step.
    let mut kept: BTreeMap<(String, String), Vec<StackId>> = BTreeMap::new();
    let mut newest: BTreeMap<(String, String), BTreeMap<(u32, Bytes), u64>> = BTreeMap::new();
    for ((stack, _), group) in groups.iter().filter(|((stack, _), _)| in_pass(*stack)) {
        let Some(place) = function(*stack) else { continue };
        for (step, block) in &group.kept {
            let sizes = newest.entry(place.clone()).or_default();
            *sizes.entry((*step, case.life(*block).requested)).or_default() += 1;
        }
        kept.entry(place).or_default().push(*stack);
    }
    kept.retain(|place, _| newest[place].values().filter(|it| 2 <= **it).count() > 8);
    if kept.is_empty() {
        return BTreeSet::new();
    }
    let mut read: BTreeMap<StackId, Series> = BTreeMap::new();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        let stack = case.stack(block);
        if life.free.is_some() && in_pass(stack) && iterations.at(life.alloc) != 0 {
            read.entry(stack).or_default().add(case, block);
        }
    }
    let is_read = |place: &(String, String)| {
        read.iter().any(|(stack, it)| {
            it.is_larger_each_time() && function(*stack).is_some_and(|it| it == *place)
        })
    };
    kept.into_iter().filter(|(place, _)| is_read(place)).flat_map(|(_, it)| it).collect()
}

/// Whether names in `stack` say that it makes keys and values.
pub(super) fn is_cache(case: &Case<'_>, stack: StackId) -> bool {
    case.run.stacks.signs(stack).has(Signs::CACHE)
}
