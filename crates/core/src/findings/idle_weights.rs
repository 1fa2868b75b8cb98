//! Weights on the device that no step uses: a text encoder whose embeddings were computed before the training, an autoencoder of another stage.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, timeline::Stage},
    recording::Role,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::IdleWeights, find };

/// Whether a line of the loop that ran out of memory made `block`, or called what did.
fn is_of_the_loop(case: &Case<'_>, block: BlockId) -> bool {
    let run = case.run;
    let around = run.recording.notes.ooms.last().and_then(|it| it.around.as_ref());
    let Some(around) = around.filter(|_| run.oom.is_some()) else { return false };
    let mut frames = run.trace.stacks.frame_ids(case.stack(block));
    frames.any(|it| {
        let frame = run.trace.stacks.frame_of(it);
        around.has(run.trace.text(frame.file), frame.line)
    })
}

fn find(case: &Case<'_>) -> Vec<Finding> {
    let run = case.run;
    // A whole step has to be seen, before the moment that counts.
    let forward = run.timeline.starts(Stage::Forward).next();
    let backward = run.timeline.starts(Stage::Backward).next();
    let (Some(forward), Some(backward)) = (forward, backward) else { return Vec::new() };
    if !run.timeline.marked || backward < forward || case.moment() < backward {
        return Vec::new();
    }
    let root = |path: &'_ str| path.split('.').next().unwrap_or_default().to_owned();
    let (mut before, mut used) = (BTreeSet::new(), BTreeSet::new());
    for (block, life) in (0..).map(BlockId).zip(&run.replay.blocks) {
        if let Some(path) = case.module(block) {
            // What the loop of the steps called, each step calls.
            let is_before = life.alloc < forward && !is_of_the_loop(case, block);
            if is_before { &mut before } else { &mut used }.insert(root(path));
        }
    }
    // By the class of the model, and by its part.
    let mut idle: BTreeMap<&str, BTreeMap<String, Vec<BlockId>>> = BTreeMap::new();
    for it in case.live_after(case.moment()) {
        let Some(name) = case.evidence.name(it.block) else { continue };
        // Of a weight that a function reads by its name no module is called.
        if let Some((first, _)) = name.name.split_once('.') {
            if matches!(name.role, Role::Gradient | Role::OptimizerState) {
                used.insert(first.to_owned());
            } else if it.category == Category::Parameters {
                let parts = idle.entry(name.model).or_default();
                parts.entry(first.to_owned()).or_default().push(it.block);
            }
        }
    }
    let mut found: Vec<(String, Vec<BlockId>)> = Vec::new();
    for (model, mut parts) in idle {
        parts.retain(|it, _| before.contains(it) && !used.contains(it));
        // The parts of a list of layers have numbers.
        let name = match parts.keys().next().filter(|_| parts.len() == 1) {
            Some(it) => format!("`{it}`"),
            None => format!("the network of class `{model}`"),
        };
        found.push((name, parts.into_values().flatten().collect()));
    }
    let Some((name, blocks)) = found.into_iter().max_by_key(|it| case.sum(&it.1)) else {
        return Vec::new();
    };
    let bytes = case.sum(&blocks);
    if used.is_empty() || !case.matters(bytes, 5, Bytes::mib(64)) {
        return Vec::new();
    }
    let title = format!(
        "{name} was called before the training, and no step uses it: {bytes} of weights on the device"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&blocks);
    res.step = case.step(case.moment());
    res.remedy = "move the network to the CPU (`network.cpu()`), or delete it, once what it computes for the training is there. If something calls it later, move it back then".to_owned();
    res.frees(blocks);
    vec![res]
}
