//! Activation checkpointing that is on and does nothing: the model is trained in evaluation mode. The agent sees both, that
//! no layer was checkpointed, and that a backward pass follows. Or one checkpoint is around many layers, whose activations its
//! backward pass makes again all at once.

use std::collections::BTreeMap;

use crate::{
    codes::{ProblemCode, RemarkCode},
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, stacks::Signs, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::IdleCheckpointing, find };

/// Layers of one checkpoint that are there at the same time: a block may have two or three.
const LEAST_LAYERS: usize = 4;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let mut remarks = case.run.recording.notes.remarks.iter();
    if !remarks.any(|it| it.code == RemarkCode::IdleCheckpointing) {
        return of_many_layers(case).into_iter().collect();
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

/// What one backward pass of a checkpoint has made again, by layer.
fn of_many_layers(case: &Case<'_>) -> Option<Finding> {
    let mut by_layer: BTreeMap<String, Vec<BlockId>> = BTreeMap::new();
    for it in case.live_after(case.moment()) {
        let is_made_again =
            case.signs(it.block).has(Signs::RECOMPUTE) && it.category == Category::Activations;
        if let Some(module) = case.module(it.block).filter(|_| is_made_again) {
            by_layer.entry(layer(module)).or_default().push(it.block);
        }
    }
    let most = by_layer.values().map(|it| case.sum(it)).max()?;
    // Embeddings and heads are no layers.
    by_layer.retain(|_, it| most.0 / 4 <= case.sum(it).0);
    let layers = by_layer.len();
    let blocks: Vec<BlockId> = by_layer.into_values().skip(1).flatten().collect();
    let bytes = case.sum(&blocks);
    if layers < LEAST_LAYERS || !case.matters(bytes, 40, Bytes::mib(64)) {
        return None;
    }
    let title = format!(
        "one checkpoint is around many layers, and its backward pass makes the activations of {layers} of them again at once: {}",
        bytes + most
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    // What is made again has no line of the script's; the forward pass before it has.
    let module = case.module(blocks[0]);
    let of_forward = (0..).map(BlockId).take(case.run.replay.blocks.len()).find(|it| {
        case.stage(*it) == Stage::Forward
            && case.module(*it) == module
            && !case.signs(*it).has(Signs::RECOMPUTE)
    });
    res.at = of_forward.and_then(|it| case.line_outside(case.stack(it)));
    res.step = case.step(case.moment());
    res.remedy = "checkpoint each layer by itself (`for layer in layers: x = checkpoint(layer, x, use_reentrant=False)`): then the inputs of all layers and the activations of one are there. Of transformers, `model.gradient_checkpointing_enable()` does that".to_owned();
    res.frees(blocks);
    Some(res)
}

/// The part of a module's path up to its first number: `encoder.layers.3` of `encoder.layers.3.norm`.
fn layer(module: &str) -> String {
    let mut parts = Vec::new();
    for it in module.split('.') {
        parts.push(it);
        if it.bytes().all(|it| it.is_ascii_digit()) {
            break;
        }
    }
    parts.join(".")
}
