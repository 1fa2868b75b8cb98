//! Changes of the allocator alone: a replay of a run's recording says which would have made it fit, and a run proves it.

use std::env;

use plimsoll_core::{
    plan::{Plan, Remedy, Value},
    prediction::{self, Tuned, Tuning},
    units::Bytes,
};

use super::{plans::Search, ranking::Candidate};
use crate::{
    launch::Setting,
    trials::{self, ALLOC_CONF, Trial},
    worst_sequence::WorstSequence,
};

/// The name of the same variable since torch 2.9, which goes before the older one there.
const NEWER_ALLOC_CONF: &str = "PYTORCH_ALLOC_CONF";
/// So many of the settings that a replay is content with are run.
const MOST_SETTINGS: usize = 2;

impl Search<'_> {
    /// `it` if it fits; else the same with the first change of the allocator that makes it fit.
    pub(super) fn tuned(&mut self, it: Candidate) -> anyhow::Result<Option<Candidate>> {
        if it.fits {
            return Ok(Some(it));
        }
        let (settings, emptied): (Vec<&Tuned>, Vec<&Tuned>) =
            it.tunings.iter().partition(|it| matches!(it.tuning, Tuning::Settings(_)));
        let tried = settings.into_iter().take(MOST_SETTINGS).chain(emptied.into_iter().take(1));
        for tuned in tried {
            let remedy = remedy(&tuned.tuning);
            if !self.may(remedy.id) || self.interrupted {
                continue;
            }
            let mut remedies = it.plan.remedies.clone();
            remedies.push(remedy);
            if let Some(it) = self.run(&Plan::of(remedies))?.filter(|it| it.fits) {
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    /// What of the allocator would have made this run fit, by a replay; nothing where no replay can: what is not
    /// allocated is all that an allocator can save.
    pub(super) fn tunings(&self, plan: &Plan, trial: &Trial, needs: Bytes) -> Vec<Tuned> {
        let peak = trial.prediction.peak;
        let is_changed =
            plan.remedies.iter().any(|it| ["allocator", "empty-cache"].contains(&it.id));
        let least = needs.saturating_sub(peak.reserved.saturating_sub(peak.allocated));
        let may = self.may("allocator") || self.may("empty-cache");
        if is_changed || !may || needs <= self.most || self.most < least || trial.n_ooms != 0 {
            return Vec::new();
        }
        let beside = needs.saturating_sub(peak.reserved);
        let is_whole_card = self.args.budget.is_none() && self.args.limit_reserved.is_none();
        let card = is_whole_card.then_some(self.most);
        prediction::tunings(&trial.recordings, self.most.saturating_sub(beside), card)
    }

    /// What the environment of every run of `plan` has more.
    pub(super) fn settings(&self, plan: &Plan) -> Vec<Setting> {
        let mut res = settings(plan);
        res.extend(self.args.worst_seq.map(WorstSequence::setting));
        res
    }

    /// What a run of `plan` has to be told so that its allocator knows a limit: garbage is collected only below one.
    pub(super) fn limit_of_allocator(&self, plan: &Plan) -> Vec<Setting> {
        let collects = plan.alloc_conf().is_some_and(|it| it.contains("garbage_collection"));
        trials::limit_reserved(collects.then_some(Bytes(self.most.0 / 100 * 99)))
    }
}

fn remedy(tuning: &Tuning) -> Remedy {
    match tuning {
        Tuning::Settings(text) => {
            Remedy::plain("allocator").with("settings", Value::Text(text.clone()))
        }
        Tuning::EmptyCache(after) => {
            Remedy::plain("empty-cache").with("after", Value::Text((*after).to_owned()))
        }
    }
}

/// What the script's environment has more for `plan`.
pub(crate) fn settings(plan: &Plan) -> Vec<Setting> {
    let own = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    settings_with(plan, own(ALLOC_CONF), own(NEWER_ALLOC_CONF))
}

/// What the user set stays, except where the plan says otherwise: of two values the later one holds.
fn settings_with(plan: &Plan, own: Option<String>, newer: Option<String>) -> Vec<Setting> {
    let mut res = Vec::new();
    if !plan.remedies.is_empty() {
        res.push(("PLIMSOLL_PLAN", plan.for_agent().into()));
    }
    let Some(conf) = plan.alloc_conf() else { return res };
    let with = |own: Option<&String>| own.map_or(conf.to_owned(), |own| format!("{own},{conf}"));
    res.push((ALLOC_CONF, with(newer.as_ref().or(own.as_ref())).into()));
    if newer.is_some() {
        res.push((NEWER_ALLOC_CONF, with(newer.as_ref()).into()));
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(own: Option<&str>, newer: Option<&str>) -> Vec<String> {
        let settings = Value::Text("expandable_segments:True".to_owned());
        let plan = Plan::of(vec![Remedy::plain("allocator").with("settings", settings)]);
        let all = settings_with(&plan, own.map(str::to_owned), newer.map(str::to_owned));
        let shown = |(name, value): &Setting| format!("{name}={}", value.to_string_lossy());
        all.iter().skip(1).map(shown).collect()
    }

    #[test]
    fn what_the_user_set_stays_under_either_name() {
        assert_eq!(conf(None, None), ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]);
        assert_eq!(
            conf(Some("max_split_size_mb:64"), None),
            ["PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"]
        );
        assert_eq!(
            conf(Some("max_split_size_mb:64"), Some("roundup_power2_divisions:4")),
            [
                "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4,expandable_segments:True",
                "PYTORCH_ALLOC_CONF=roundup_power2_divisions:4,expandable_segments:True"
            ]
        );
    }
}
