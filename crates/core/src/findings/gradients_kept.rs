//! Gradients of the step before that are still there at the peak of the next forward pass.

use std::collections::BTreeSet;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::GradientsKept, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let stage = case.run.timeline.stage(case.peak.event);
    // In the backward pass new gradients take the place of activations; old ones do not add to a peak
    // at its end, but to one at its beginning.
    if !matches!(stage, Stage::Forward | Stage::Loss | Stage::Backward | Stage::Evaluation) {
        return Vec::new();
    }
    let now = case.run.timeline.steps_before(case.peak.event);
    // What somebody collects step by step is told as that: `zero_grad` lets go of one step's.
    let collected: BTreeSet<BlockId> =
        case.growth.iter().flat_map(|it| it.older.iter().copied()).collect();
    let old = case.live.iter().filter(|live| {
        live.category == Category::Gradients
            && case.run.timeline.steps_before(case.life(live.block).alloc) < now
            && !collected.contains(&live.block)
    });
    let blocks: Vec<BlockId> = old.map(|it| it.block).collect();
    let mut res = RULE.finding(Weight::Chance, Bytes::ZERO, "");
    if !tell(case, &mut res, blocks) {
        return Vec::new();
    }
    res.step = case.step(case.peak.event);
    // Without an optimizer they are in variables, as what `torch.autograd.grad` returns.
    let end = case.run.recording.notes.end.as_ref();
    res.remedy = if end.is_none_or(|it| it.has_optimizer) {
        "call `optimizer.zero_grad(set_to_none=True)` (the default since torch 2.0) right after `optimizer.step()`, before the next forward pass"
    } else {
        "delete the variables that hold them before the next forward pass (`del grads`): a variable of a loop keeps its value until it gets the next one. Gradients in `.grad`: `model.zero_grad()`"
    }
    .to_owned();
    vec![res]
}

/// The same without the gradients of models that are over; false if the rest is little.
pub(super) fn without(case: &Case<'_>, it: &mut Finding, over: &BTreeSet<BlockId>) -> bool {
    let n = it.blocks.len();
    let rest: Vec<BlockId> = it.blocks.iter().copied().filter(|it| !over.contains(it)).collect();
    rest.len() == n || tell(case, it, rest)
}

/// Says it of these; false if they are little.
fn tell(case: &Case<'_>, it: &mut Finding, blocks: Vec<BlockId>) -> bool {
    let (stage, bytes) = (case.run.timeline.stage(case.peak.event), case.sum(&blocks));
    let now = case.run.timeline.steps_before(case.peak.event);
    it.title = format!(
        "gradients of an earlier step are still allocated at the peak, in the {}: {bytes}",
        word(stage)
    );
    it.evidence = vec![format!("{} gradients made before step {}", blocks.len(), now + 1)];
    // In the backward pass they would be made again: half of them, at the most, are there too early.
    it.bytes = if stage == Stage::Backward { Bytes(bytes.0 / 2) } else { bytes };
    if stage == Stage::Backward {
        it.evidence.push("the peak is in the backward pass, which allocates new gradients one by one: the saving depends on where the peak then is".to_owned());
    }
    it.frees(blocks);
    case.matters(bytes, 3, Bytes::mib(8))
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Backward => "backward pass",
        Stage::Evaluation => "evaluation",
        _ => "forward pass",
    }
}
