//! An evaluation gives its model much more at once than any step of the training: the whole validation set, all rays of a picture.
//! The agent compares what models are given; here is decided whether that makes the peak.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::timeline::Stage,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::LargeEvaluation, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let batches = &case.run.recording.notes.large_batches;
    let Some(batch) = batches.iter().max_by_key(|it| it.elements) else { return Vec::new() };
    let (moment, timeline) = (case.moment(), &case.run.timeline);
    if case.stage_then() != Stage::Evaluation {
        return Vec::new();
    }
    let levels = case.run.replay.levels(&case.run.device.events);
    let before = levels.take_while(|(id, _)| *id < moment);
    let others = before.filter(|(id, _)| timeline.stage(*id) != Stage::Evaluation);
    let others = others.map(|(_, it)| it.allocated).max().unwrap_or_default();
    let asked = case.run.oom.map_or(Bytes::ZERO, |it| case.run.device.events.get(it.index()).size);
    // The training decides where it needs nearly as much.
    let all = case.peak.bytes + asked;
    if all.0 / 3 * 2 < others.0 {
        return Vec::new();
    }
    let live = case.live_after(moment);
    let is_of_pass =
        |it: &BlockId| case.stage(*it) == Stage::Evaluation && case.evidence.name(*it).is_none();
    let blocks: Vec<BlockId> = live.iter().map(|it| it.block).filter(is_of_pass).collect();
    let bytes = case.sum(&blocks);
    if !case.matters(bytes, 20, Bytes::mib(64)) {
        return Vec::new();
    }
    let (of_this, of_training) = if batch.rows_in_training * 4 <= batch.rows {
        (format!("{} rows", batch.rows), format!("{}", batch.rows_in_training))
    } else {
        (format!("{} numbers", batch.elements), format!("{}", batch.elements_in_training))
    };
    let title = format!(
        "an evaluation gives the model {of_this} in one forward pass, the training {of_training}: {bytes}"
    );
    let mut res = RULE.finding(Weight::Chance, bytes.min(all.saturating_sub(others)), title);
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line_outside(case.stack(it)));
    res.step = case.step(moment);
    res.evidence.push(format!("outside of evaluations at most {others} are allocated"));
    // Rows that are larger, and not more of them.
    let are_larger = batch.rows <= batch.rows_in_training;
    res.remedy = if are_larger { "cut what one pass gets into parts as large as those of the training (tiles, windows, pieces), and join their results, on the CPU where they are many" } else { "evaluate in batches as large as those of the training (a `DataLoader` with `batch_size`, or `for part in x.split(n)`), and move the result of each to the CPU" }.to_owned();
    res.frees(blocks);
    vec![res]
}
