//! Several calls of a model whose graphs wait for one backward pass: losses that are summed before `backward()`, a rollout.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Kind, Rule, Weight},
    prediction::{Category, timeline::Stage},
    recording::CodeLine,
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::ManyPasses, find };

/// Two calls may be two views of one batch.
const LEAST_PASSES: usize = 3;

fn find(case: &Case<'_>) -> Vec<Finding> {
    of_one_line(case).into_iter().collect()
}

fn of_one_line(case: &Case<'_>) -> Option<Finding> {
    let timeline = &case.run.timeline;
    if !timeline.marked {
        return None;
    }
    let moment = case.moment();
    // What the backward pass at that moment goes back through, or the next one will.
    let backwards: Vec<(EventId, EventId)> = (timeline.stretches())
        .filter(|(begin, _, stage)| *stage == Stage::Backward && *begin <= moment)
        .map(|(begin, end, _)| (begin, end))
        .collect();
    let before = backwards.iter().rev().map(|it| it.1).find(|end| *end <= moment);
    // An inner loop goes back by `torch.autograd.grad`, and all of its graphs stay.
    let awaited = case.growth.iter().filter(|it| it.kind == Kind::GraphAwaited);
    let awaited = awaited.map(|it| it.since).min();
    let since = awaited.or(before).unwrap_or(EventId(0));
    let passes: Vec<EventId> =
        timeline.starts(Stage::Forward).filter(|it| since <= *it && *it <= moment).collect();
    let mut by_line: BTreeMap<CodeLine, BTreeMap<usize, Vec<BlockId>>> = BTreeMap::new();
    for it in case.live_after(moment) {
        let made = case.life(it.block).alloc;
        let is_of_pass = matches!(timeline.stage(made), Stage::Forward | Stage::Loss)
            && since <= made
            && matches!(
                it.category,
                Category::Activations | Category::Temporaries | Category::Unknown
            );
        let pass = passes.partition_point(|begin| *begin <= made);
        if let Some(line) = case.line_outside(case.stack(it.block)).filter(|_| is_of_pass) {
            by_line.entry(line).or_default().entry(pass).or_default().push(it.block);
        }
    }
    let sum = |it: &BTreeMap<usize, Vec<BlockId>>| -> Bytes {
        it.values().map(|blocks| case.sum(blocks)).sum()
    };
    let (line, by_pass) = by_line.into_iter().max_by_key(|(_, it)| sum(it))?;
    let most = by_pass.values().map(|it| case.sum(it)).max()?;
    let whole = by_pass.values().filter(|it| most.0 / 2 <= case.sum(it).0).count();
    let bytes = sum(&by_pass);
    if whole < LEAST_PASSES || !case.matters(bytes, 30, Bytes::mib(64)) {
        return None;
    }
    let title = format!("{whole} calls of a model at one line wait for one backward pass: {bytes}");
    let saved = bytes.saturating_sub(most);
    let mut res = RULE.finding(Weight::Chance, saved, title);
    res.at = Some(line);
    res.step = case.step(moment);
    res.remedy = "if no loss goes back through these calls (a rollout, targets, features), make them under `torch.no_grad()`. If the script only sums their losses, call `backward()` on each of them: gradients add up, and one graph is allocated at a time. If each call needs the result of the one before, put `torch.utils.checkpoint` around each, or make fewer".to_owned();
    // All but those of one call.
    let newest = by_pass.keys().next_back().copied();
    res.show(by_pass.values().flatten().copied().collect());
    res.blocks =
        by_pass.into_iter().filter(|(pass, _)| Some(*pass) != newest).flat_map(|it| it.1).collect();
    Some(res)
}
