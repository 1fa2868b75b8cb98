//! Free memory that PyTorch caches for streams that the script made one after the other: a block that was made on a stream is used again on that
//! stream only.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    trace::{BlockState, PoolId, StreamId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::IdleStreams, find };

/// One stream beside the main one copies batches, and another one may save results.
const LEAST_STREAMS: usize = 3;
/// Of the most that was reserved, in percent.
const LEAST_SHARE: u64 = 5;

fn find(case: &Case<'_>) -> Vec<Finding> {
    if case.run.recording.notes.engine.is_some() {
        return Vec::new();
    }
    let device = case.run.device;
    let mut streams: BTreeMap<StreamId, (Bytes, Bytes)> = BTreeMap::new();
    for segment in device.segments.iter().filter(|it| it.pool == PoolId(0)) {
        let blocks = &device.blocks[segment.blocks.start as usize..segment.blocks.end as usize];
        let free: Bytes =
            blocks.iter().filter(|it| it.state == BlockState::Free).map(|it| it.size).sum();
        let (held, idle) = streams.entry(segment.stream).or_default();
        *held += segment.size;
        *idle += free;
    }
    let Some(main) = streams.iter().max_by_key(|(_, (held, _))| *held).map(|it| *it.0) else {
        return Vec::new();
    };
    streams.retain(|stream, (_, idle)| *stream != main && *idle != Bytes::ZERO);
    let idle: Bytes = streams.values().map(|(_, it)| *it).sum();
    // What is free at the end may have been in use when most was reserved.
    let reserved = case.run.replay.peak_reserved.bytes;
    let idle = idle.min(reserved.saturating_sub(case.run.replay.peak_allocated.bytes));
    let is_much = Bytes::mib(64) <= idle && reserved.0 / 100 * LEAST_SHARE <= idle.0;
    if streams.len() < LEAST_STREAMS || !is_much {
        return Vec::new();
    }
    let title = format!(
        "PyTorch caches {idle} of free memory for {} streams, which no other stream uses",
        streams.len()
    );
    let mut res = RULE.finding(Weight::Chance, idle, title);
    res.count = streams.len() as u64;
    res.evidence.push("a block is used again on the stream that it was made on only".to_owned());
    res.remedy = "make each stream once, and use it again: `torch.cuda.Stream()` in a loop, or in the `__iter__` of a loader, makes another one each time, up to 32; or allocate on the main stream and only copy on the other one".to_owned();
    vec![res]
}
