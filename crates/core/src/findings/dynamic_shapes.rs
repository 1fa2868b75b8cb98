//! Steps of different sizes: the largest input makes the peak.

use std::collections::BTreeMap;

use crate::{
    findings::{Case, Finding, Rule, Weight},
    prediction::{steps, timeline::Stage},
    trace::StackId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule {
    code: "inputs/dynamic-shapes",
    title: "the largest input makes the peak",
    page: include_str!("dynamic_shapes.md"),
    find,
};

/// Steps that say something about the others.
const LEAST: usize = 4;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let run = case.run;
    let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
    if curve.steps.len() < LEAST || case.growth.iter().any(|it| Bytes::mib(1) < it.bytes) {
        return Vec::new();
    }
    let before = case.window.bytes_before;
    // The first step has no optimizer state yet, the last may have run out.
    let mut peaks: Vec<Bytes> = curve.steps[1..].iter().map(|it| it.allocated).collect();
    peaks.sort_unstable();
    let usual = peaks[peaks.len() / 2] + before;
    let Some(largest) = curve.steps.iter().max_by_key(|it| it.allocated) else { return Vec::new() };
    let most = largest.allocated + before;
    let more = most.saturating_sub(usual);
    if !case.matters(more, 8, Bytes::mib(16)) {
        return Vec::new();
    }
    let (stacks, varied) = varying_stacks(case);
    if stacks < 4 || varied * 2 < stacks {
        return Vec::new();
    }
    let title = format!(
        "step {} took {most}, a usual step {usual}: inputs differ in size, and the largest makes the peak",
        largest.step
    );
    let mut res = RULE.finding(Weight::Chance, more, title);
    res.step = Some(largest.step);
    res.count = curve.steps.len() as u64;
    res.evidence.push(format!(
        "{varied} of {stacks} places of the forward pass asked for another size in another step"
    ));
    res.remedy = "sort batches by length or bound tokens per batch instead of sequences; truncate or bucket the longest; run the largest batch first, so that it fails at once".to_owned();
    vec![res]
}

/// Places in the forward pass that are asked from in several steps, and how many of them vary in size.
fn varying_stacks(case: &Case<'_>) -> (usize, usize) {
    let timeline = &case.run.timeline;
    // The first request of each step at each place.
    let mut sizes: BTreeMap<StackId, (u32, Vec<Bytes>)> = BTreeMap::new();
    for life in case.run.replay.blocks.iter() {
        let stack = case.run.device.events.get(life.alloc.index()).stack;
        if stack == StackId::EMPTY || timeline.stage(life.alloc) != Stage::Forward {
            continue;
        }
        let step = timeline.steps_before(life.alloc) + 1;
        let (last, sizes) = sizes.entry(stack).or_default();
        if *last != step && sizes.len() < 64 {
            *last = step;
            sizes.push(life.requested);
        }
    }
    let several = sizes.values().filter(|(_, it)| LEAST <= it.len());
    let varied = several.clone().filter(|(_, it)| it.iter().any(|size| *size != it[0])).count();
    (several.count(), varied)
}
