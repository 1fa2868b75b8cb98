//! What is there more and more of: blocks of one call stack that stay, some more in each step.
//!
//! A block stays when it is live at the moment that is looked at (the peak, and the end). Blocks of one
//! stack are a growth when they were made in at least three different steps, over at least half of the
//! run since the first of them, to its end; and when there were clearly fewer half way, which a buffer
//! of fixed length, a cache that is full or a value that is replaced does not show. Left out is what has
//! a name (parameters, gradients, states), what optimizers make, and what is made before training.
//!
//! Steps are the optimizer's; after the last one, and in programs without any, each forward pass counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{
        Case,
        clock::Clock,
        refilled::drop_bounded,
        remade::{larger_each_time, pages, repeated},
    },
    prediction::{Category, stacks::Signs, timeline::Stage},
    recording::{CodeLine, Role},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// Steps that a growth has to be seen in.
pub(super) const LEAST: usize = 3;

/// Steps after which a small growth is no accident.
const LONG: usize = 8;
/// Steps of a run that a small growth is measured by.
const A_RUN: u64 = 10_000;

/// What a growth is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Much of what forward passes made: their graph is still there.
    Graph,
    /// The same, of forward passes that no backward pass followed.
    GraphWithoutBackward,
    /// Little of what forward passes made: outputs, losses.
    Results,
    /// Keys and values of attention.
    KvCache,
    /// Made between the passes, or by a line that is made anew larger each time.
    Other,
}

/// Something that grows.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    pub(crate) kind: Kind,
    /// The line that most of it was made at.
    pub(crate) at: Option<CodeLine>,
    /// What goes when it is fixed: all but the newest step's.
    pub(crate) bytes: Bytes,
    pub(crate) blocks: u64,
    /// Steps or passes that left something.
    pub(crate) steps: u64,
    /// Of how many, since the first.
    pub(crate) of: u64,
    /// When it began.
    pub(crate) since: EventId,
    /// What one step leaves.
    pub(crate) per_step: Bytes,
    /// A single tensor that is made anew, larger each time.
    pub(crate) larger_each_time: bool,
    /// The moment it was seen at.
    pub(crate) seen_at: EventId,
    /// Everything of it that was live then.
    pub(crate) held: Bytes,
    /// The blocks of all steps but the newest.
    pub(crate) older: Vec<BlockId>,
}

/// Blocks of one stack (and of one size, where there is no stack).
pub(super) type Key = (StackId, Bytes);
/// Several of them.
pub(super) type Groups = Vec<(Key, Group)>;

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Step and block, in the order they were made.
    pub(super) kept: Vec<(u32, BlockId)>,
    pub(super) bytes: Bytes,
}

impl Growth {
    /// Everything that grows, at the peak and in the end; of the same thing the larger.
    pub(crate) fn all(case: &Case<'_>) -> Vec<Growth> {
        let clock = Clock::of(case);
        let last = case.last();
        let mut res = Vec::new();
        let moments = BTreeSet::from([case.peak.event, case.peak_after_training.min(last), last]);
        let repeated = repeated(case, &moments);
        for moment in moments {
            for growth in at(case, &clock, moment, &repeated) {
                let same = |it: &&mut Growth| it.kind == growth.kind && it.at == growth.at;
                match res.iter_mut().find(same) {
                    Some(old) if old.bytes < growth.bytes => *old = growth,
                    Some(_) => {}
                    None => res.push(growth),
                }
            }
        }
        // What a graph holds is told once.
        let is_graph = |it: &Growth| matches!(it.kind, Kind::Graph | Kind::GraphWithoutBackward);
        let lines: Vec<Option<CodeLine>> =
            res.iter().filter(|it| is_graph(it)).map(|it| it.at.clone()).collect();
        res.retain(|it| it.kind != Kind::Results || !lines.contains(&it.at));
        join_neighbours(&mut res);
        // Of one graph, the line is a matter of which block was largest.
        for kind in [Kind::Graph, Kind::GraphWithoutBackward] {
            let most = res.iter().filter(|it| it.kind == kind).map(|it| it.bytes).max();
            let mut seen = false;
            res.retain(|it| {
                it.kind != kind || Some(it.bytes) == most && !std::mem::replace(&mut seen, true)
            });
        }
        res
    }
}

