//! Blocks that were given back but wait for another stream: `record_stream`.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::PendingFrees, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let bytes = case.pending_at_peak;
    if !case.matters(bytes, 1, Bytes::mib(4)) {
        return Vec::new();
    }
    let title =
        format!("freed blocks wait for another stream at the peak: {bytes} cannot be reused yet");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.step = case.step(case.peak.event);
    res.evidence.push("free_requested without free_completed at that time (record_stream, or tensors of a side stream)".to_owned());
    res.remedy = "let the side stream run fewer steps ahead (prefetch one batch), or copy into one fixed buffer; for FSDP: `limit_all_gathers=True`".to_owned();
    vec![res]
}
