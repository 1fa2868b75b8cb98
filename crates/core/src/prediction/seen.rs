//! How much of a script a run went through, and what counts as a step: what was not reached was not seen.

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
        }
    }

    /// All of them, where a number holds for nothing else.
    pub fn limits(self) -> &'static str {
        match self {
            Counted::Steps => "training steps",
            Counted::BackwardPasses => "backward passes",
            Counted::ForwardPasses => "forward passes",
        }
    }

    /// Several of them.
    pub fn several(self) -> &'static str {
        match self {
            Counted::Steps => "steps",
            Counted::BackwardPasses => "backward passes",
            Counted::ForwardPasses => "forward passes",
        }
    }

    /// One of them.
    pub fn one(self) -> &'static str {
        match self {
            Counted::Steps => "step",
            Counted::BackwardPasses => "backward pass",
            Counted::ForwardPasses => "forward pass",
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
    /// The script came to its end by itself.
    pub whole: bool,
    /// A model was called without gradients, and not as a part of each step.
    pub evaluation: bool,
    /// The run went on for it once memory was steady.
    pub went_on: bool,
    /// That took too long and was ended before its end.
    pub evaluation_cut: bool,
    /// For it, epochs were ended early.
    pub epochs_cut: bool,
}

impl Seen {
    /// What was not reached and may take more than what was, in words; none if the script came to its end, or never
    /// trains.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Seen { whole: true, .. } => None,
            Seen { counted: Counted::ForwardPasses, .. } => Some("later forward passes"),
            Seen { evaluation: true, evaluation_cut: true, .. } => {
                Some("the end of the evaluation")
            }
            Seen { evaluation: true, went_on: true, .. } => None,
            Seen { evaluation: true, .. } => Some("later steps"),
            Seen { evaluation: false, .. } => Some("an evaluation, a checkpoint, later steps"),
        }
    }
}