/// Lines of one function that grow alike, step by step, are one thing: a list of tuples, keys and values.
fn join_neighbours(growths: &mut Vec<Growth>) {
    let mut res: Vec<Growth> = Vec::new();
    for it in growths.drain(..) {
        let alike = |old: &&mut Growth| {
            let place =
                |it: &Growth| it.at.as_ref().map(|it| (it.file.clone(), it.function.clone()));
            old.kind == it.kind
                && old.seen_at == it.seen_at
                && (old.steps, old.larger_each_time) == (it.steps, it.larger_each_time)
                && place(old) == place(&it)
        };
        match res.iter_mut().find(alike) {
            Some(old) => {
                if old.bytes < it.bytes {
                    old.at = it.at;
                }
                old.bytes += it.bytes;
                old.blocks += it.blocks;
                old.per_step += it.per_step;
                old.held += it.held;
                old.since = old.since.min(it.since);
                old.older.extend(it.older);
            }
            None => res.push(it),
        }
    }
    *growths = res;
}

fn at(case: &Case<'_>, clock: &Clock, moment: EventId, repeated: &BTreeSet<Key>) -> Vec<Growth> {
    let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
    let blocks = (0..).map(BlockId).zip(&case.run.replay.blocks);
    for (block, life) in blocks.filter(|(_, it)| it.is_live_after(moment)) {
        if is_expected(case, clock, block, repeated) {
            continue;
        }
        let group = groups.entry(key(case, block)).or_default();
        group.kept.push((clock.at(life.alloc), block));
        group.bytes += life.size;
    }
    let mut res: Vec<Growth> = larger_each_time(case, moment, &groups);
    groups.retain(|_, it| is_spread(it, clock.at(moment)));
    // Where nothing counts as a step or a pass, only sizes can be compared.
    if groups.is_empty() || !clock.is_known(case) {
        return res;
    }
    drop_level(case, clock, moment, (&mut groups, repeated));
    res.extend(classify(case, clock, moment, (groups, repeated)));
    res
}

pub(super) fn key(case: &Case<'_>, block: BlockId) -> Key {
    let stack = case.stack(block);
    let size = if stack == StackId::EMPTY { case.life(block).requested } else { Bytes::ZERO };
    (stack, size)
}

/// What stays in every healthy run.
pub(super) fn is_expected(
    case: &Case<'_>,
    clock: &Clock,
    block: BlockId,
    repeated: &BTreeSet<Key>,
) -> bool {
    let signs = case.signs(block);
    // A loss of many passes, walked back once: the pass that gives them back is what they were kept for.
    let timeline = &case.run.timeline;
    let life = case.life(block);
    let backward = timeline.next(Stage::Backward, life.alloc).map(|it| timeline.stretch_end(it));
    let used = life.free.zip(backward).is_some_and(|(free, end)| free <= end);
    if used && matches!(case.stage(block), Stage::Forward | Stage::Loss) {
        return true;
    }
    let role = case.evidence.name(block).map(|it| it.role);
    matches!(role, Some(Role::Parameter | Role::Buffer | Role::OptimizerState))
        // A program that only evaluates never leaves its setup, but its passes do; one of functions has none.
        || case.stage(block) == Stage::Setup && clock.at(life.alloc) == 0 && clock.is_known(case)
        || [Signs::OPTIMIZER, Signs::ZERO_GRAD, Signs::APPLY].iter().any(|it| signs.has(*it))
        || case.evidence.category(block) == Category::Workspaces
            && !repeated.contains(&key(case, block))
}

/// Made in enough steps, over enough of the run, to its end.
fn is_spread(group: &Group, now: u32) -> bool {
    let steps: BTreeSet<u32> = group.kept.iter().map(|(step, _)| *step).collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return false };
    let run = now - first;
    LEAST <= steps.len() && run <= (last - first) * 2 && now - last <= (run / 3).max(1)
}

