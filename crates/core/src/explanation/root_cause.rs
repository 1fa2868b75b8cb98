//! The one cause that a report leads with.

use crate::{
    failures::{Backend, Cause, Failure},
    findings::Finding,
    recording::{CodeLine, Phase},
    units::Bytes,
};

/// Why a request did not fit, or what a run should not do.
#[derive(Clone, Debug, PartialEq)]
pub struct RootCause {
    /// A stable code: a finding's, or one of [`CODES`].
    pub code: &'static str,
    /// The line to look at.
    pub at: Option<CodeLine>,
    /// How much it is about.
    pub bytes: Bytes,
    /// One sentence, without the line.
    pub text: String,
    /// It was replayed or recorded; else it is inferred.
    pub is_sure: bool,
}

/// An evaluation that keeps its graph, whether its results are kept or not.
pub(super) const EVALUATION: &str = "leak/eval-without-no-grad";
/// Finding codes that are about what no step needs again.
pub(super) const LEAKS: [&str; 5] = [
    "leak/graph-retained",
    "leak/results-kept",
    "leak/traceback-kept",
    "leak/earlier-models",
    "growth/per-step",
];

/// Causes that no finding has a page for, with what they mean.
pub const CODES: [(&str, &str); 7] = [
    ("size/model-states", "parameters, gradients and optimizer states alone are too large"),
    ("size/activations", "one step keeps too much for its backward pass"),
    ("size/too-large", "the program needs more memory than there is; nothing shows what for"),
    ("limit/process", "a limit that the process set itself"),
    ("outside/host", "the host's memory (RAM) ran out, not the GPU's"),
    ("pools/private", "CUDA graphs or a MemPool hold it"),
    ("unknown", "the numbers do not show the cause"),
];

impl RootCause {
    /// What the numbers of a message say; nothing is known of lines.
    pub(super) fn of_message(failure: &Failure, cause: Cause, why: &str) -> RootCause {
        let asked = failure.requested.unwrap_or_default();
        let is_large = failure.capacity.is_some_and(|it| it.0 / LARGE_PART < asked.0);
        let code = match cause {
            Cause::Size if is_large => "size/one-allocation",
            Cause::Size if failure.phase == Some(Phase::Optimizer) => "size/model-states",
            Cause::Size => "size/too-large",
            Cause::Leak => "growth/per-step",
            Cause::Fragmentation => "fragmentation/slack",
            Cause::Limit => "limit/process",
            Cause::OtherProcess => "outside/not-pytorch",
            Cause::PrivatePools => "pools/private",
            Cause::Host => "outside/host",
            Cause::Unknown => "unknown",
        };
        let is_sure = failure.backend != Backend::Host && cause != Cause::Unknown;
        let at = failure.user_frame.clone();
        RootCause { code, at, bytes: asked, text: why.to_owned(), is_sure }
    }

    /// What is wrong with a run that did not fail.
    pub(super) fn of_finding(finding: &Finding) -> RootCause {
        RootCause {
            code: told_as(finding.code),
            at: finding.at.clone(),
            bytes: finding.bytes,
            text: finding.title.clone(),
            is_sure: true,
        }
    }

    /// The coarse word for it.
    pub(super) fn coarse(&self) -> Cause {
        match self.code {
            "fragmentation/slack" => Cause::Fragmentation,
            "limit/process" => Cause::Limit,
            "outside/not-pytorch" => Cause::OtherProcess,
            "outside/host" => Cause::Host,
            "pools/private" => Cause::PrivatePools,
            "unknown" => Cause::Unknown,
            it if it == EVALUATION || LEAKS.contains(&it) => Cause::Leak,
            _ => Cause::Size,
        }
    }
}

/// The code that a finding is told as where it is the cause.
pub(super) fn told_as(code: &'static str) -> &'static str {
    if code == "evaluation/unused-graph" { EVALUATION } else { code }
}

/// One part in so many of the card is a large request.
pub(super) const LARGE_PART: u64 = 5;
