//! Private pools (CUDA graphs, `MemPool`) that hold memory nobody uses and nobody else may use.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    trace::{BlockState, PoolId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::IdlePools, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    // An engine plans its graphs itself, and nothing that people can change follows.
    if case.run.recording.notes.engine.is_some() {
        return Vec::new();
    }
    let device = case.run.device;
    let mut pools: BTreeMap<PoolId, (Bytes, Bytes)> = BTreeMap::new();
    for segment in device.segments.iter().filter(|it| it.pool != PoolId(0)) {
        let blocks = &device.blocks[segment.blocks.start as usize..segment.blocks.end as usize];
        let free: Bytes =
            blocks.iter().filter(|it| it.state == BlockState::Free).map(|it| it.size).sum();
        let (held, idle) = pools.entry(segment.pool).or_default();
        *held += segment.size;
        *idle += free;
    }
    let held: Bytes = pools.values().map(|(it, _)| *it).sum();
    let idle: Bytes = pools.values().map(|(_, it)| *it).sum();
    if idle < Bytes::mib(8) {
        return Vec::new();
    }
    let title = format!(
        "private pools hold free memory that no other request can use: {idle} of {held} at the end"
    );
    let mut res = RULE.finding(Weight::Chance, idle, title);
    res.count = pools.len() as u64;
    for (pool, (held, idle)) in pools.iter().take(8) {
        let (a, b) = case.run.trace.pools.get(pool.index()).copied().unwrap_or_default();
        res.evidence.push(format!("pool ({a}, {b}): {held} held, {idle} free"));
    }
    if pools.keys().any(|it| case.run.trace.pools.get(it.index()).is_some_and(|it| it.0 == 0)) {
        res.evidence.push("a MemPool with use_on_oom=True serves the default pool before that fails; recordings do not show the option".to_owned());
    }
    res.remedy = "share one pool between graphs (`torch.cuda.graph(g, pool=...)`), capture fewer sizes, delete the graph or MemPool when it is done".to_owned();
    vec![res]
}
