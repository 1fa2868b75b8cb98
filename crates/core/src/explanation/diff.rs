//! What differs between two recordings at their peaks, by line of code.

use std::collections::BTreeMap;

use crate::{
    findings::{Case, place},
    prediction::device_run::DeviceRun,
    recording::Recording,
    units::Bytes,
};

/// One line's part in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line, or what there is instead of one.
    pub at: String,
    /// What it is for.
    pub category: &'static str,
    /// Bytes and blocks at the peak of the first.
    pub before: (Bytes, u64),
    /// Bytes and blocks at the peak of the second.
    pub after: (Bytes, u64),
}

/// What differs at the peaks, the largest difference first.
pub fn difference(a: &Recording, b: &Recording) -> Vec<Difference> {
    let (a, b) = (by_line(a), by_line(b));
    let keys = a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>();
    let mut res: Vec<Difference> = keys
        .into_iter()
        .map(|key| Difference {
            at: key.0.clone(),
            category: key.1,
            before: a.get(key).copied().unwrap_or_default(),
            after: b.get(key).copied().unwrap_or_default(),
        })
        .filter(|it| it.before != it.after)
        .collect();
    res.sort_by_key(|it| (std::cmp::Reverse(it.before.0.0.abs_diff(it.after.0.0)), it.at.clone()));
    res
}

type Lines = BTreeMap<(String, &'static str), (Bytes, u64)>;

fn by_line(recording: &Recording) -> Lines {
    let mut res = Lines::new();
    for run in &DeviceRun::all(recording) {
        let evidence = run.evidence();
        let case = Case::new(run, &evidence);
        for it in &case.live {
            let at = case.line(it.block).map_or("no stack".to_owned(), |it| place(&it));
            let (bytes, blocks) =
                res.entry((at, crate::findings::category_name(it.category))).or_default();
            *bytes += it.size;
            *blocks += 1;
        }
        if case.window.bytes_before != Bytes::ZERO {
            let before = (case.window.bytes_before, case.window.blocks_before);
            res.insert(("before the recording".to_owned(), "unknown"), before);
        }
    }
    res
}
