//! One out-of-memory error: what was asked, what was free, and what is known of the moment.

use crate::{
    explanation::root_cause::RootCause,
    failures::{Backend, Cause, Failure, Kind},
    recording::{CodeLine, CurveDevice, Phase},
    units::Bytes,
};

/// The shapes that people know such errors by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Before the first backward pass.
    FirstForward,
    /// In a backward pass.
    Backward,
    /// In the optimizer's first step.
    FirstOptimizerStep,
    /// Something grew until it was too much.
    OverTime,
    /// At an input larger than the others.
    LargeInput,
    /// After many steps that fitted.
    Late,
    /// In an evaluation.
    Evaluation,
    /// Nothing that has a name.
    Other,
}

/// An out-of-memory error.
#[derive(Clone, Debug, PartialEq)]
pub struct Oom {
    /// The numbers, and what else is known of the moment; of a recording they are what it counted.
    pub facts: Failure,
    /// Why, in a word.
    pub cause: Cause,
    /// Why, with its code, its line and its bytes.
    pub root: RootCause,
    /// Whether it is sure that memory was what failed.
    pub is_sure: bool,
    /// Which of the shapes that people know.
    pub shape: Shape,
    /// The sentences that lead to the cause.
    pub why: String,
    /// Whether something may have grown, of which the cause says nothing.
    pub may_have_grown: bool,
    /// What to try, in order.
    pub remedies: Vec<String>,
    /// What a person would change in the script for the cause, where it has a change of its own.
    pub edit: Option<String>,
    /// What was tried, and does not help.
    pub in_vain: Vec<String>,
    /// What others had.
    pub others: Option<Bytes>,
    /// The innermost line of the user's own code.
    pub at: Option<CodeLine>,
    /// The line of a library's model that it called, where the model is no code of the user's.
    pub library_at: Option<CodeLine>,
    /// The path of the module that was running, as in `layers.3.mlp`.
    pub module: Option<String>,
    /// The step, from 1.
    pub step: Option<u32>,
    /// The fewest live blocks whose absence would have been enough, by line.
    pub enough: Vec<(String, Bytes, u64)>,
    /// That was tried on the allocator as it stood, and so were the remedies that say so.
    pub is_proven: bool,
}

impl Oom {
    pub(super) fn of_failure(failure: &Failure) -> Oom {
        let verdict = failure.verdict();
        let shape = match failure.phase {
            Some(Phase::Backward) => Shape::Backward,
            Some(Phase::Evaluation) => Shape::Evaluation,
            _ if failure.progress.is_some() => Shape::Late,
            _ => Shape::Other,
        };
        Oom {
            cause: verdict.cause,
            root: RootCause::of_message(failure, verdict.cause, &verdict.why),
            is_sure: failure.kind != Kind::MaybeOutOfMemory,
            shape,
            why: verdict.why,
            remedies: verdict.remedies,
            edit: None,
            in_vain: Vec::new(),
            may_have_grown: verdict.may_have_grown,
            others: failure.others(),
            at: failure.user_frame.clone().or_else(|| {
                // Of a process that was killed, only those that waited for it have a traceback.
                let is_launchers =
                    (failure.kind, failure.backend) == (Kind::MaybeOutOfMemory, Backend::Host);
                failure.innermost.clone().filter(|_| !is_launchers)
            }),
            library_at: None,
            module: None,
            step: None,
            enough: Vec::new(),
            is_proven: false,
            facts: failure.clone(),
        }
    }

    pub(super) fn of_curve(device: &CurveDevice) -> Oom {
        let facts = Failure {
            device: Some(device.index),
            times: device.ooms,
            allocated: Some(device.peak_allocated),
            reserved: Some(device.peak_reserved),
            ..Failure::default()
        };
        let mut res = Oom::of_failure(&facts);
        res.why = "the profiler's trace has an out-of-memory event, without its request and stack"
            .to_owned();
        res.root.text.clone_from(&res.why);
        res
    }

    /// The line of the log that tells of it.
    pub fn line(&self) -> Option<usize> {
        (self.facts.at != 0).then_some(self.facts.at)
    }
}

impl Shape {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Shape::FirstForward => "first_forward",
            Shape::Backward => "backward",
            Shape::FirstOptimizerStep => "first_optimizer_step",
            Shape::OverTime => "over_time",
            Shape::LargeInput => "large_input",
            Shape::Late => "late",
            Shape::Evaluation => "evaluation",
            Shape::Other => "other",
        }
    }

    /// What it tells, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Shape::FirstForward => {
                "The first forward pass runs out: parameters and activations of one batch are already too large."
            }
            Shape::Backward => {
                "The backward pass runs out: activations are still allocated while gradients are added."
            }
            Shape::FirstOptimizerStep => {
                "The first optimizer step runs out, when the optimizer allocates its state: forward and backward pass fit, the state does not."
            }
            Shape::OverTime => "Memory grew step by step until it ran out.",
            Shape::LargeInput => "A larger input than before runs out.",
            Shape::Late => {
                "Earlier steps fitted: memory grew, an input was larger, or memory became fragmented."
            }
            Shape::Evaluation => "An evaluation runs out.",
            Shape::Other => "",
        }
    }
}
