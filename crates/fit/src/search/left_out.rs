//! Remedies that a search leaves out: those that have nothing to do, as the script's own run showed, and those that
//! refused it.

use std::collections::BTreeMap;

use plimsoll_core::plan::{CATALOGUE, Kind, Plan, remedies::Use};

use super::{
    ask::{Noted, Ran},
    ladder::is_free,
};

/// Only some programs have a use for these: where the agent says nothing, none has.
fn of_some() -> impl Iterator<Item = &'static Kind> {
    CATALOGUE.iter().filter(|it| it.of != Use::Every)
}

/// What is left out, and why, where a person may wonder.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    all: BTreeMap<String, Option<String>>,
    /// Those of them that failed in the company of something free, which may have been at fault.
    in_company: Vec<String>,
}

impl LeftOut {
    /// As a run of the script as it is shows it.
    pub(super) fn seen(noted: &Noted) -> LeftOut {
        let nothing_said = || of_some().map(|it| (it.id.to_owned(), None)).collect();
        let all = noted.idle.clone().unwrap_or_else(nothing_said);
        LeftOut { all, in_company: Vec::new() }
    }

    /// Takes in what a run with `plan` says of its remedies, if it failed: what does not suit the script alone does
    /// not in company.
    pub(super) fn learns(&mut self, plan: &Plan, ran: &Ran) {
        if ran.failure.is_none() {
            return;
        }
        for id in &ran.refused {
            self.add(id);
        }
        let strong: Vec<_> = plan.remedies.iter().filter(|it| !is_free(it.id)).collect();
        if let ([only], 0, false) = (strong.as_slice(), ran.n_ooms, ran.interrupted) {
            if 1 < plan.remedies.len()
                && !ran.refused.contains(&only.id.to_owned())
                && !self.has(only.id)
            {
                self.in_company.push(only.id.to_owned());
            }
            self.add(only.id);
        }
    }

    /// What is free was at fault where others failed in its company.
    pub(super) fn acquit(&mut self) {
        for id in self.in_company.drain(..) {
            self.all.remove(&id);
        }
    }

    fn add(&mut self, id: &str) {
        self.all.entry(id.to_owned()).or_default();
    }

    /// How many are left out.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.all.contains_key(id)
    }

    /// For people: what they may have expected; of these, those that `may` be used.
    pub(super) fn shown(&self, may: impl Fn(&str) -> bool) -> Option<String> {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, why) in self.all.iter().filter(|(id, _)| may(id)) {
            if let Some(why) = why {
                by_reason.entry(why).or_default().push(id);
            }
        }
        let all: Vec<String> =
            by_reason.iter().map(|(why, ids)| format!("{} ({why})", ids.join(", "))).collect();
        (!all.is_empty()).then(|| format!("left out: {}", all.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::plan::Remedy;

    use super::*;

    #[test]
    fn what_refused_once_is_left_out() {
        let both = ["micro-batches", "checkpoint"].map(Remedy::plain);
        let mut it = LeftOut::default();
        let failed = Ran { interrupted: false, ..Ran::not_made() };
        it.learns(&Plan::of(both.to_vec()), &failed);
        assert!(!it.has("micro-batches") && !it.has("checkpoint"));
        let refused = Ran { refused: vec!["micro-batches".to_owned()], ..failed };
        it.learns(&Plan::of(both.to_vec()), &refused);
        assert!(it.has("micro-batches") && !it.has("checkpoint"));
        assert_eq!(it.shown(|_| true), None);
    }

    #[test]
    fn what_failed_in_company_is_tried_again_once_the_company_was_at_fault() {
        let failed = || Ran { interrupted: false, ..Ran::not_made() };
        let mut it = LeftOut::default();
        it.learns(&Plan::of(["fused", "offload"].map(Remedy::plain).to_vec()), &failed());
        it.learns(&Plan::of(vec![Remedy::plain("autocast")]), &failed());
        assert!(it.has("offload") && it.has("autocast"));
        it.acquit();
        assert!(!it.has("offload") && it.has("autocast"));
    }

    #[test]
    fn people_are_told_what_they_may_have_expected() {
        let why = Some("it is there".to_owned());
        let ids = ["autocast", "autocast-fp16", "fused"];
        let mut all: BTreeMap<_, _> = ids.map(|it| (it.to_owned(), why.clone())).into();
        all.insert("set-to-none".to_owned(), None);
        let shown = LeftOut { all, ..LeftOut::default() }.shown(|it| it != "autocast-fp16");
        assert_eq!(shown.as_deref(), Some("left out: autocast, fused (it is there)"));
    }
}
