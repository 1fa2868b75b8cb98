//! The gradient of a large embedding table is as large as the table, although a batch uses few of its rows. The agent sees in autograd's
//! graph that nothing but embeddings uses the table, and how many rows they look up.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, as_rounded},
    prediction::timeline::Stage,
    recording::{Role, Table},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::DenseTable, find };

/// A batch that uses one row in so many at most leaves the gradient nearly empty.
const FEW_ROWS: u64 = 16;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let mut tables: BTreeMap<&str, &Table> = BTreeMap::new();
    for it in case.run.recording.notes.graphs.iter().flat_map(|it| &it.tables) {
        let known = tables.entry(&it.name).or_insert(it);
        if known.used < it.used {
            *known = it;
        }
    }
    tables.retain(|_, it| it.used * FEW_ROWS <= it.rows);
    let moment = case.moment();
    let is_gradient = |block: &BlockId| {
        let name = case.evidence.name(*block).filter(|it| it.role == Role::Gradient);
        name.is_some_and(|it| tables.contains_key(it.name))
    };
    let live = case.live_after(moment);
    let blocks: Vec<BlockId> = live.iter().map(|it| it.block).filter(is_gradient).collect();
    // The request that failed may be one.
    let asked = case.run.oom.map_or(Bytes::ZERO, |it| case.run.device.events.get(it.index()).size);
    let is_asked = asked != Bytes::ZERO
        && case.stage_then() == Stage::Backward
        && tables.values().any(|it| as_rounded(it.bytes) == as_rounded(asked));
    let asked = if is_asked { asked } else { Bytes::ZERO };
    let bytes = case.sum(&blocks) + asked;
    let Some(largest) = tables.values().max_by_key(|it| it.bytes) else { return Vec::new() };
    if !case.matters(bytes, 15, Bytes::mib(64)) {
        return Vec::new();
    }
    let rows = largest.rows;
    let used = if largest.is_of_bags {
        format!("joins some into {} bags", largest.used)
    } else {
        format!("uses at most {}", largest.used)
    };
    let title = match tables.len() {
        1 => format!(
            "the gradient of the embedding table `{}` is dense: {bytes} for {rows} rows, of which a batch {used}",
            largest.name
        ),
        n => format!(
            "the gradients of {n} embedding tables are dense: {bytes}; of the {rows} rows of `{}` a batch {used}",
            largest.name
        ),
    };
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.step = case.step(moment);
    res.at = blocks.first().and_then(|it| case.line_of_backward(*it));
    res.remedy = "make the table with `sparse=True` and give it an optimizer that takes sparse gradients (`torch.optim.SparseAdam`, `Adagrad`, or `SGD` without momentum); or make the table smaller (hashed ids, fewer columns)".to_owned();
    res.frees(blocks);
    vec![res]
}
