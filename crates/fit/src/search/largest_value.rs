//! The largest value of a number in the command that fits: run and seen to fit, and the next one seen not to.

use plimsoll_core::{plan::Plan, prediction::OtherEnd};

use super::{
    by_remedies::{WithRemedies, by_remedies},
    dialogue::Search,
    found::WhySoFar,
    rules::Rules,
    values::{Range, ValueRun, Values, WithLess},
};
use crate::search::largest::Tried;

/// What came of a search for a value.
#[derive(Clone, Debug)]
pub struct FoundValue {
    /// The value; none if nothing fits.
    pub found: Option<u64>,
    /// The value above, and what came of it; none at the end of the range.
    pub above: Option<(u64, Tried)>,
    /// It is the end of the range: a larger one was not asked for.
    pub is_end: bool,
    /// Values that ran out of memory although a larger one fits.
    pub out_of_order: Vec<u64>,
    /// Only multiples of this were looked at, because others do not run.
    pub multiples_of: Option<u64>,
    /// Whether the value gets through with a little less memory, too; asked where it went through retries.
    pub with_less: Option<WithLess>,
    /// The largest value with each set of remedies, the script as it is first; empty unless asked for.
    pub by_remedies: Vec<WithRemedies>,
    /// What it is where masks of unknown values select everything; none if there are no such masks.
    pub if_found: Option<IfAllFound>,
    /// Somebody stopped the search before its end.
    pub interrupted: bool,
    /// Somebody stopped after it, before it was looked at from all sides, and before every set of remedies had its row.
    pub rest_interrupted: bool,
    /// Every run of the script as it is, in order.
    pub runs: Vec<ValueRun>,
}

/// The largest value where masks of unknown values select everything.
#[derive(Clone, Debug)]
pub struct IfAllFound {
    /// The value; none if nothing fits.
    pub found: Option<u64>,
    /// Every run with such masks, in order.
    pub runs: Vec<ValueRun>,
}

impl FoundValue {
    /// The run of the value.
    pub fn answer(&self) -> Option<&ValueRun> {
        self.runs.iter().find(|it| Some(it.value) == self.found)
    }

    /// Why the value may need more: it fits so far.
    pub fn so_far(&self) -> Option<WhySoFar<'_>> {
        let it = self.answer()?;
        let to_come = it.to_come.as_ref().map(WhySoFar::ToCome);
        to_come.or_else(|| it.unseen.as_deref().map(WhySoFar::Unseen))
    }

    /// Whether what was found fits only by how much masks find, and nobody computed that.
    pub fn depends(&self) -> bool {
        self.if_found.as_ref().is_some_and(|it| it.found != self.found)
    }
}

/// The search for the largest value in `range`; with `sets`, for each set of remedies, too.
pub fn largest_value(rules: Rules, range: Range, sets: bool) -> Search<FoundValue> {
    Search::new(move |line| async move {
        let mut values = Values::new(rules, line, range);
        let search = values.search();
        let (search, mut runs) = values.largest(search, &Plan::default(), "").await;
        let interrupted = values.interrupted;
        if let Some(found) = search.found().filter(|_| !interrupted) {
            values.largest_safe(&mut runs, found, search.step()).await;
        }
        let answer = runs.iter().find(|it| Some(it.value) == search.found() && !interrupted);
        let with_less = match answer.filter(|it| it.retries != 0) {
            Some(run) => values.with_less(run, search.step()).await,
            None => None,
        };
        let if_found = match answer.filter(|it| it.ends.contains(&OtherEnd::Found)) {
            Some(run) => values.if_everything_is_found(&search, run.value).await,
            None => None,
        };
        let mut res = FoundValue {
            found: search.found(),
            above: search.above().map(|(value, tried)| (value, tried.clone())),
            is_end: search.is_end(),
            out_of_order: search.out_of_order(),
            multiples_of: (values.range.step < search.step()).then_some(search.step()),
            with_less,
            by_remedies: Vec::new(),
            if_found: if_found.map(|(found, runs)| IfAllFound { found, runs }),
            interrupted,
            rest_interrupted: values.interrupted && !interrupted,
            runs,
        };
        // One that never ran has nothing that memory would be the matter of.
        let ran = res.runs.iter().any(|it| !matches!(it.tried, Tried::Fails(_)));
        if sets && ran && !values.interrupted {
            res.by_remedies = by_remedies(&mut values, res.found, &res.runs).await;
            res.rest_interrupted = values.interrupted;
        }
        res
    })
}
