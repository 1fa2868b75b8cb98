//! How much of a script a run went through, and what counts as a step: what was not reached was not seen.

use crate::{
    recording::{Ahead, Mentions},
    units::grouped,
};

/// What a step is, in a run that counts steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// All optimizers have stepped.
    #[default]
    Steps,
    /// There is no optimizer, and a backward pass ended.
    BackwardPasses,
    /// There is neither, and a model was called.
    ForwardPasses,
    /// Evaluations, each of which leaves something behind.
    Evaluations,
    /// Turns of a loop around the steps, each of which makes an optimizer: folds, rates to try.
    Turns,
}

impl Counted {
    /// `n` of them, in words.
    pub fn times(self, n: u32) -> String {
        let s = if n == 1 { "" } else { "s" };
        match self {
            Counted::Steps => format!("{n} training step{s}"),
            Counted::BackwardPasses => {
                format!("{n} backward pass{}", if n == 1 { "" } else { "es" })
            }
            Counted::ForwardPasses => format!("{n} forward pass{}", if n == 1 { "" } else { "es" }),
            Counted::Evaluations => format!("{n} evaluation{s}"),
            Counted::Turns => format!("{n} turn{s} of the loop around the steps"),
        }
    }

    /// When something stays that does so every so many of them: `after each step`, `every 50 steps`.
    pub fn when(self, every: u32) -> String {
        if every == 1 {
            format!("after each {}", self.one())
        } else {
            format!("every {every} {}", self.several())
        }
    }

    /// All of them, where a number holds for nothing else.
    pub fn limits(self) -> &'static str {
        match self {
            Counted::Steps => "training steps",
            Counted::BackwardPasses => "backward passes",
            Counted::ForwardPasses => "forward passes",
            Counted::Evaluations => "evaluations",
            Counted::Turns => "turns",
        }
    }

    /// Several of them.
    pub fn several(self) -> &'static str {
        match self {
            Counted::Steps => "steps",
            Counted::BackwardPasses => "backward passes",
            Counted::ForwardPasses => "forward passes",
            Counted::Evaluations => "evaluations",
            Counted::Turns => "turns",
        }
    }

    /// One of them.
    pub fn one(self) -> &'static str {
        match self {
            Counted::Steps => "step",
            Counted::BackwardPasses => "backward pass",
            Counted::ForwardPasses => "forward pass",
            Counted::Evaluations => "evaluation",
            Counted::Turns => "turn",
        }
    }
}

/// What a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Steps of the process that took most.
    pub steps: u32,
    /// What they are.
    pub counted: Counted,
    /// The script came to its end by itself, and nothing of it was cut.
    pub whole: bool,
    /// It came to its end, perhaps with epochs that were ended early.
    pub ended: bool,
    /// A model was called without gradients, and not as a part of each step.
    pub evaluation: bool,
    /// The script comes to an evaluation, and the run did not.
    pub awaits_evaluation: bool,
    /// What the script has of what comes later.
    pub mentions: Mentions,
    /// One came early, because its interval was short for some steps.
    pub brought_forward: bool,
    /// The run went on for it once memory was steady.
    pub went_on: bool,
    /// That took too long and was ended before its end.
    pub evaluation_cut: bool,
    /// For it, epochs were ended early.
    pub epochs_cut: bool,
    /// How far the script would have gone.
    pub ahead: Ahead,
}

/// What a promise is about, where a run saw less than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covers {
    /// Of data loaders, the batches that training took; else none, and it is steps.
    pub are_batches: bool,
    /// What the steps are.
    pub counted: Counted,
    /// How many were seen.
    pub seen: u64,
    /// Of how many, if that is known.
    pub of: Option<u64>,
    /// That is an epoch, of an unknown number.
    pub an_epoch: bool,
}

impl Covers {
    /// In words that follow "for": "the 21 batches seen of 800".
    pub fn words(self) -> String {
        let Covers { are_batches, counted, seen, of, an_epoch } = self;
        let (one, several) = if are_batches {
            ("batch", "batches")
        } else {
            let one = if counted == Counted::Steps { "training step" } else { counted.one() };
            (one, counted.limits())
        };
        let what = if seen == 1 { one } else { several };
        let epoch = if an_epoch { " an epoch" } else { "" };
        let of = of.map_or_else(String::new, |it| format!(" of {}{epoch}", grouped(it)));
        format!("the {} {what} seen{of}", grouped(seen))
    }
}

