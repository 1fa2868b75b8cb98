//! A whole volume or result that stays on the device while an evaluation runs many forward passes that read a window of it or fill one:
//! sliding windows that are stitched on the GPU, a table of all results that is allocated before the first.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, stacks::Signs, timeline::Stage},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::WholeVolume, find };

/// Forward passes during which it is there.
const PASSES: usize = 4;
/// A volume, its result, how often each place was counted; each for some scales.
const A_FEW: u64 = 8;
/// Made otherwise than by the line of an evaluation.
const OTHERS: [Signs; 10] = [
    Signs::MODULE,
    Signs::OPTIMIZER,
    Signs::BACKWARD,
    Signs::APPLY,
    Signs::BUILT,
    Signs::DEEPCOPY,
    Signs::LOADED,
    Signs::CACHE,
    Signs::COLLECTED,
    Signs::GATHERED,
];

fn find(case: &Case<'_>) -> Vec<Finding> {
    let moment = case.moment();
    let timeline = &case.run.timeline;
    let passes: Vec<EventId> = timeline.starts(Stage::Evaluation).collect();
    let backward: Vec<EventId> = timeline.starts(Stage::Backward).collect();
    let between = |of: &[EventId], from: EventId, until: EventId| {
        of.partition_point(|it| *it <= until) - of.partition_point(|it| *it <= from)
    };
    // All passes that it is there for, also those after the moment that counts.
    let during = |block: BlockId| {
        let life = case.life(block);
        between(&passes, life.alloc, life.free.unwrap_or(moment).max(moment))
    };
    let is_other = |it: BlockId| OTHERS.iter().any(|sign| case.signs(it).has(*sign));
    let is_result = |category: Category| {
        matches!(
            category,
            Category::Temporaries
                | Category::Inputs
                | Category::Retained
                | Category::Unknown
                | Category::Activations
        )
    };
    if !timeline.marked || passes.len() < PASSES {
        return Vec::new();
    }
    let live = case.live_after(moment);
    let large = live.iter().filter(|it| is_result(it.category) && Bytes::mib(16) <= it.size);
    let blocks: Vec<BlockId> = large
        .map(|it| it.block)
        .filter(|block| {
            let made = case.life(*block).alloc;
            case.evidence.name(*block).is_none()
                && !is_other(*block)
                && between(&backward, made, moment) == 0
                && PASSES <= during(*block)
                && calls_the_model(case, &passes, *block)
                && !case.growth.iter().any(|growth| growth.older.contains(block))
        })
        .collect();
    let bytes = case.sum(&blocks);
    if !case.matters(bytes, 20, Bytes::mib(64)) {
        return Vec::new();
    }
    let Some(largest) = blocks.iter().copied().max_by_key(|it| case.life(*it).size) else {
        return Vec::new();
    };
    // Many that are small beside all of them were collected, one in each pass.
    if case.life(largest).size.0 * A_FEW < bytes.0 {
        return Vec::new();
    }
    let title = format!(
        "a whole volume or result stays on the device while {} forward passes of an evaluation read or fill a part of it each: {bytes}",
        during(largest)
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line(largest);
    res.step = case.step(moment);
    res.remedy = "keep the volume and the whole result on the CPU: move each window to the device, and its result back (`out[window] += model(x[window].cuda()).cpu()`). MONAI: `sliding_window_inference(..., sw_device=\"cuda\", device=\"cpu\")`".to_owned();
    res.frees(blocks);
    vec![res]
}

/// Whether the function that made it is the one that calls the model, in the next passes.
fn calls_the_model(case: &Case<'_>, passes: &[EventId], block: BlockId) -> bool {
    let run = case.run;
    let function = |stack: StackId| {
        let frame = run.trace.stacks.frame_of(run.stacks.user_frame(stack)?);
        Some((frame.file, frame.function))
    };
    let own = function(case.stack(block));
    let next = passes.partition_point(|it| *it <= case.life(block).alloc);
    let caller = |begin: &EventId| {
        let from = run.replay.blocks.partition_point(|it| it.alloc < *begin);
        let end = run.timeline.stretch_end(*begin);
        let made = (from..).map_while(|it| run.replay.blocks.get(it));
        let mut stacks = made
            .take_while(|it| it.alloc < end)
            .map(|it| run.device.events.stack(it.alloc.index()));
        stacks.find(|it| run.stacks.signs(*it).has(Signs::MODULE))
    };
    let mut calls = passes[next..].iter().take(PASSES).filter_map(caller);
    own.is_some() && calls.any(|it| function(run.stacks.outside(it)) == own)
}
