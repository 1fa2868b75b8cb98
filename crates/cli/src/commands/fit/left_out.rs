//! Remedies that a search leaves out: those that have nothing to do, as the script's own run showed, and those that
//! refused it.

use std::collections::BTreeMap;

use plimsoll_core::plan::Plan;

use super::{free::is_free, ladder, plans::Search};
use crate::trials::Trial;

/// Only some programs have a use for these: where the agent says nothing, none has.
const OF_SOME: [&str; 4] = ["optimizer-8bit", "channels-last", "inplace-activations", "attention"];

/// What is left out, and why, where a person may wonder.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    all: BTreeMap<String, Option<String>>,
}

impl LeftOut {
    /// As a run of the script as it is shows it.
    pub(super) fn seen(trial: &Trial) -> LeftOut {
        let noted = trial.noted("sites").and_then(|it| it["idle"].as_object());
        let nothing_said = || OF_SOME.map(|it| (it.to_owned(), None)).into_iter().collect();
        let read = |(id, why): (&String, &serde_json::Value)| {
            (id.clone(), why.as_str().map(str::to_owned))
        };
        LeftOut { all: noted.map_or_else(nothing_said, |it| it.iter().map(read).collect()) }
    }

    /// Takes in why a run with a plan failed: what does not suit the script alone does not in company.
    fn refused(&mut self, failure: &str) {
        let named = failure.split_once("plimsoll: the remedy ").map(|it| it.1);
        if let Some((id, _)) = named.and_then(|it| it.split_once(" does not suit ")) {
            self.add(id);
        }
    }

    /// Takes in that a program does not run with this remedy alone.
    fn add(&mut self, id: &str) {
        self.all.entry(id.to_owned()).or_default();
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.all.contains_key(id)
    }

    /// For people: what they may have expected; of these, those that `may` be used.
    fn shown(&self, may: impl Fn(&str) -> bool) -> Option<String> {
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

impl Search<'_> {
    /// Takes in what a run with `plan` says of its remedies, if it failed.
    pub(super) fn learns(&mut self, plan: &Plan, trial: &Trial) {
        let Some(why) = &trial.failure else { return };
        self.left_out.refused(why);
        let strong: Vec<_> = plan.remedies.iter().filter(|it| !is_free(it.id)).collect();
        if let ([only], 0, None) = (strong.as_slice(), trial.n_ooms, trial.interrupted) {
            self.left_out.add(only.id);
        }
    }

    /// For people: what they may have expected in a plan.
    pub(super) fn what_is_left_out(&self) -> Option<String> {
        let card = self.trials.card();
        let suits_card = |id: &str| {
            let is_autocast = ["autocast", "autocast-fp16"].contains(&id);
            !is_autocast || id == ladder::for_card(card, "autocast")
        };
        self.left_out.shown(|id| self.may(id) && suits_card(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refused_once_is_left_out() {
        let mut it = LeftOut::default();
        it.refused("RuntimeError: CUDA error");
        it.refused("CannotApply: plimsoll: the remedy micro-batches does not suit MoCo: it writes");
        assert!(it.has("micro-batches") && !it.has("checkpoint"));
        assert_eq!(it.shown(|_| true), None);
    }

    #[test]
    fn people_are_told_what_they_may_have_expected() {
        let why = Some("it is there".to_owned());
        let ids = ["autocast", "autocast-fp16", "fused"];
        let mut all: BTreeMap<_, _> = ids.map(|it| (it.to_owned(), why.clone())).into();
        all.insert("set-to-none".to_owned(), None);
        let shown = LeftOut { all }.shown(|it| it != "autocast-fp16");
        assert_eq!(shown.as_deref(), Some("left out: autocast, fused (it is there)"));
    }
}
