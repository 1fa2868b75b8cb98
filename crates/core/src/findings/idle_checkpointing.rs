//! Activation checkpointing that is on and does nothing: the model is trained in evaluation mode. The agent sees both, that
//! no layer was checkpointed, and that a backward pass follows.

use crate::{
    codes::{ProblemCode, RemarkCode},
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::IdleCheckpointing, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let mut remarks = case.run.recording.notes.remarks.iter();
    if !remarks.any(|it| it.code == RemarkCode::IdleCheckpointing) {
        return Vec::new();
    }
    let moment = case.run.oom.unwrap_or(case.peak.event);
    let blocks: Vec<BlockId> = (case.live_after(moment).iter())
        .filter(|it| it.category == Category::Activations && case.stage(it.block) == Stage::Forward)
        .map(|it| it.block)
        .collect();
    let bytes: Bytes = blocks.iter().map(|it| case.life(*it).size).sum();
    if !case.matters(bytes, 10, Bytes::mib(32)) {
        return Vec::new();
    }
    let title = format!(
        "activation checkpointing is on, but the model trains in evaluation mode, so it has no effect: {bytes} of activations"
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.count = blocks.len() as u64;
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line_outside(case.stack(it)));
    res.remedy = "call `model.train()` before the training loop, and after each evaluation: the layers checkpoint in training mode only. Checkpointing keeps the inputs of the layers and the activations of one".to_owned();
    vec![res]
}
