//! The same weights are cast to another type again in each call of a layer: autocast without its cache, autocast that is entered anew
//! around each call, a cast by hand. Each copy is stored for the backward pass. The agent counts the casts in autograd's graph.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, as_rounded},
    recording::Recast,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::RepeatedCasts, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let notes = &case.run.recording.notes;
    let mut weights: BTreeMap<&str, &Recast> = BTreeMap::new();
    for it in notes.graphs.iter().flat_map(|it| &it.casts) {
        let known = weights.entry(&it.name).or_insert(it);
        if known.copies < it.copies {
            *known = it;
        }
    }
    // By size: how many weights, and how many copies of them.
    let mut by_size: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for it in weights.values() {
        let (weights, copies) = by_size.entry(as_rounded(it.bytes)).or_default();
        *weights += 1;
        *copies += usize::try_from(it.copies).unwrap_or(usize::MAX);
    }
    let made = case.made_by_passes();
    let mut spare: Vec<BlockId> = Vec::new();
    let mut copied = 0;
    for (size, (weights, copies)) in by_size {
        let all = made.get(&size).map_or(&[][..], Vec::as_slice);
        // One copy of each weight is needed.
        let live = all.len().min(copies);
        if weights < live {
            spare.extend_from_slice(&all[weights..live]);
            copied += weights;
        }
    }
    let bytes = case.sum(&spare);
    if !case.matters(bytes, 10, Bytes::mib(32)) {
        return Vec::new();
    }
    let title = format!(
        "the same weights are cast to another type again and again: {bytes} for {} copies of {copied} weights",
        spare.len()
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.at = case.line_of_most(&spare);
    res.step = case.step(case.moment());
    if let Some(most) = weights.values().max_by_key(|it| it.bytes.0 * it.copies) {
        res.evidence.push(format!(
            "`{}` was cast {} times in one forward pass, {} each",
            most.name, most.copies, most.bytes
        ));
    }
    res.remedy = "enter `torch.autocast` once around the whole forward pass, and leave out `cache_enabled=False`: it then casts each weight once. Weights that your code casts itself (`weight.to(dtype)`, `.half()`): cast them once, before the loop".to_owned();
    res.frees(spare);
    vec![res]
}
