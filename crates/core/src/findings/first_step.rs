//! The first step against the later ones: what arrives after it is no leak.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::timeline::Stage,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::FirstAgainstLater, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let run = case.run;
    // Without training no step has an optimizer's state to bring.
    if case.window.began_late || case.window.overwritten || !run.timeline.has(Stage::Backward) {
        return Vec::new();
    }
    let curve = case.curve();
    let [first, second, rest @ ..] = curve.steps.as_slice() else { return Vec::new() };
    // The optimizer's first step, cut short, is not a second one.
    if run.oom.is_some() && rest.is_empty() && !run.timeline.marked {
        return Vec::new();
    }
    let more = second.allocated.saturating_sub(first.allocated);
    let later = rest.iter().map(|it| it.allocated).max().unwrap_or(second.allocated);
    // It arrives once, with the second step.
    if !case.matters(more, 5, Bytes::mib(8)) || second.allocated.0 / 100 * 108 < later.0 {
        return Vec::new();
    }
    let title = format!(
        "later steps need {more} more than the first ({}, then {})",
        first.allocated, second.allocated
    );
    let mut res = RULE.finding(Weight::Fact, more, title);
    res.step = Some(2);
    res.evidence.push(format!("kept after step 1: {}", first.allocated_after));
    res.remedy = "that is optimizer state and retained gradients, not a leak: a run that runs out in its second step lacks up to this much".to_owned();
    vec![res]
}
