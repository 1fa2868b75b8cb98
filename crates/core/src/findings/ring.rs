//! The recorder's ring was too small: what came first was overwritten.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::RingTooSmall, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    if !case.window.overwritten {
        return Vec::new();
    }
    let events = case.window.events;
    let title = format!(
        "the recorder overwrote all but the last {events} events, so earlier growth is unknown"
    );
    let mut res = RULE.finding(Weight::Fact, Bytes::ZERO, title);
    res.count = case.window.blocks_before;
    res.evidence.push(format!(
        "{} blocks ({}) have a call stack, but their events were overwritten",
        case.window.blocks_before, case.window.bytes_before
    ));
    if let Some(lost @ 1..) = case.window.overwritten_allocations {
        res.evidence.push(format!("{lost} allocations were overwritten"));
    }
    res.remedy = "torch.cuda.memory._record_memory_history(max_entries=2_000_000)".to_owned();
    vec![res]
}
