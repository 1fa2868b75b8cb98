//! What autograd keeps of a forward pass that no backward pass will follow: seen from the first batch of an evaluation on,
//! when nothing can have grown yet.
//!
//! The agent says that a model in evaluation mode ran with gradients on. Without it, or for a model that was left in training
//! mode, the line tells: all that trained before was called from others, and each of those reached a backward pass. A line that reached
//! one before is no evaluation, whatever mode its model is in; and where memory ran out in a pass, its backward pass may have been to come.
//! What an evaluation made with gradients on, and what outlived a whole backward pass and is freed in none, has no use, however long ago that was.

use std::collections::BTreeSet;

use crate::{
    findings::{Case, idle_graph::IdleGraph},
    prediction::{
        stacks::Signs,
        timeline::{Places, Stage},
    },
    recording::{MarkKind, Phase},
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

/// Steps after which the lines that train are known.
const STEPS: u32 = 2;
/// What a pass has at once without a graph, too: what goes into a layer, and what comes out.
const STILL_THERE: usize = 2;
/// Fewer blocks may be outputs that a variable of the script holds, where a graph is not known to be there.
const LEAST_BLOCKS: usize = 4;

/// Of the passes that are there at `moment`.
pub(super) fn at(case: &Case<'_>, moment: EventId) -> Option<IdleGraph> {
    if !case.window.stacks || case.died_before_backward() {
        return None;
    }
    of_open_passes(case, moment).or_else(|| of_an_earlier_evaluation(case, moment))
}

/// Of an evaluation whose graph outlived a whole backward pass, and that none frees: its results are stored with it.
fn of_an_earlier_evaluation(case: &Case<'_>, moment: EventId) -> Option<IdleGraph> {
    let timeline = &case.run.timeline;
    let evaluations = Passes::with_gradients(case);
    let is_unused = |block: BlockId| {
        let life = case.life(block);
        let end = timeline.stretch_end(life.alloc);
        let outlives = |begin: EventId| life.free.is_none_or(|it| timeline.stretch_end(begin) < it);
        timeline.stage(life.alloc) == Stage::Evaluation
            && (case.module(block).is_some() || case.signs(block).has(Signs::MODULE))
            && evaluations
                .range(..=life.alloc)
                .next_back()
                .is_some_and(|it| timeline.stretch_end(*it) == end)
            && timeline.next(Stage::Backward, end).is_some_and(outlives)
            && life.free.is_none_or(|it| timeline.stage(it) != Stage::Backward)
    };
    let live = case.live_after(moment);
    let blocks: Vec<BlockId> = live.iter().map(|it| it.block).filter(|it| is_unused(*it)).collect();
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size)?;
    if blocks.len() < LEAST_BLOCKS {
        return None;
    }
    let at = case.line_outside(case.stack(largest));
    Some(IdleGraph { bytes: case.sum(&blocks), at, blocks, is_sure: true })
}

fn of_open_passes(case: &Case<'_>, moment: EventId) -> Option<IdleGraph> {
    let passes = Passes::before(case, moment);
    let (first, is_sure) = passes.idle()?;
    let is_of_pass = |block: BlockId| {
        first <= case.life(block).alloc
            && case.signs(block).has(Signs::MODULE)
            && !case.signs(block).has(Signs::OPTIMIZER)
    };
    let mut blocks: Vec<BlockId> =
        case.live_after(moment).iter().map(|it| it.block).filter(|it| is_of_pass(*it)).collect();
    blocks.truncate(blocks.len().saturating_sub(STILL_THERE));
    let size = |it: &BlockId| case.life(*it).size;
    let bytes: Bytes = blocks.iter().map(size).sum();
    let made: Bytes = (0..)
        .map(BlockId)
        .zip(&case.run.replay.blocks)
        .filter(|(block, life)| life.alloc <= moment && is_of_pass(*block))
        .map(|(_, life)| life.size)
        .sum();
    // Without a graph a pass gives back what it made while it goes on.
    let least = if is_sure { 1 } else { LEAST_BLOCKS };
    if blocks.len() < least || !is_sure && bytes.0 < made.0 / 3 {
        return None;
    }
    let largest = blocks.iter().copied().max_by_key(size)?;
    Some(IdleGraph { bytes, at: case.line_outside(case.stack(largest)), blocks, is_sure })
}