/// Takes out what there was as much of half way.
fn drop_level(
    case: &Case<'_>,
    clock: &Clock,
    moment: EventId,
    (groups, repeated): (&mut BTreeMap<Key, Group>, &BTreeSet<Key>),
) {
    // Variables hold a step's values until the next one's come: neither of the two counts, because how far
    // the replacing has come differs from moment to moment.
    let is_older = |made: EventId, step: u32| clock.at(made) + 1 < step;
    let mut half_way: BTreeMap<Key, (EventId, Bytes)> = BTreeMap::new();
    for (key, group) in &*groups {
        let first = group.kept.first().map_or(0, |(step, _)| *step);
        let middle =
            clock.first_event(first + (clock.at(moment).saturating_sub(first)).div_ceil(2), moment);
        half_way.insert(*key, (middle, Bytes::ZERO));
    }
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if life.alloc <= moment
            && let Some((middle, bytes)) = half_way.get_mut(&key(case, block))
            && is_older(life.alloc, clock.at(*middle))
            && life.free.is_none_or(|free| *middle <= free)
            && !is_expected(case, clock, block, repeated)
        {
            *bytes += life.size;
        }
    }
    let now = clock.at(moment);
    let old = |group: &Group| -> Bytes {
        let blocks = group.kept.iter().filter(|(step, _)| *step + 1 < now);
        blocks.map(|(_, it)| case.life(*it).size).sum()
    };
    groups.retain(|key, group| half_way[key].1.0 / 3 * 4 < old(group).0);
    // A buffer fills before it is full: if it is as large at the end of a longer run, it was full, and so it was if it
    // went on at less than a quarter of its pace. What is few is not compared by its size alone: three are much more than two.
    let last = case.last();
    if clock.at(last) < now + 2 {
        return;
    }
    let end = clock.at(last);
    let mut later: BTreeMap<Key, Bytes> = groups.keys().map(|key| (*key, Bytes::ZERO)).collect();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if life.is_live_after(last)
            && let Some(bytes) = later.get_mut(&key(case, block))
            && is_older(life.alloc, end)
            && !is_expected(case, clock, block, repeated)
        {
            *bytes += life.size;
        }
    }
    groups.retain(|key, group| {
        let (then, later) = (old(group).0, later[key].0);
        let first = group.kept.first().map_or(0, |(step, _)| *step);
        let (before, since) = (u64::from(now - first).max(1), u64::from(end - now));
        let more = later.saturating_sub(then);
        let goes_on = then.saturating_mul(since) < more.saturating_mul(4 * before);
        later < then / 4 * 3 || then / 3 * 4 < later && goes_on
    });
}

pub(super) fn is_cache(case: &Case<'_>, stack: StackId) -> bool {
    case.stack_says(
        stack,
        &["cache_utils", "kv_cache", "kvcache", "past_key", "update_cache", "append_kv"],
    )
}

