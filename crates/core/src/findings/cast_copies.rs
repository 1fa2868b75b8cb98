//! A model in 32 bits that only answers, under autocast: each of its weights is there a second time, as the copy in 16 bits that autocast stores
//! until its block ends.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Kind, Rule, Weight, as_rounded},
    prediction::{Category, stacks::Signs, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::CastCopies, find };

/// A few blocks may be half as large as a weight by chance.
const LEAST: usize = 8;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let open: Vec<Finding> = of_an_open_block(case).collect();
    if !open.is_empty() {
        return open;
    }
    if case.stage_then() != Stage::Evaluation || case.run.timeline.has(Stage::Backward) {
        return Vec::new();
    }
    let live = case.live_after(case.moment());
    // By the size of a copy: how many weights there are, and what passes made that is as large.
    let mut weights: BTreeMap<u64, (usize, Bytes)> = BTreeMap::new();
    for it in live.iter().filter(|it| it.category == Category::Parameters) {
        let (count, bytes) =
            weights.entry(as_rounded(Bytes(case.life(it.block).requested.0 / 2))).or_default();
        *count += 1;
        *bytes += it.size;
    }
    let of_pass = |it: &BlockId| {
        case.stage(*it) == Stage::Evaluation
            && case.evidence.name(*it).is_none()
            && case.signs(*it).has(Signs::MODULE)
    };
    let made: Vec<BlockId> = live.iter().map(|it| it.block).filter(of_pass).collect();
    let mut by_size: BTreeMap<u64, Vec<BlockId>> = BTreeMap::new();
    for it in &made {
        by_size.entry(as_rounded(case.life(*it).requested)).or_default().push(*it);
    }
    let mut copies = Vec::new();
    for (size, blocks) in by_size {
        let (count, _) = weights.get(&size).copied().unwrap_or_default();
        copies.extend(blocks.into_iter().take(count));
    }
    let bytes = case.sum(&copies);
    // Beside what a pass works on, nearly all that it keeps are copies.
    let are_most = LEAST <= copies.len() && made.len() * 3 <= copies.len() * 4;
    if !are_most || !case.matters(bytes, 10, Bytes::mib(64)) {
        return Vec::new();
    }
    let all: Bytes = weights.values().map(|(_, bytes)| *bytes).sum();
    let title = format!(
        "autocast stores a copy in 16 bits of each weight in 32 bits: {bytes} of copies beside {all} of weights"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&copies);
    res.step = case.step(case.moment());
    res.evidence.push(format!("{} of half the size of a weight", super::blocks(copies.len())));
    res.remedy = "load the model in 16 bits (`dtype=torch.bfloat16` in `from_pretrained`, or `model.to(torch.bfloat16)` before it goes to the device), and leave out `torch.autocast`: it then needs half of its weights' memory, and no copies".to_owned();
    res.frees(copies);
    vec![res]
}

/// Where the script enters autocast in each pass and never leaves it.
fn of_an_open_block(case: &Case<'_>) -> impl Iterator<Item = Finding> {
    case.growth.iter().filter(|it| it.kind == Kind::Casts).map(|growth| {
        let title = format!(
            "the script enters autocast in each pass and never exits it, so autocast stores every copy of weights that it has made, and the weights with them: {} of copies",
            growth.bytes
        );
        let mut res = RULE.finding(Weight::Problem, growth.bytes, title);
        res.remedy = "write `with torch.autocast(...):` around the pass, where the script calls `__enter__()`: the copies go when the block ends".to_owned();
        growth.tell(case, &mut res);
        res
    })
}
