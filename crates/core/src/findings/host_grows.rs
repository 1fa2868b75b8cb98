//! The host's memory grows with each step: tensors that were moved to the CPU and kept, a data set that remembers, workers
//! that copy what they only read.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    recording::{HostGrowth, HostOwner},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::HostGrows, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let notes = &case.run.recording.notes;
    let Some(growth) = notes.host_growth().filter(|_| case.is_first_device()) else {
        return Vec::new();
    };
    let HostGrowth { owner, each, from, to, at } = growth;
    let (whose, remedy) = match owner {
        HostOwner::Process => (
            "the process's own memory",
            "keep numbers (`loss.item()`), or write what is collected to a file and begin anew; a list that moved to the CPU still grows. Give caches of a data set a bound",
        ),
        HostOwner::Workers => (
            "the memory that its DataLoader workers have made or changed",
            "keep samples in arrays or tensors instead of lists and dicts of Python: a worker that only looks at a Python object changes its counter, and so copies the page that it lies in. Give caches in `__getitem__` a bound",
        ),
    };
    let title = format!(
        "{whose} on the host (RAM) grows by {each} a step, from {} after step {} to {} after step {}",
        from.1, from.0, to.1, to.0
    );
    let mut res = RULE.finding(Weight::Problem, to.1.saturating_sub(from.1), title);
    res.count = u64::from(to.0 - from.0);
    res.step = Some(from.0);
    if let Some(it) = &at {
        res.evidence.push(format!(
            "{} copies about as much from the device in each step (inferred: nothing says that it is kept)",
            crate::findings::place(it)
        ));
    }
    if let Some(total) = notes.host.and_then(|it| it.total).filter(|it| to.1 < *it) {
        let more = total.saturating_sub(to.1).0 / each.0.max(1);
        res.evidence.push(format!(
            "the {total} that this machine has, or that the container is allowed, are full after {more} more steps"
        ));
    }
    res.at = at;
    res.remedy = remedy.to_owned();
    vec![res]
}
