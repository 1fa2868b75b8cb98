//! What the peak is made of.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, place},
    prediction::{Category, origins},
    trace::BlockState,
    units::{Bytes, percent},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::PeakComposition, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    if case.peak.bytes == Bytes::ZERO {
        return Vec::new();
    }
    let mut parts: Vec<(Category, Bytes, u64)> =
        case.by_category().into_iter().map(|(it, (bytes, blocks))| (it, bytes, blocks)).collect();
    parts.sort_by_key(|(_, bytes, _)| Reverse(*bytes));
    let (blocks, most) = (case.live.len() as u64, parts.first().copied());
    let title = match most {
        Some((category, bytes, _)) if case.window.bytes_before < bytes => {
            format!(
                "the peak is {} allocated, mostly {}: {bytes}",
                case.peak.bytes,
                category.name()
            )
        }
        _ => format!(
            "the peak is {} allocated, {} of it before the recording began",
            case.peak.bytes, case.window.bytes_before
        ),
    };
    let mut res = RULE.finding(Weight::Fact, Bytes::ZERO, title);
    res.count = blocks;
    res.step = case.step(case.peak.event);
    for (category, bytes, blocks) in parts.iter().take(8) {
        let share = percent(bytes.share_of(case.peak.bytes));
        let blocks = if *blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
        res.evidence.push(format!("{bytes:>10} {share:>5}  {} ({blocks})", category.name()));
    }
    let run = case.run;
    let lines = origins::by_line(
        run.trace,
        run.device,
        (&run.replay, &run.timeline, &run.stacks),
        &case.live,
    );
    for it in lines.iter().take(5) {
        let at = match &it.at {
            crate::prediction::Origin::Line(line) => place(line),
            crate::prediction::Origin::BackwardOf(line) => format!("backward of {}", place(line)),
            crate::prediction::Origin::Backward => "backward".to_owned(),
            crate::prediction::Origin::NoStack => continue,
        };
        res.evidence.push(format!("{:>10} by {at}", it.bytes));
    }
    res.at = lines.iter().find_map(|share| match &share.at {
        crate::prediction::Origin::Line(line) => Some(line.clone()),
        _ => None,
    });
    if run.replay.blocks.is_empty() {
        held(case, &mut res);
    }
    vec![res]
}

/// Without events: what the final state has, by line.
fn held(case: &Case<'_>, finding: &mut Finding) {
    let mut lines: BTreeMap<String, Bytes> = BTreeMap::new();
    for it in case.run.device.blocks.iter().filter(|it| it.state == BlockState::Allocated) {
        let at = case.line_of(it.stack).map_or("no stack".to_owned(), |it| place(&it));
        *lines.entry(at).or_default() += it.size;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(at, bytes)| (Reverse(*bytes), at.clone()));
    finding.title = format!("{} were allocated at the time of the snapshot", case.peak.bytes);
    for (at, bytes) in lines.into_iter().take(8) {
        finding.evidence.push(format!("{bytes:>10} by {at}"));
    }
}
