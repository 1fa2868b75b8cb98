//! The peaks of the phases of a run that people know: loading, the first step, later steps, the first evaluation, saving, merging.

use crate::{
    prediction::{Peaks, PhasePeak, RunPhase, device_run::DeviceRun, evaluation, timeline::Stage},
    trace::EventId,
    units::Bytes,
};

/// What raises reserved memory by fewer per cent of the peak decides nothing.
const MUCH: f64 = 2.0;

/// Each phase that the run went through, in the order in which they began, with `fixed` on the device beside what PyTorch reserved; and
/// the one, other than a training step, that decides how much the run needs: where it ran out, or the last that made PyTorch reserve much
/// more than all before it.
pub(super) fn peaks(run: &DeviceRun<'_>, fixed: Bytes) -> (Vec<PhasePeak>, Option<RunPhase>) {
    let mut evaluations = evaluation::evaluations(run).into_iter().peekable();
    let mut is_first_evaluation = true;
    let mut timeline = run.timeline.in_order();
    let mut before = run.replay.levels_before();
    let mut res: Vec<PhasePeak> = Vec::new();
    let (mut most, mut died_in) = (before.reserved, None);
    // What a script makes after it has called a model (a rollout, embeddings) is nothing that it loads.
    let passes = [Stage::Forward, Stage::Evaluation].map(|it| run.timeline.starts(it).next());
    let first_pass = passes.into_iter().flatten().min().unwrap_or(EventId(u32::MAX));
    // By how much each stretch of one phase raised what was reserved most, in their order.
    let mut raises: Vec<(RunPhase, Bytes)> = Vec::new();
    let mut highest: Vec<Option<EventId>> = Vec::new();
    for (event, levels) in run.replay.levels(&run.device.events) {
        while evaluations.next_if(|(_, end)| *end <= event).is_some() {
            is_first_evaluation = false;
        }
        let evaluates = evaluations.peek().is_some_and(|(first, _)| *first <= event);
        let n_steps = timeline.steps_before(event);
        let phase = match timeline.stage(event) {
            Stage::Saving => RunPhase::Saving,
            Stage::Merging => RunPhase::Merging,
            _ if evaluates && is_first_evaluation => RunPhase::FirstEvaluation,
            _ if evaluates => RunPhase::LaterEvaluations,
            Stage::Setup if n_steps == 0 && event < first_pass => RunPhase::Loading,
            _ if n_steps == 0 => RunPhase::FirstStep,
            _ => RunPhase::LaterSteps,
        };
        let raised = levels.reserved.saturating_sub(most);
        most += raised;
        match raises.last_mut().filter(|it| it.0 == phase) {
            Some(last) => last.1 += raised,
            None => raises.push((phase, raised)),
        }
        if run.oom == Some(event) {
            died_in = Some(phase);
        }
        let at = res.iter().position(|it| it.phase == phase).unwrap_or_else(|| {
            res.push(PhasePeak { phase, peak: Peaks::default(), at: None });
            highest.push(None);
            res.len() - 1
        });
        let peak = &mut res[at].peak;
        // What a phase begins with counts for it, too.
        peak.reserved = peak.reserved.max(before.reserved).max(levels.reserved);
        peak.allocated = peak.allocated.max(before.allocated);
        if peak.allocated < levels.allocated {
            peak.allocated = levels.allocated;
            highest[at] = Some(event);
        }
        before = levels;
    }
    for (it, event) in res.iter_mut().zip(highest) {
        it.peak.device = it.peak.reserved + fixed;
        it.at = event.and_then(|event| run.line_at(event));
    }
    let raised_last = raises.iter().rfind(|it| MUCH <= 100.0 * it.1.share_of(most));
    // Without a step nothing is beside it that could need less.
    let trains = res.iter().any(|it| it.phase.is_step());
    let deciding = died_in.or_else(|| raised_last.filter(|_| trains).map(|it| it.0));
    (res, deciding.filter(|it| !it.is_step()))
}
