//! Temporaries of an optimizer that works on all parameters at once (`foreach`).

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, blocks as in_words},
    prediction::{Category, stacks::Signs},
    recording::is_users_code,
    trace::StackId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::ForeachTemporaries, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    // Many blocks come from few stacks, which may be deep.
    let mut own: BTreeMap<StackId, bool> = BTreeMap::new();
    let temporary = case.live.iter().filter(|live| {
        let stack = case.stack(live.block);
        live.category == Category::Temporaries
            && case.signs(live.block).has(Signs::OPTIMIZER)
            && !*own.entry(stack).or_insert_with(|| is_own(case, stack))
    });
    let blocks: Vec<_> = temporary.collect();
    let bytes: Bytes = blocks.iter().map(|it| it.size).sum();
    if !case.matters(bytes, 4, Bytes::mib(16)) {
        return Vec::new();
    }
    let title = format!(
        "the optimizer's temporaries make the peak: {bytes}, because it updates all parameters at once (foreach)"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.frees(blocks.iter().map(|it| it.block).collect());
    res.at = blocks.first().and_then(|it| case.line(it.block));
    res.step = case.step(case.peak.event);
    res.evidence.push(format!(
        "{}, allocated inside step() and freed after it, live at the peak",
        in_words(blocks.len())
    ));
    res.remedy = "give the optimizer `fused=True` (no temporaries, and faster), or `foreach=False` (one parameter at a time, slower)".to_owned();
    vec![res]
}

/// Inside the `step` of an optimizer that the user wrote: it has neither `fused` nor `foreach`.
fn is_own(case: &Case<'_>, stack: StackId) -> bool {
    let trace = case.run.trace;
    let mut files = trace.frames(stack).map(|it| (trace.text(it.file), it.line));
    let first = files.find(|(file, line)| {
        is_users_code(file, *line) || file.replace('\\', "/").contains("/torch/optim/")
    });
    first.is_some_and(|(file, line)| is_users_code(file, line))
}
