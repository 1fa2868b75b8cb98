//! The largest value for each set of remedies: what each makes room for, and what a step then costs.

use plimsoll_core::{
    plan::{CATALOGUE, Offer, Plan, Remedy, Work, largest::Largest},
    views::fit::{FindMax, Run, WithRemedies},
};

use super::{find_max::Finder, is_allowed, ladder, left_out::LeftOut, ranking, tuning};
use crate::launch::{Setting, Stop};

/// Remedies that cost no time worth telling: one set.
const FREE: [&str; 4] = ["fused", "set-to-none", "chunked-loss", "attention"];
/// The sets beside these, from the mildest on.
const SETS: [&[&str]; 4] =
    [&["autocast"], &["micro-batches"], &["checkpoint"], &["autocast", "checkpoint"]];
/// So many parts has a batch in the set that has parts: with more of them there is room for more, without an end.
const PARTS: u64 = 4;

impl Finder<'_> {
    /// One row for each set of remedies that the script bears; the script as it is comes first.
    pub(super) fn by_remedies(
        &mut self,
        plain: &FindMax,
        settings: &[Setting],
    ) -> anyhow::Result<Vec<WithRemedies>> {
        let start = plain.found.unwrap_or(self.range.lowest);
        let words = self.words(start);
        let sites = [settings, &[("PLIMSOLL_SITES", "1".into())]].concat();
        let trial = self.trials.run(&words, &sites, Stop::Steps(2))?;
        self.interrupted |= trial.interrupted.is_some();
        let sets = self.sets(&LeftOut::seen(&trial));
        let plain_work = self.work(start, settings)?;
        let mut res = vec![row(Plan::default(), &plain.runs, plain.found)];
        for plan in sets {
            if self.interrupted {
                break;
            }
            let settings = [settings, &tuning::settings(&plan)].concat();
            let search =
                Largest::new(self.range.lowest, self.range.highest, self.range.step, self.most);
            let with = format!("{}: ", plan.shown());
            // What is enough for some of its remedies is for all of them.
            let parts = res.iter().filter(|it| is_part(&it.plan, &plan));
            let first = parts.filter_map(|it| it.found).max().unwrap_or(start);
            let (search, runs) = self.largest(search.beginning_at(first), &settings, &with)?;
            let Some(value) = search.found().filter(|_| !self.interrupted) else { continue };
            let mut it = row(plan, &runs, Some(value));
            let changed = self.work(value, &settings)?;
            it.time = ranking::time(&plain_work, &changed, self.trials.card());
            res.push(it);
        }
        Ok(res)
    }

    /// The sets that may be used and have something to do.
    fn sets(&self, left_out: &LeftOut) -> Vec<Plan> {
        let card = self.trials.card();
        let may = |id: &&'static str| is_allowed(self.args, id) && !left_out.has(id);
        let of_card =
            |it: &&'static [&'static str]| it.iter().map(|id| ladder::for_card(card, id)).collect();
        let mut all: Vec<Vec<&'static str>> = vec![FREE.into_iter().filter(may).collect()];
        all.extend(SETS.iter().map(of_card));
        let named = CATALOGUE.iter().filter(|it| it.offer != Offer::ByHand);
        let named = named.filter(|it| self.args.allow.iter().any(|id| id == it.id));
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
    fn work(&mut self, value: u64, settings: &[Setting]) -> anyhow::Result<Vec<Work>> {
        let meter = [settings, &[("PLIMSOLL_METER", "1".into())]].concat();
        let words = self.words(value);
        let trial = self.trials.run(&words, &meter, Stop::Steps(2))?;
        self.interrupted |= trial.interrupted.is_some();
        Ok(ranking::work(&trial))
    }
}

/// Whether `set` has all remedies of `part`.
fn is_part(part: &Plan, set: &Plan) -> bool {
    part.remedies.iter().all(|it| set.remedies.contains(it))
}

fn row(plan: Plan, runs: &[Run], found: Option<u64>) -> WithRemedies {
    let run = runs.iter().rev().find(|it| Some(it.value) == found);
    let peak = run.and_then(|it| it.peak);
    WithRemedies { plan, found, peak, time: None, n_runs: runs.len() }
}