/// The forward passes up to a moment.
#[derive(Default)]
struct Passes {
    /// Lines that called a model and reached a backward pass.
    trained: BTreeSet<Line>,
    steps: u32,
    /// Those since the last backward pass or step.
    open: Vec<Pass>,
}

/// A file and a line.
type Line = (String, u32);
/// Where it begins, the line that called the model, and whether it is known to be an evaluation with gradients.
type Pass = (EventId, Option<Line>, Option<bool>);

impl Passes {
    /// Where evaluations with gradients on begin.
    fn with_gradients(case: &Case<'_>) -> BTreeSet<EventId> {
        let run = case.run;
        let notes = &run.recording.notes;
        let places = Places::new(&run.replay, run.index, &notes.stats);
        let evaluations = notes
            .marks
            .iter()
            .filter(|it| it.with_gradients && it.kind == MarkKind::Begin(Phase::Evaluation));
        evaluations.map(|it| places.event(&it.place)).collect()
    }

    fn before(case: &Case<'_>, moment: EventId) -> Passes {
        let run = case.run;
        let evaluations = Passes::with_gradients(case);
        let mut res = Passes { steps: run.timeline.steps_before(moment), ..Passes::default() };
        for (first, end, stage) in run.timeline.stretches().filter(|it| it.0 <= moment) {
            match stage {
                // Memory ran out, and the script gave the pass up.
                Stage::Forward | Stage::Evaluation if case.evidence.was_refused(first, end) => {}
                Stage::Forward => res.open.push((first, called_from(case, first, end), None)),
                Stage::Evaluation => {
                    let with_gradients = evaluations.range(first..end).next().is_some();
                    res.open.push((first, called_from(case, first, end), Some(with_gradients)));
                }
                Stage::Backward => {
                    res.trained.extend(res.open.drain(..).filter_map(|(_, line, _)| line));
                }
                Stage::Optimizer => {
                    // In a closure, which the optimizer calls, the backward pass comes in the same step.
                    let timeline = &run.timeline;
                    let backward = timeline.next(Stage::Backward, first);
                    let step_of = |it: EventId| timeline.steps_before(it);
                    if backward.is_none_or(|it| step_of(it) != step_of(first)) {
                        res.open.clear();
                    }
                }
                _ => {}
            }
        }
        res
    }

    /// Where the last passes without a purpose begin, and whether that is sure.
    fn idle(&self) -> Option<(EventId, bool)> {
        let is_idle = |line: &Option<Line>, known: Option<bool>| match (known, line) {
            (Some(_), Some(line)) if self.trained.contains(line) => false,
            (Some(with_gradients), _) => with_gradients,
            (None, Some(line)) => STEPS <= self.steps && !self.trained.contains(line),
            (None, None) => false,
        };
        let last = self.open.last().filter(|(_, line, known)| is_idle(line, *known))?;
        let idle = self.open.iter().rev().take_while(|(_, line, known)| is_idle(line, *known));
        Some((idle.last()?.0, last.2 == Some(true)))
    }
}

/// The line that called the model in this stretch.
fn called_from(case: &Case<'_>, first: EventId, end: EventId) -> Option<Line> {
    let blocks = &case.run.replay.blocks;
    let from = blocks.partition_point(|it| it.alloc < first);
    let until = blocks.partition_point(|it| it.alloc < end);
    let mut made = (from..until).filter_map(|it| u32::try_from(it).ok()).map(BlockId);
    let block = made.find(|it| case.signs(*it).has(Signs::MODULE))?;
    case.line_outside(case.stack(block)).map(|it| (it.file, it.line))
}