/// What the groups are together.
fn classify(
    case: &Case<'_>,
    clock: &Clock,
    moment: EventId,
    (groups, repeated): (BTreeMap<Key, Group>, &BTreeSet<Key>),
) -> Vec<Growth> {
    let timeline = &case.run.timeline;
    let in_pass = |stage: Stage| matches!(stage, Stage::Forward | Stage::Loss | Stage::Evaluation);
    let pages = pages(case, clock, &groups);
    let mut graph: Groups = Vec::new();
    let mut rest: BTreeMap<(Kind, Option<CodeLine>), Groups> = BTreeMap::new();
    for (key, group) in groups {
        let stage = group.kept.first().map_or(Stage::Setup, |(_, it)| case.stage(*it));
        if is_cache(case, key.0) || pages.contains(&key.0) {
            rest.entry((Kind::KvCache, None)).or_default().push((key, group));
        } else if in_pass(stage) || stage == Stage::Backward && case.run.stacks.is_autograds(key.0)
        {
            graph.push((key, group));
        } else {
            rest.entry((Kind::Other, case.line_outside(key.0))).or_default().push((key, group));
        }
    }
    // How much of what a pass made is still there?
    let steps: BTreeSet<u32> =
        graph.iter().flat_map(|(_, it)| it.kept.iter().map(|(step, _)| *step)).collect();
    let newest = clock.at(moment);
    let old: BTreeSet<u32> = steps.iter().copied().filter(|it| *it < newest).collect();
    let mut made: BTreeMap<u32, Bytes> = BTreeMap::new();
    for life in &case.run.replay.blocks {
        let stage = timeline.stage(life.alloc);
        if life.alloc <= moment && in_pass(stage) {
            let step = clock.at(life.alloc);
            if old.contains(&step) {
                *made.entry(step).or_default() += life.size;
            }
        }
    }
    // Kept in the steps that kept the most: with `retain_graph` only some do.
    let in_step = |step: u32| -> Bytes {
        let blocks = graph.iter().flat_map(|(_, it)| &it.kept).filter(|(it, _)| *it == step);
        blocks.map(|(_, it)| case.life(*it).size).sum()
    };
    let most = old.iter().copied().max_by_key(|it| in_step(*it));
    let share =
        most.map_or(0, |it| in_step(it).0 * 100 / made.get(&it).map_or(1, |it| it.0.max(1)));
    let n_stacks = graph.len();
    // Layers of one kind share a stack, so blocks count as well.
    let n_blocks = most.map_or(0, |most| {
        graph.iter().flat_map(|(_, it)| &it.kept).filter(|(step, _)| *step == most).count()
    });
    let is_graph = 6 <= n_stacks || 3 <= n_blocks && 25 <= share || 2 <= n_blocks && 50 <= share;
    if is_graph {
        // The graph holds the inputs of its step too, wherever these were made.
        let heavy: BTreeSet<u32> = steps
            .iter()
            .copied()
            .filter(|it| in_step(*it).0 * 10 >= most.map_or(0, |it| in_step(it).0))
            .collect();
        for ((kind, _), groups) in &mut rest {
            let is_held = |group: &Group| {
                group
                    .kept
                    .iter()
                    .all(|(step, _)| heavy.contains(step) || heavy.contains(&(step + 1)))
            };
            if *kind == Kind::Other {
                let (held, own): (Groups, Groups) =
                    std::mem::take(groups).into_iter().partition(|(_, it)| is_held(it));
                *groups = own;
                graph.extend(held);
            }
        }
    }
    // A graph is told though each epoch lets go of its own: it is what a step should not leave.
    if !is_graph {
        drop_bounded(case, clock, moment, (&mut graph, repeated));
    }
    for ((kind, _), groups) in &mut rest {
        if *kind == Kind::Other {
            drop_bounded(case, clock, moment, (groups, repeated));
        }
    }
    let mut res = Vec::new();
    if is_graph {
        let followed = most.is_some_and(|step| {
            // Was there a backward pass in the step that left it?
            timeline.starts(Stage::Backward).any(|it| clock.at(it) == step)
        });
        let evaluates = graph.iter().any(|(_, it)| {
            it.kept.iter().any(|(_, block)| case.stage(*block) == Stage::Evaluation)
        });
        let loss =
            graph.iter().any(|((stack, _), _)| case.stack_says(*stack, &["loss", "cross_entropy"]));
        let kind = if !evaluates
            && (followed
                || loss
                || timeline.has(Stage::Backward)
                    && !timeline.marked
                    && !is_after_training(case, &graph))
        {
            Kind::Graph
        } else {
            Kind::GraphWithoutBackward
        };
        res.extend(growth(case, clock, moment, kind, &graph));
    } else {
        for (key, group) in graph {
            rest.entry((Kind::Results, case.line_outside(key.0))).or_default().push((key, group));
        }
    }
    for ((kind, _), groups) in rest.into_iter().filter(|(_, it)| !it.is_empty()) {
        res.extend(growth(case, clock, moment, kind, &groups));
    }
    res
}

/// All of it was made after the last optimizer step.
fn is_after_training(case: &Case<'_>, groups: &[(Key, Group)]) -> bool {
    let last = case.run.timeline.step_ends.last();
    last.is_some_and(|last| {
        groups.iter().flat_map(|(_, it)| &it.kept).all(|(_, it)| *last <= case.life(*it).alloc)
    })
}

