//! The largest value of a number in the command that fits: run and seen to fit, and the next one seen not to.

use super::{
    by_remedies::{WithRemedies, by_remedies},
    dialogue::Search,
    rules::Rules,
    values::{Range, ValueRun, Values, WithLess},
};
use crate::plan::{Plan, largest::Tried};

/// What came of a search for a value.
#[derive(Clone, Debug)]
pub struct FoundValue {
    /// The value; none if nothing fits.
    pub found: Option<u64>,
    /// The value above, and what came of it; none at the end of the range.
    pub above: Option<(u64, Tried)>,
    /// Values that ran out of memory although a larger one fits.
    pub out_of_order: Vec<u64>,
    /// Only multiples of this were looked at, because others do not run.
    pub multiples_of: Option<u64>,
    /// Whether the value gets through with a little less memory, too; asked where it went through retries.
    pub with_less: Option<WithLess>,
    /// The largest value with each set of remedies, the script as it is first; empty unless asked for.
    pub by_remedies: Vec<WithRemedies>,
    /// Somebody stopped the search before its end.
    pub interrupted: bool,
    /// Somebody stopped after it, before every set of remedies had its row.
    pub rows_interrupted: bool,
    /// Every run of the script as it is, in order.
    pub runs: Vec<ValueRun>,
}

/// The search for the largest value in `range`; with `sets`, for each set of remedies, too.
pub fn largest_value(rules: Rules, range: Range, sets: bool) -> Search<FoundValue> {
    Search::new(move |line| async move {
        let mut values = Values { rules, line, range, interrupted: false };
        let search = values.search();
        let (search, runs) = values.largest(search, &Plan::default(), "").await;
        let on_edge = runs.iter().find(|it| Some(it.value) == search.found() && it.retries != 0);
        let with_less = match on_edge {
            Some(run) if !values.interrupted => values.with_less(run, search.step()).await,
            _ => None,
        };
        let mut res = FoundValue {
            found: search.found(),
            above: search.above().map(|(value, tried)| (value, tried.clone())),
            out_of_order: search.out_of_order(),
            multiples_of: (values.range.step < search.step()).then_some(search.step()),
            with_less,
            by_remedies: Vec::new(),
            interrupted: values.interrupted,
            rows_interrupted: false,
            runs,
        };
        // One that never ran has nothing that memory would be the matter of.
        let ran = res.runs.iter().any(|it| !matches!(it.tried, Tried::Fails(_)));
        if sets && ran && !values.interrupted {
            res.by_remedies = by_remedies(&mut values, res.found, &res.runs).await;
            res.rows_interrupted = values.interrupted;
        }
        res
    })
}