impl Seen {
    /// What the numbers are about, if that is not all of the script; none where no step was seen.
    pub fn covers(self) -> Option<Covers> {
        if self.whole || self.steps == 0 {
            return None;
        }
        let Seen { counted, ahead, .. } = self;
        let Some(seen) = ahead.batches.filter(|_| counted != Counted::ForwardPasses) else {
            let seen = u64::from(self.steps);
            let of = self.steps_in_all().filter(|it| seen < *it);
            return Some(Covers { are_batches: false, counted, seen, of, an_epoch: false });
        };
        let of_epochs =
            ahead.batches_an_epoch.zip(ahead.epochs).map(|(n, epochs)| n.saturating_mul(epochs));
        // Where the script counts steps, it takes so many batches in each.
        let of_steps = || ahead.steps?.checked_mul(seen)?.checked_div(u64::from(self.steps));
        let all = of_epochs.or_else(of_steps);
        let an_epoch = all.is_none();
        let of = all.or(ahead.batches_an_epoch).filter(|it| seen < *it);
        Some(Covers { are_batches: true, counted, seen, of, an_epoch: an_epoch && of.is_some() })
    }

    /// How many steps the script comes to in all, as far as its own loops and data loaders say.
    pub fn steps_in_all(self) -> Option<u64> {
        let Ahead { batches, batches_an_epoch, epochs, steps, .. } = self.ahead;
        let of_batches = || {
            let all = batches_an_epoch?.checked_mul(epochs?)?;
            all.checked_mul(u64::from(self.steps))?.checked_div(batches?)
        };
        if batches.is_some() { of_batches().or(steps) } else { steps }
    }
    /// What was not reached and may take more than what was, in words; none if the script came to its end, or never
    /// trains.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Seen { whole: true, .. } => None,
            Seen { awaits_evaluation: true, .. } => Some("the script's evaluation"),
            Seen { ended: true, evaluation_cut: false, .. } => Some("later batches"),
            Seen { counted: Counted::ForwardPasses, .. } => Some("later forward passes"),
            Seen { evaluation: true, evaluation_cut: true, .. } => {
                Some("the end of the evaluation")
            }
            Seen { evaluation: true, went_on: true, .. } => None,
            Seen { evaluation, mentions, .. } => Some(
                match (mentions.evaluation && !evaluation, mentions.checkpoint && !evaluation) {
                    (true, true) => "an evaluation, a checkpoint, later steps",
                    (true, false) => "an evaluation, later steps",
                    (false, true) => "a checkpoint, later steps",
                    (false, false) => "later steps",
                },
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_says_what_it_is_about() {
        let words = |seen: Seen| seen.covers().map(Covers::words);
        let cut = Seen { steps: 19, ..Seen::default() };
        let with = |ahead: Ahead| words(Seen { ahead, ..cut });
        assert_eq!(words(Seen { whole: true, ..cut }), None);
        assert_eq!(words(cut).as_deref(), Some("the 19 training steps seen"));
        let counts = Ahead { steps: Some(450_000), ..Ahead::default() };
        assert_eq!(with(counts).as_deref(), Some("the 19 training steps seen of 450,000"));
        let no_more = Ahead { steps: Some(19), ..Ahead::default() };
        assert_eq!(with(no_more).as_deref(), Some("the 19 training steps seen"));
        let feeds = Ahead { batches: Some(21), batches_an_epoch: Some(400), ..Ahead::default() };
        assert_eq!(with(feeds).as_deref(), Some("the 21 batches seen of 400 an epoch"));
        let epochs = Ahead { epochs: Some(2), ..feeds };
        assert_eq!(with(epochs).as_deref(), Some("the 21 batches seen of 800"));
        let streams = Ahead { batches: Some(1), ..Ahead::default() };
        assert_eq!(with(streams).as_deref(), Some("the 1 batch seen"));
    }

    #[test]
    fn steps_take_as_many_batches_as_they_took_so_far() {
        let ahead = Ahead {
            batches: Some(40),
            batches_an_epoch: Some(400),
            epochs: Some(3),
            ..Ahead::default()
        };
        let seen = Seen { steps: 10, ahead, ..Seen::default() };
        assert_eq!(seen.steps_in_all(), Some(300));
        let unknown = Seen { ahead: Ahead { epochs: None, ..ahead }, ..seen };
        assert_eq!(unknown.steps_in_all(), None);
    }
}
