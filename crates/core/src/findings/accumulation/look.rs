//! What is compared: the blocks that are live at a moment, by the stack that made them, without what stays in every healthy run.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{Case, accumulation::iterations::Iterations},
    prediction::{Category, stacks::Signs, timeline::Stage},
    recording::Role,
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// Iterations that a growth has to be seen in.
pub(super) const LEAST: usize = 3;

/// Blocks of one stack (and of one size, where there is no stack).
pub(super) type Key = (StackId, Bytes);
/// Several of them.
pub(super) type Groups = Vec<(Key, Group)>;

/// The blocks of one stack.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Step and block, in the order they were made.
    pub(super) kept: Vec<(u32, BlockId)>,
    pub(super) bytes: Bytes,
}

/// A case, and what tells its growths from what every run keeps.
pub(super) struct Look<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) iterations: Iterations,
    /// What has the size of a workspace and is made too often to be one: those are made once and stay.
    repeated: BTreeSet<Key>,
}

impl<'a> Look<'a> {
    /// For growths that are live at one of `moments`.
    pub(super) fn new(case: &'a Case<'a>, moments: &BTreeSet<EventId>) -> Look<'a> {
        Look { case, iterations: Iterations::of(case), repeated: repeated(case, moments) }
    }

    /// What is live after `moment`, but for what stays in every healthy run.
    pub(super) fn groups(&self, moment: EventId) -> BTreeMap<Key, Group> {
        let mut res: BTreeMap<Key, Group> = BTreeMap::new();
        let gradients = self.one_for_each_parameter(moment);
        let blocks = (0..).map(BlockId).zip(&self.case.run.replay.blocks);
        for (block, life) in blocks.filter(|(_, it)| it.is_live_after(moment)) {
            if self.is_expected(block) || gradients.contains(&block) {
                continue;
            }
            let group = res.entry(self.key(block)).or_default();
            group.kept.push((self.iterations.at(life.alloc), block));
            group.bytes += life.size;
        }
        res
    }

    /// Gradients of several models that take turns are made in several passes, and are all needed: of a size, not more than
    /// there are parameters.
    fn one_for_each_parameter(&self, moment: EventId) -> BTreeSet<BlockId> {
        let mut parameters: BTreeMap<Bytes, usize> = BTreeMap::new();
        let mut gradients: BTreeMap<Bytes, Vec<BlockId>> = BTreeMap::new();
        for it in self.case.live_after(moment) {
            let size = self.case.life(it.block).requested;
            match it.category {
                Category::Parameters => *parameters.entry(size).or_default() += 1,
                Category::Gradients => gradients.entry(size).or_default().push(it.block),
                _ => {}
            }
        }
        let of_models = |(size, blocks): &(Bytes, Vec<BlockId>)| {
            parameters.get(size).is_some_and(|it| blocks.len() <= *it)
        };
        gradients.into_iter().filter(of_models).flat_map(|it| it.1).collect()
    }

    pub(super) fn key(&self, block: BlockId) -> Key {
        key(self.case, block)
    }

    /// The iteration at `moment`, as the blocks of `group` count it.
    pub(super) fn now(&self, group: &Group, moment: EventId) -> u32 {
        let newest = group.kept.iter().map(|(_, it)| self.case.life(*it).alloc).max();
        newest.map_or(0, |newest| self.iterations.at_for(moment, newest))
    }

    /// Whether it stays in every healthy run.
    pub(super) fn is_expected(&self, block: BlockId) -> bool {
        let Look { case, iterations, repeated } = self;
        let signs = case.signs(block);
        // A loss of many passes, walked back once: the pass that gives them back is what they were kept for.
        let timeline = &case.run.timeline;
        let life = case.life(block);
        let backward =
            timeline.next(Stage::Backward, life.alloc).map(|it| timeline.stretch_end(it));
        let used = life.free.zip(backward).is_some_and(|(free, end)| free <= end);
        if used && matches!(case.stage(block), Stage::Forward | Stage::Loss) {
            return true;
        }
        let role = case.evidence.name(block).map(|it| it.role);
        matches!(role, Some(Role::Parameter | Role::Buffer | Role::OptimizerState))
            // A program that only evaluates never leaves its setup, but its passes do; one of functions has none.
            || case.stage(block) == Stage::Setup && iterations.at(life.alloc) == 0 && iterations.is_known(case)
            || [Signs::OPTIMIZER, Signs::ZERO_GRAD, Signs::APPLY].iter().any(|it| signs.has(*it))
            || case.evidence.category(block) == Category::Workspaces
                && !repeated.contains(&key(case, block))
    }
}

fn key(case: &Case<'_>, block: BlockId) -> Key {
    let stack = case.run.stacks.alike(case.stack(block));
    let size = if stack == StackId::EMPTY { case.life(block).requested } else { Bytes::ZERO };
    (stack, size)
}

/// What has the size of a workspace and is made too often to be one: those are made once and stay.
fn repeated(case: &Case<'_>, moments: &BTreeSet<EventId>) -> BTreeSet<Key> {
    let mut res = BTreeSet::new();
    for moment in moments {
        let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
        let blocks = (0..).map(BlockId).zip(&case.run.replay.blocks);
        for (block, _) in blocks.filter(|(_, it)| it.is_live_after(*moment)) {
            if case.evidence.category(block) == Category::Workspaces {
                *counts.entry(key(case, block)).or_default() += 1;
            }
        }
        res.extend(counts.into_iter().filter(|(_, n)| LEAST <= *n).map(|(key, _)| key));
    }
    res
}
