//! Memory of the process was in the host's swap file.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::HostSwaps, find };

/// Less is what nobody has used for long.
const LEAST: Bytes = Bytes::mib(256);

fn find(case: &Case<'_>) -> Vec<Finding> {
    let note = case.run.recording.notes.host.filter(|_| case.is_first_device());
    let Some((note, swapped)) = note.and_then(|it| Some((it, it.swapped?))) else {
        return Vec::new();
    };
    if swapped < LEAST {
        return Vec::new();
    }
    let title = format!(
        "the process is partly in the swap file, and each access waits for the disk: {swapped} of its host memory (RAM) at the end"
    );
    let mut res = RULE.finding(Weight::Problem, swapped, title);
    if let (Some(peak), Some(total)) = (note.peak, note.total) {
        res.evidence.push(format!("it used up to {peak} of {total} RAM"));
    }
    if let Some(pinned) = note.pinned.filter(|it| LEAST <= *it) {
        res.evidence.push(format!("{pinned} are pinned and cannot be swapped out"));
    }
    res.remedy = "offload less to the CPU; use fewer DataLoader workers, a smaller `prefetch_factor`, no `pin_memory`; or a machine with more RAM".to_owned();
    vec![res]
}
