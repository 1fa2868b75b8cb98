//! What a search that is not over can say: the best so far.

use plimsoll_core::{
    plan::{Offer, find},
    prediction::OtherEnd,
    units::Bytes,
};

use super::{
    ask::{On, Ran, Run},
    rules::Rules,
};

/// What the runs up to now came to.
#[derive(Debug, Default)]
pub struct SoFar {
    /// The first plan that was seen to fit, and what of the limit it needs.
    plan: Option<(String, Bytes)>,
    as_it_is: AsItIs,
}

/// What the runs of the script as it is came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AsItIs {
    #[default]
    NotRun,
    /// It fits, as far as was seen.
    Fits,
    /// It takes too much where there is room; on the card itself PyTorch may give back what it kept for later.
    TooLarge,
    /// It runs out on the card itself, or at another end of what a phantom decides.
    Refuted,
}

/// What there is if somebody ends the search now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Best {
    /// The script as it is: that it fits is only being proven.
    AsItIs,
    /// This plan fits, and needs so much of the limit.
    Plan(String, Bytes),
    /// Nothing fits yet.
    Nothing,
}

impl SoFar {
    /// Takes in what came of a run.
    pub fn takes_in(&mut self, rules: &Rules, run: &Run, ran: &Ran) {
        let is_edited = !run.files.is_empty() || !run.words.is_empty();
        let is_other = run.value.is_some() || run.half.is_some() || is_edited;
        if is_other || ran.was_cut || ran.interrupted {
            return;
        }
        let needs = match rules.limit_reserved {
            Some(_) => ran.took.peak.reserved,
            None => ran.took.safe,
        };
        let fits = ran.fits() && needs <= rules.most();
        let mut remedies = run.plan.remedies.iter().map(|it| find(it.id));
        if !run.plan.remedies.is_empty() {
            let is_advice = remedies.any(|it| it.is_some_and(|it| it.offer == Offer::ByHand));
            if fits && !is_advice && self.plan.is_none() {
                self.plan = Some((run.plan.shown(), needs));
            }
            return;
        }
        let is_plain = run.on == On::Roomy && run.end.is_none();
        self.as_it_is = match (fits, self.as_it_is) {
            // Nobody knows how much masks find: no script is refuted by it.
            (_, before) if run.end == Some(OtherEnd::Found) => before,
            (_, AsItIs::Refuted) => AsItIs::Refuted,
            (true, AsItIs::NotRun) => AsItIs::Fits,
            // A shorter run with room proves nothing.
            (true, before) if is_plain => before,
            (true, _) => AsItIs::Fits,
            (false, _) if is_plain => AsItIs::TooLarge,
            (false, _) => AsItIs::Refuted,
        };
    }

    /// The best of them.
    pub fn best(&self) -> Best {
        match (&self.plan, self.as_it_is) {
            (Some((plan, needs)), _) => Best::Plan(plan.clone(), *needs),
            (None, AsItIs::Fits) => Best::AsItIs,
            (None, _) => Best::Nothing,
        }
    }
}
