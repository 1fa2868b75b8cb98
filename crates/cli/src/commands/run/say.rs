//! Sentences for a person, on standard error: what the script writes goes where it always went.

use std::io::{self, Write as _};

use plimsoll_core::recording::Phase;

pub(super) fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
}

/// Behind a step's number: in which of its phases.
pub(super) fn in_phase(phase: Option<Phase>) -> &'static str {
    match phase {
        None => "",
        Some(Phase::Forward) => ", forward",
        Some(Phase::Backward) => ", backward",
        Some(Phase::Optimizer) => ", optimizer",
        Some(Phase::ZeroGrad) => ", zero_grad",
        Some(Phase::Evaluation) => ", evaluation",
    }
}
