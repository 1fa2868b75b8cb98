//! In which phase of a step something happened, for a sentence.

use plimsoll_core::recording::Phase;

/// Behind a step's number: in which of its phases.
pub(super) fn in_phase(phase: Option<Phase>) -> &'static str {
    match phase {
        None => "",
        Some(Phase::Forward) => ", forward",
        Some(Phase::Backward) => ", backward",
        Some(Phase::Optimizer) => ", optimizer",
        Some(Phase::ZeroGrad) => ", zero_grad",
        Some(Phase::Evaluation) => ", evaluation",
        Some(Phase::Saving) => ", saving",
        Some(Phase::Merging) => ", merging",
    }
}
