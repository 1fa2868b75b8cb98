//! Windows that overlap, written out: `unfold` has each value once for each window that it lies in. The agent notes how large all
//! windows are; whatever has that size is made of them.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, as_rounded},
    prediction::Category,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::Unfolded, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let copies: BTreeMap<u64, u64> = (case.run.recording.notes.unfolded.iter())
        .map(|it| (as_rounded(it.bytes), it.copies))
        .collect();
    if copies.is_empty() {
        return Vec::new();
    }
    let copies_of = |block: &BlockId| copies.get(&as_rounded(case.life(*block).requested));
    let is_data = |category: Category| {
        matches!(
            category,
            Category::Activations
                | Category::Temporaries
                | Category::Inputs
                | Category::Retained
                | Category::Unknown
        )
    };
    let live = case.live_after(case.moment());
    let made = live.iter().filter(|it| is_data(it.category)).map(|it| it.block);
    let blocks: Vec<BlockId> = made.filter(|it| copies_of(it).is_some()).collect();
    // The request that failed may be one.
    let asked = case.run.oom.map_or(Bytes::ZERO, |it| case.run.device.events.get(it.index()).size);
    let of_asked = copies.get(&as_rounded(asked));
    let bytes = case.sum(&blocks) + of_asked.map_or(Bytes::ZERO, |_| asked);
    let most = blocks.iter().filter_map(copies_of).chain(of_asked).max();
    let Some(most) = most.filter(|_| case.matters(bytes, 15, Bytes::mib(64))) else {
        return Vec::new();
    };
    let tensors = match blocks.len() + usize::from(of_asked.is_some()) {
        1 => "a tensor is".to_owned(),
        n => format!("{n} tensors are"),
    };
    let title = format!(
        "`unfold` made windows that overlap, each value up to {most} times, and {tensors} as large as all of them: {bytes}"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&blocks);
    res.step = case.step(case.moment());
    res.remedy = "compute with the windows a part at a time, so that few are written out at once: a loop over the places in a window that adds up, a convolution, or fewer windows in each pass; cut windows of a data set in `__getitem__`. In training, `torch.utils.checkpoint` around the layer stores them for one layer at a time".to_owned();
    res.frees(blocks);
    vec![res]
}