fn growth(
    case: &Case<'_>,
    clock: &Clock,
    moment: EventId,
    kind: Kind,
    groups: &[(Key, Group)],
) -> Option<Growth> {
    let all: Vec<(u32, BlockId)> =
        groups.iter().flat_map(|(_, it)| it.kept.iter().copied()).collect();
    let steps: BTreeSet<u32> = all.iter().map(|(step, _)| *step).collect();
    let newest = clock.at(moment);
    // With `retain_graph` in some steps only, the others leave their loss, and that is no graph.
    let mut by_step: BTreeMap<u32, Bytes> = BTreeMap::new();
    for (step, block) in &all {
        *by_step.entry(*step).or_default() += case.life(*block).size;
    }
    let most = by_step.values().copied().max().unwrap_or_default();
    // A prompt's keys and values are many times a token's.
    let counts = |it: &u32| kind == Kind::KvCache || most.0 / 10 <= by_step[it].0;
    let steps: BTreeSet<u32> = steps.into_iter().filter(counts).collect();
    let total: Bytes = all.iter().map(|(_, it)| case.life(*it).size).sum();
    let bytes: Bytes =
        all.iter().filter(|(step, _)| *step < newest).map(|(_, it)| case.life(*it).size).sum();
    let since = all.iter().map(|(_, it)| case.life(*it).alloc).min()?;
    let first = *steps.first()?;
    let per_step = Bytes(bytes.0 / (steps.iter().filter(|it| **it < newest).count() as u64).max(1));
    let is_large = Bytes::mib(1) <= bytes || Bytes::kib(16) <= per_step;
    // A little in each step is no accident when there are enough of them, and a long run adds it up; some
    // bytes beside gigabytes are not worth a person's time.
    let is_sure =
        LONG <= steps.len() && case.peak.bytes.0 / 100 <= per_step.0.saturating_mul(A_RUN);
    if !(is_large || is_sure) {
        return None;
    }
    let mut lines: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
    for ((stack, _), group) in groups {
        if let Some(line) = case.line_outside(*stack) {
            *lines.entry(line).or_default() += group.bytes;
        }
    }
    let at = lines.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line);
    let largest = all.iter().map(|(_, it)| *it).max_by_key(|it| case.life(*it).size);
    let at = at.or_else(|| case.line_of_backward(largest?));
    Some(Growth {
        kind,
        at,
        bytes,
        blocks: all.len() as u64,
        steps: steps.len() as u64,
        of: u64::from(newest - first) + 1,
        since,
        per_step,
        larger_each_time: false,
        seen_at: moment,
        held: total,
        older: all.iter().filter(|(step, _)| *step < newest).map(|(_, it)| *it).collect(),
    })
}

impl Growth {
    /// What all growths have to say.
    pub(crate) fn tell(&self, case: &Case<'_>, finding: &mut crate::findings::Finding) {
        finding.count = self.blocks;
        finding.blocks.clone_from(&self.older);
        finding.at.clone_from(&self.at);
        finding.step = case.step(self.since).or(Some(1).filter(|_| self.steps != 0));
        let what = if case.run.timeline.step_ends.len() < LEAST { "passes" } else { "steps" };
        if !self.larger_each_time {
            finding.evidence.push(format!(
                "{} blocks from {} of {} {what} are live, {} a step; {} altogether",
                self.blocks, self.steps, self.of, self.per_step, self.held
            ));
        }
        if !self.larger_each_time && self.per_step < Bytes::mib(1) {
            finding.evidence.push(format!(
                "that is {} in {A_RUN} steps",
                Bytes(self.per_step.0.saturating_mul(A_RUN))
            ));
        }
        let at_peak = self.seen_at == case.peak.event;
        let share = self.bytes.share_of(case.peak.bytes) * 100.0;
        let when = if at_peak { "at the peak" } else { "at the end" };
        finding.evidence.push(format!("{share:.0} % of the peak, seen {when}"));
    }
}
