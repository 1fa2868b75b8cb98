//! The process came near to all that the machine has, or that its container is allowed.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::HostNearlyFull, find };

/// From so much of it on, in percent.
const FULL: u64 = 85;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let note = case.run.recording.notes.host.filter(|_| case.is_first_device());
    let Some((note, peak, total)) = note.and_then(|it| Some((it, it.peak?, it.total?))) else {
        return Vec::new();
    };
    if total == Bytes::ZERO || peak.0 < total.0 / 100 * FULL {
        return Vec::new();
    }
    let title = format!(
        "the host's memory (RAM) is nearly full: the process used up to {peak} of the {total} of the machine or its container"
    );
    let mut res = RULE.finding(Weight::Problem, peak, title);
    if let Some(pinned) = note.pinned.filter(|it| Bytes::mib(256) <= *it) {
        res.evidence.push(format!("{pinned} of that are pinned and cannot be swapped out"));
    }
    res.remedy = "use fewer DataLoader workers, a smaller `prefetch_factor`, no `pin_memory`; load weights with `torch.load(..., mmap=True)`; offload less to the CPU. When it is full, the system ends the process without a message from PyTorch".to_owned();
    vec![res]
}
