//! The largest value for each set of remedies: what each makes room for, and what a step then costs.

use plimsoll_core::{
    plan::{CATALOGUE, Offer, Plan, Remedy, remedies},
    prediction::Peaks,
    recording::Work,
};

use super::{
    ask::{Look, Run, Until},
    ladder,
    left_out::LeftOut,
    rules::Rules,
    values::{ValueRun, Values},
};
use crate::cost::{Factor, factor};

/// Remedies that cost no time worth telling: one set.
const FREE: [&str; 4] =
    [remedies::FUSED, remedies::SET_TO_NONE, remedies::CHUNKED_LOSS, remedies::ATTENTION];
/// The sets beside these, from the mildest on.
const SETS: [&[&str]; 4] = [
    &[remedies::AUTOCAST],
    &[remedies::MICRO_BATCHES],
    &[remedies::CHECKPOINT],
    &[remedies::AUTOCAST, remedies::CHECKPOINT],
];
/// So many parts has a batch in the set that has parts: with more of them there is room for more, without an end.
const PARTS: u64 = 4;

/// The largest value that fits with a set of remedies.
#[derive(Clone, Debug)]
pub struct WithRemedies {
    /// The set; without a remedy for the script as it is.
    pub plan: Plan,
    /// The value; none if nothing fits.
    pub found: Option<u64>,
    /// What it takes there.
    pub peak: Option<Peaks>,
    /// How much longer a step takes there than one of the script as it is, at its own largest value; none if that was
    /// not counted.
    pub time: Option<Factor>,
    /// Runs that it took.
    pub n_runs: usize,
}

/// One row for each set of remedies that the script bears; the script as it is, which these `runs` were of, comes first.
pub(super) async fn by_remedies(
    values: &mut Values,
    found: Option<u64>,
    runs: &[ValueRun],
) -> Vec<WithRemedies> {
    let nothing = Plan::default();
    let start = found.unwrap_or(values.range.lowest);
    let sites = values.run(start, &nothing, Until::Steps(2));
    let noted = values.trial(Run { look: Some(Look::Sites), ..sites }).await.noted;
    let sets = sets(&values.rules, &LeftOut::seen(&noted));
    let plain_work = work(values, start, &nothing).await;
    let mut res = vec![row(nothing, runs, found)];
    for plan in sets {
        if values.interrupted {
            break;
        }
        // What is enough for some of its remedies is for all of them.
        let parts = res.iter().filter(|it| is_part(&it.plan, &plan));
        let first = parts.filter_map(|it| it.found).max().unwrap_or(start);
        let search = values.search().beginning_at(first);
        let with = format!("{}: ", plan.shown());
        let (search, runs) = values.largest(search, &plan, &with).await;
        let Some(value) = search.found().filter(|_| !values.interrupted) else { continue };
        let changed = work(values, value, &plan).await;
        let time = factor(&plain_work, &changed, &values.rules.card);
        let time = if noted.compiles { time.map(Factor::of_compiled) } else { time };
        res.push(WithRemedies { time, ..row(plan, &runs, Some(value)) });
    }
    res
}

/// The sets that may be used and have something to do.
fn sets(rules: &Rules, left_out: &LeftOut) -> Vec<Plan> {
    let may = |id: &&'static str| rules.allow(id) && !left_out.has(id);
    let of_card = |ids: &'static [&'static str]| {
        ids.iter().map(|id| ladder::for_card(&rules.card, id)).collect()
    };
    let mut all: Vec<Vec<&'static str>> = vec![FREE.into_iter().filter(may).collect()];
    all.extend(SETS.iter().map(|it| of_card(it)));
    let named = CATALOGUE.iter().filter(|it| it.offer != Offer::ByHand);
    let named = named.filter(|it| rules.allow.iter().any(|id| id == it.id));
    let named: Vec<_> = named.map(|it| vec![it.id]).filter(|it| !all.contains(it)).collect();
    all.extend(named);
    all.retain(|it| !it.is_empty() && it.iter().all(&may));
    let plan = |ids: Vec<&'static str>| {
        let remedies = ids.into_iter().map(Remedy::plain).collect();
        ladder::settled(&Plan::of(remedies), PARTS, 1)
    };
    all.into_iter().map(plan).collect()
}

/// What a step at this value does.
async fn work(values: &mut Values, value: u64, plan: &Plan) -> Vec<Work> {
    let run = values.run(value, plan, Until::Steps(2));
    values.trial(Run { look: Some(Look::Work), ..run }).await.noted.work
}

/// Whether `set` has all remedies of `part`.
fn is_part(part: &Plan, set: &Plan) -> bool {
    part.remedies.iter().all(|it| set.remedies.contains(it))
}

fn row(plan: Plan, runs: &[ValueRun], found: Option<u64>) -> WithRemedies {
    let run = runs.iter().rev().find(|it| Some(it.value) == found);
    let peak = run.and_then(|it| it.peak);
    WithRemedies { plan, found, peak, time: None, n_runs: runs.len() }
}
