//! The one cause that a report leads with.

use crate::{
    codes::{Family, ProblemCode},
    failures::{Backend, Cause, Failure},
    findings::{Finding, Weight},
    recording::{CodeLine, Phase},
    units::Bytes,
};

/// Why a request did not fit, or what a run should not do.
#[derive(Clone, Debug, PartialEq)]
pub struct RootCause {
    /// Which: a finding's, or one that no rule looks for.
    pub code: ProblemCode,
    /// The line to look at.
    pub at: Option<CodeLine>,
    /// How much it is about.
    pub bytes: Bytes,
    /// One sentence, without the line.
    pub text: String,
    /// It was replayed or recorded; else it is inferred.
    pub is_sure: bool,
}

impl RootCause {
    /// What the numbers of a message say; nothing is known of lines.
    pub(super) fn of_message(failure: &Failure, cause: Cause, why: &str) -> RootCause {
        let asked = failure.requested.unwrap_or_default();
        let is_large = failure.capacity.is_some_and(|it| it.0 / LARGE_PART < asked.0);
        let code = match cause {
            Cause::Size if is_large => ProblemCode::OneAllocation,
            Cause::Size if failure.phase == Some(Phase::Optimizer) => ProblemCode::ModelStates,
            Cause::Size => ProblemCode::TooLarge,
            Cause::Leak => ProblemCode::PerStep,
            Cause::Fragmentation => ProblemCode::Slack,
            Cause::Limit => ProblemCode::ProcessLimit,
            Cause::OtherProcess => ProblemCode::NotPytorch,
            Cause::PrivatePools => ProblemCode::PrivatePools,
            Cause::Host => ProblemCode::Host,
            Cause::Unknown => ProblemCode::Unknown,
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

    /// Whether it is what `finding` says.
    pub(super) fn is_of(&self, finding: &Finding) -> bool {
        let is_same = told_as(finding.code) == self.code || finding.bytes == self.bytes;
        let is_here = finding.at.is_none() || finding.at == self.at;
        finding.weight != Weight::Fact && is_same && is_here
    }

    /// Whether it is the graphs that gradients have themselves.
    pub(super) fn is_of_derivatives(&self) -> bool {
        self.text.contains(OF_DERIVATIVES)
    }

    /// The coarse word for it.
    pub(super) fn coarse(&self) -> Cause {
        match self.code {
            ProblemCode::Slack => Cause::Fragmentation,
            ProblemCode::ProcessLimit => Cause::Limit,
            ProblemCode::NotPytorch => Cause::OtherProcess,
            ProblemCode::Host => Cause::Host,
            ProblemCode::PrivatePools => Cause::PrivatePools,
            ProblemCode::Unknown => Cause::Unknown,
            it if is_leak(it) => Cause::Leak,
            _ => Cause::Size,
        }
    }
}

/// The code that a finding is told as where it is the cause.
pub(super) fn told_as(code: ProblemCode) -> ProblemCode {
    match code {
        // An evaluation that keeps its graph, whether its results are kept or not.
        ProblemCode::UnusedGraph => ProblemCode::EvalWithoutNoGrad,
        code => code,
    }
}

/// Whether it is about what no step needs again.
pub(super) fn is_leak(code: ProblemCode) -> bool {
    code.family() == Family::Leak || code == ProblemCode::PerStep
}

/// What has graphs for derivatives of derivatives, in a sentence.
pub(super) const OF_DERIVATIVES: &str = "gradients (`create_graph=True`)";

/// One part in so many of the card is a large request.
pub(super) const LARGE_PART: u64 = 5;
