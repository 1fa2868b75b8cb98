//! Runs of what is proposed that are only there to refute it: again, at its limit, on the card itself.

use plimsoll_core::{
    cards::Card,
    prediction::Peaks,
    recording::{MarkKind, Phase},
    views::plan::Seen,
};

use super::{plans::Search, ranking::Candidate};
use crate::{
    launch::Stop,
    phantom_run,
    trials::{self, Trial},
};

/// So often a plan that is proposed is run again: not every run of a script frees its memory in the same order.
const REPEATS: u32 = 2;
/// Of so many devices each is looked at, of more the first ones.
const MOST_RANKS: u32 = 8;

impl Search<'_> {
    /// Runs a plan again, with no more to reserve than it may; it takes what the hungriest run took.
    pub(super) fn fits_again(&mut self, it: &mut Candidate) -> anyhow::Result<bool> {
        let Peaks { device, reserved, .. } = it.prediction.peak;
        let beside = device.saturating_sub(reserved);
        let limit = match self.args.limit_reserved {
            Some(limit) => limit,
            None => self.most.saturating_sub(beside),
        };
        // Of several devices the first has the largest share of most things, and each of some.
        let gpus = it.plan.gpus().unwrap_or(1);
        for rank in (1..=REPEATS.max(gpus.min(MOST_RANKS))).map(|it| it % gpus) {
            let mut settings = trials::limit_reserved(Some(limit));
            settings.push(("PLIMSOLL_RANK", rank.to_string().into()));
            let trial = self.trial(&it.plan, self.stop, &settings)?;
            if self.interrupted {
                return Ok(it.fits);
            }
            if !self.takes_in(it, trial) {
                return Ok(false);
            }
        }
        Ok(it.fits)
    }

    /// Runs the plan on the card itself, in a process of its own, and at the other end of what a phantom decides by
    /// itself. What was seen; none if it does not fit after all.
    pub(super) fn proves(
        &mut self,
        card: &Card,
        it: &mut Candidate,
    ) -> anyhow::Result<Option<Seen>> {
        let mut settings = self.settings(&it.plan);
        settings.extend(trials::limit_reserved(self.args.limit_reserved));
        let mut stop = if self.args.until_exit { Stop::UntilExit } else { Stop::Validation };
        // A run of its own ends the nursery: what can come out of that comes before.
        let mut early = Vec::new();
        for end in it.ends.clone() {
            let conf = phantom_run::conf_line(end);
            let trial = self.trials.run_again_on(card, self.words, &settings, stop, conf)?;
            self.interrupted |= trial.interrupted.is_some();
            if self.interrupted {
                let steps = it.prediction.steps_seen;
                return Ok(it.fits.then_some(Seen { steps, ..Seen::default() }));
            }
            early.extend((!is_strange(&trial)).then_some((end, trial)));
        }
        let mut trial = self.trials.run_on(card, self.words, &settings, stop, "")?;
        if matches!(stop, Stop::Validation) && is_strange(&trial) && trial.interrupted.is_none() {
            // Not every loop bears an epoch that ends early.
            stop = Stop::Steady;
            early.clear();
            trial = self.trials.run_on(card, self.words, &settings, stop, "")?;
        }
        self.interrupted |= trial.interrupted.is_some();
        let seen = Seen { until_exit: self.args.until_exit, ..seen(&trial) };
        let ends = trial.ends.clone();
        if self.interrupted {
            return Ok(it.fits.then_some(seen));
        }
        if !self.takes_in(it, trial) {
            if matches!(stop, Stop::Validation) {
                // What was tried without a validation, or before a larger batch, says nothing.
                self.stop = stop;
                self.validates = seen.evaluation;
                self.tried.clear();
            }
            return Ok(None);
        }
        for end in ends {
            let conf = phantom_run::conf_line(end);
            let trial = match early.iter().position(|it| it.0 == end) {
                Some(at) => early.swap_remove(at).1,
                None => self.trials.run_on(card, self.words, &settings, stop, conf)?,
            };
            self.interrupted |= trial.interrupted.is_some();
            if !self.interrupted && !self.takes_in(it, trial) {
                return Ok(None);
            }
        }
        Ok(Some(seen))
    }

    /// One more run of a candidate; false if it did not get through.
    fn takes_in(&self, it: &mut Candidate, trial: Trial) -> bool {
        if !trial.fits() {
            return false;
        }
        let needs = self.needs(&trial.prediction);
        if it.needs < needs {
            (it.prediction, it.needs, it.fits) = (trial.prediction, needs, needs <= self.most);
        }
        it.fits
    }
}

/// Whether it failed for another reason than memory.
fn is_strange(trial: &Trial) -> bool {
    trial.failure.is_some() && trial.n_ooms == 0
}

/// What went by in a run.
fn seen(trial: &Trial) -> Seen {
    let marks = trial.recordings.iter().flat_map(|it| &it.notes.marks);
    let evaluations = marks.filter(|it| it.kind == MarkKind::Begin(Phase::Evaluation));
    Seen {
        steps: trial.prediction.steps_seen,
        evaluation: evaluations.count() != 0,
        until_exit: false,
    }
}
