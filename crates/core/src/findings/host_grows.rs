//! The host's memory grows with each step: tensors that were moved to the CPU and kept, a data set that remembers, workers
//! that copy what they only read.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::Counted,
    recording::{HostGrowth, HostOwner},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::HostGrows, find };

/// In fewer further steps the host's memory is full soon.
const SOON: u64 = 1000;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let notes = &case.run.recording.notes;
    let Some(growth) = notes.host_growth().filter(|_| case.is_first_device()) else {
        return Vec::new();
    };
    let HostGrowth { owner, each, from, to, at } = growth;
    let (whose, remedy) = match owner {
        HostOwner::Process => (
            "the process's own host memory (RAM)",
            "store numbers (`loss.item()`), or write collected data to a file and empty the list: a list on the CPU still grows. Limit the size of data set caches",
        ),
        HostOwner::Workers => (
            "the host memory (RAM) that its DataLoader workers allocate or change",
            "store samples in arrays or tensors instead of Python lists and dicts: a worker that only reads a Python object changes its reference counter, and so copies its memory page. Limit caches in `__getitem__`",
        ),
    };
    let title = format!(
        "{whose} grows by {each} a step, from {} after step {} to {} after step {}",
        from.1, from.0, to.1, to.0
    );
    // What is moved to the host on purpose, as the remedy of a leak does, is no problem where it is not about to be full.
    let is_full_soon = notes
        .host
        .and_then(|it| it.total)
        .is_none_or(|total| total.saturating_sub(to.1).0 / each.0.max(1) < SOON);
    // A program that trains nothing is there for the results that it collects.
    if at.is_some() && !is_full_soon && case.run.counted() == Counted::ForwardPasses {
        return Vec::new();
    }
    let weight = if at.is_some() && !is_full_soon { Weight::Chance } else { Weight::Problem };
    let mut res = RULE.finding(weight, to.1.saturating_sub(from.1), title);
    res.count = u64::from(to.0 - from.0);
    res.step = Some(from.0);
    if let Some(it) = &at {
        res.evidence.push(format!(
            "{} copies a similar amount from the device in each step (plimsoll infers that the copies stay allocated)",
            crate::findings::place(it)
        ));
    }
    if let Some(total) = notes.host.and_then(|it| it.total).filter(|it| to.1 < *it) {
        let more = total.saturating_sub(to.1).0 / each.0.max(1);
        res.evidence.push(format!(
            "the {total} of this machine or its container are full after {more} more steps"
        ));
    }
    res.at = at;
    res.remedy = remedy.to_owned();
    vec![res]
}
