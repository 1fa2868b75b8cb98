//! A model that is called in evaluation mode with gradients may be evaluated without `no_grad`, or trained on
//! purpose: backward tells, and it comes after the mark.

use crate::recording::{Mark, MarkKind, OomNote, Phase, Place};

/// The mode of a model in a forward phase, and the place of the phase's mark among all marks.
pub(super) struct Mode {
    pub(super) mark: usize,
    pub(super) evaluation: bool,
}

/// Makes evaluations of the forward phases in evaluation mode that no backward pass follows before the next
/// pass in training mode or the end of the step. What the recording's end cuts off is what the one before was, and training if the
/// program `goes_back`: it died where a backward pass was to come.
pub(super) fn settle(marks: &mut [Mark], modes: &[Mode], goes_back: bool) {
    let mut trains = false;
    for (at, mode) in modes.iter().enumerate().filter(|(_, it)| it.evaluation) {
        let next = modes[at..].iter().find(|it| !it.evaluation).map(|it| it.mark);
        let later = &marks[mode.mark + 1..next.unwrap_or(marks.len())];
        let decisive = later.iter().find_map(|mark| match mark.kind {
            MarkKind::Begin(Phase::Backward) => Some(true),
            MarkKind::StepEnd => Some(false),
            _ => None,
        });
        let is_last = at + 1 == modes.len();
        trains = decisive.unwrap_or(next.is_none() && (trains || is_last && goes_back));
        if !trains {
            marks[mode.mark].kind = MarkKind::Begin(Phase::Evaluation);
            marks[mode.mark].with_gradients = true;
            let end =
                marks[mode.mark..].iter_mut().find(|it| it.kind == MarkKind::End(Phase::Forward));
            if let Some(end) = end {
                end.kind = MarkKind::End(Phase::Evaluation);
            }
        }
    }
}

/// Memory that ran out in a forward pass which was none of training did so in an evaluation.
pub(super) fn settle_oom(oom: &mut OomNote, marks: &[Mark]) {
    let so_far = |place: &Place| place.allocs.get(oom.device).copied().unwrap_or(0);
    let is_begin = |mark: &&Mark| {
        matches!(mark.kind, MarkKind::Begin(Phase::Forward | Phase::Evaluation))
            && so_far(&mark.place) <= so_far(&oom.place)
    };
    let last = marks.iter().rfind(is_begin).map(|it| it.kind);
    if (oom.phase, last) == (Some(Phase::Forward), Some(MarkKind::Begin(Phase::Evaluation))) {
        oom.phase = Some(Phase::Evaluation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::agent;

    /// What the passes are, of a run as letters: a pass in training or evaluation mode, a loss, backward, a step.
    fn passes(run: &str) -> String {
        let mark = |what: &str, phase: &str, mode: &str| {
            format!("{{\"kind\":\"mark\",\"what\":\"{what}\",\"phase\":\"{phase}\"{mode}}}\n")
        };
        let pair = |phase: &str, mode: &str| {
            mark("phase_begin", phase, mode) + &mark("phase_end", phase, "")
        };
        let lines = run.chars().map(|it| match it {
            'T' => pair("forward", ",\"mode\":\"training\""),
            'E' => pair("forward", ",\"mode\":\"evaluation\""),
            'l' => pair("forward", ""),
            'n' => pair("evaluation", ""),
            'b' => pair("backward", ""),
            _ => mark("step_end", "", ""),
        });
        let (notes, _) = agent::read(lines.collect::<String>().as_bytes(), &mut Vec::new());
        let open = |it: &Mark| match it.kind {
            MarkKind::Begin(Phase::Forward) => Some('F'),
            MarkKind::Begin(Phase::Evaluation) => Some('V'),
            _ => None,
        };
        let ends = |phase: Phase| {
            let of = |kind: MarkKind| notes.marks.iter().filter(|it| it.kind == kind).count();
            of(MarkKind::Begin(phase)) == of(MarkKind::End(phase))
        };
        assert!(ends(Phase::Forward) && ends(Phase::Evaluation));
        notes.marks.iter().filter_map(open).collect()
    }

    #[test]
    fn a_pass_that_is_no_training_runs_out_in_an_evaluation() {
        let phase_in = |mode: &str| {
            let lines = format!(
                "{{\"kind\":\"mark\",\"what\":\"phase_begin\",\"phase\":\"forward\",\"mode\":\"{mode}\",\"allocs\":[3]}}\n\
                 {{\"kind\":\"oom\",\"device\":0,\"phase\":\"forward\",\"allocs\":[5]}}\n"
            );
            agent::read(lines.as_bytes(), &mut Vec::new()).0.ooms[0].phase
        };
        assert_eq!(phase_in("evaluation"), Some(Phase::Evaluation));
        assert_eq!(phase_in("training"), Some(Phase::Forward));
    }

    #[test]
    fn a_pass_that_died_before_its_backward_pass_is_training() {
        let phase_of = |goes_back: bool| {
            let lines = format!(
                "{{\"kind\":\"mark\",\"what\":\"phase_begin\",\"phase\":\"forward\",\"mode\":\"evaluation\",\"allocs\":[3]}}\n\
                 {{\"kind\":\"oom\",\"device\":0,\"phase\":\"forward\",\"allocs\":[5],\"goes_back\":{goes_back}}}\n"
            );
            agent::read(lines.as_bytes(), &mut Vec::new()).0.ooms[0].phase
        };
        assert_eq!(phase_of(true), Some(Phase::Forward));
        assert_eq!(phase_of(false), Some(Phase::Evaluation));
    }

    #[test]
    fn backward_tells_training_from_evaluation() {
        assert_eq!(passes("Eb|Eb|"), "FF", "trained in evaluation mode");
        assert_eq!(passes("Elb|Enb|"), "FFFV", "with a loss, and a teacher");
        assert_eq!(passes("EEb|EEb|"), "FFFF", "an encoder and a decoder");
        assert_eq!(passes("Tb|Tb|EEETb|"), "FFVVVF", "validated without no_grad");
        assert_eq!(passes("EEEE"), "VVVV");
        assert_eq!(passes("Eb|E"), "FF", "memory ran out in the second step");
        assert_eq!(passes("Tb|E"), "FV");
    }
}
