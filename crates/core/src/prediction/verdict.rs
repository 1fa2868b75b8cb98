//! What came of the run, where it ran out, and which cards would carry it.

use std::collections::BTreeSet;

use crate::{
    cards::{self, Card},
    prediction::{
        CardFit, Carries, Counted, DeviceRun, Moment, OomPlace, Outcome, Peaks, RunFacts,
        ScriptExit, Seen, StepGrowth, origins, steps,
    },
    recording::{End, EndReason, Later, Mark, MarkKind, Phase, Recording},
    replay::Levels,
    units::Bytes,
};

/// What came of the run. This is the one place that decides.
pub(super) fn outcome(
    recordings: &[Recording],
    runs: &[DeviceRun<'_>],
    (growth, oom): (Option<&StepGrowth>, Option<&OomPlace>),
    card: &Card,
    facts: &RunFacts,
) -> Outcome {
    if recordings.iter().any(|it| it.notes.unsupported.is_some()) {
        return Outcome::ScriptFailed;
    }
    if recordings.iter().any(Recording::ended_out_of_memory) {
        // Without what it had grown by it would have gone on.
        let room = |it: &StepGrowth| card.usable() + it.grown;
        let is_why = growth.zip(oom).is_some_and(|(growth, oom)| {
            runs.first().is_some_and(|run| {
                let beside = run.context(card) + run.other(card);
                // All that had grown was to be joined at last: what stays does not say when a larger card runs out.
                let is_first = || run.replay.blocks.iter().all(|it| it.size < oom.requested);
                if growth.grown.0 / 10 * 9 <= oom.requested.0 && is_first() {
                    return false;
                }
                oom.allocated + oom.requested + beside <= room(growth)
            })
        });
        return if is_why { Outcome::Grows } else { Outcome::OutOfMemory };
    }
    // What an engine refuses in its own numbers is an answer, however the script goes on.
    if recordings.iter().any(|it| it.notes.engine.as_ref().is_some_and(|it| it.refused.is_some())) {
        return Outcome::OutOfMemory;
    }
    // Whatever the script makes of it: on a card the call fails, or the handle of a library cannot be made.
    if recordings.iter().any(|it| it.lacked() != Bytes::ZERO) {
        return Outcome::OutOfMemory;
    }
    // The agent ended it because it had seen enough; what the script makes of that is its affair.
    let seen_enough = recordings.iter().any(|recording| {
        let end = recording.notes.end.as_ref();
        end.is_some_and(|it| matches!(it.why, EndReason::Steady | EndReason::Steps))
    });
    let failed = !seen_enough && facts.exit != ScriptExit::Code(0) || an_engine_failed(recordings);
    if failed || a_rank_never_trained(recordings) || runs.is_empty() || never_trained(recordings) {
        return Outcome::ScriptFailed;
    }
    // The phantom refuses what the card does not have. A recording from elsewhere had another card.
    let has_capacity = recordings.iter().any(|it| it.phantom.is_some());
    let over = runs.first().is_some_and(|it| card.usable() + card.lent < it.peaks(card).device);
    if over && !has_capacity {
        return Outcome::OutOfMemory;
    }
    if growth.is_some() { Outcome::Grows } else { Outcome::Fits }
}

/// Whether a process of a serving engine, or the one that started it, ended with an error. The script may end as if all were well.
fn an_engine_failed(recordings: &[Recording]) -> bool {
    let raised = |it: &Recording| {
        let end = it.notes.end.as_ref();
        end.is_some_and(|it| it.why == EndReason::Exception && it.exception.is_some())
    };
    recordings.iter().any(|it| it.notes.engine.is_some()) && recordings.iter().any(raised)
}

/// Whether a rank of the job raised an exception before it trained, while others did: what they need says nothing of it. One that raises later
/// may miss a rank that had ended because enough was seen.
fn a_rank_never_trained(recordings: &[Recording]) -> bool {
    const FEW: u32 = 2;
    let steps = |it: &Recording| it.notes.end.as_ref().map_or(0, |it| it.steps);
    let most = recordings.iter().map(steps).max().unwrap_or(0);
    recordings.iter().any(|it| {
        let is_rank = it.notes.begin.as_ref().is_some_and(|it| it.rank.is_some() && !it.is_child);
        let raised = it.notes.end.as_ref().is_some_and(|it| it.exception.is_some());
        is_rank && raised && steps(it) < most.min(FEW)
    })
}

/// Whether a gradient scaler left out a step of the optimizer.
pub(super) fn skipped(recordings: &[Recording]) -> bool {
    recordings.iter().filter_map(|it| it.phantom.as_ref()).any(|it| it.overflows_found != 0)
}

/// Whether a script that has an optimizer came to its end without one training step: it caught an error, or there was
/// nothing left to do. What it took says nothing of the training. Steps that a gradient scaler skips are steps.
pub(super) fn never_trained(recordings: &[Recording]) -> bool {
    let ends = || recordings.iter().filter_map(|it| it.notes.end.as_ref());
    let mut training = ends().filter(|it| it.has_optimizer).peekable();
    let came_to_its_end = |it: &End| it.why == EndReason::Exit;
    ends().any(came_to_its_end)
        && training.peek().is_some()
        && training.all(|it| it.steps == 0)
        && !skipped(recordings)
}

/// How much of the script the run went through, as the process saw it that took most.
pub(super) fn seen(recordings: &[Recording], run: &DeviceRun<'_>) -> Seen {
    let stopped = |recording: &Recording| {
        let end = recording.notes.end.as_ref();
        end.is_some_and(|end| {
            matches!(end.why, EndReason::Steady | EndReason::Steps | EndReason::Hopeless)
        })
    };
    let steps = run.steps_seen();
    // A teacher is called in each step. One that allocates nothing is of a model on the CPU.
    let marks = &run.recording.notes.marks;
    let is_of_device = |at: usize, begin: &Mark| {
        let end = marks[at..].iter().find(|it| it.kind == MarkKind::End(Phase::Evaluation));
        end.is_none_or(|it| it.place.allocs != begin.place.allocs)
    };
    let with_one: BTreeSet<u32> = (marks.iter().enumerate())
        .filter(|(_, it)| it.kind == MarkKind::Begin(Phase::Evaluation))
        .filter(|(at, it)| is_of_device(*at, it))
        .map(|(_, it)| it.step)
        .collect();
    let n = u32::try_from(with_one.len()).unwrap_or(u32::MAX);
    let evaluation = 0 < n && n <= steps / 2 + 1;
    let was_cut_short = |it: &Recording| stopped(it) || it.ended_out_of_memory();
    let whole = !recordings.iter().any(was_cut_short);
    // A run that went on to see one knows.
    let later = run.recording.notes.end.as_ref().and_then(|it| it.later);
    let is_awaited = |it: Later| it.epochs_cut && it.spoken_of && !it.evaluation;
    let was_cut = |it: Later| it.epochs_cut || it.evaluation_cut;
    let end = run.recording.notes.end.as_ref();
    Seen {
        steps,
        counted: run.counted(),
        whole: whole && !later.is_some_and(was_cut),
        ended: whole && !later.is_some_and(is_awaited),
        evaluation: later.map_or(evaluation, |it| it.evaluation),
        awaits_evaluation: end.is_some_and(|it| it.awaited.is_some()),
        mentions: end.map(|it| it.mentions).unwrap_or_default(),
        brought_forward: later.is_some_and(|it| it.brought_forward),
        went_on: later.is_some(),
        evaluation_cut: later.is_some_and(|it| it.evaluation_cut),
        epochs_cut: later.is_some_and(|it| it.epochs_cut),
        ahead: end.map(|it| it.ahead).unwrap_or_default(),
    }
}

/// Where memory ran out.
pub(super) fn oom(recordings: &[Recording], runs: &[DeviceRun<'_>]) -> Option<OomPlace> {
    let ended = recordings.iter().filter(|it| it.ended_out_of_memory());
    let note = ended.into_iter().find_map(|it| it.notes.ooms.last().map(|note| (it.pid, note)));
    let run = runs
        .iter()
        .find(|it| note.is_some_and(|(pid, note)| it.is(pid, note.device)))
        .or_else(|| runs.iter().find(|it| it.oom.is_some()));
    let event = run.and_then(|it| it.oom);
    let levels = run
        .zip(event)
        .map(|(run, event)| steps::curve(run.device, &run.replay, &run.timeline, Some(event)).at);
    let levels = levels.unwrap_or_default();
    let recorded = run.zip(event).map(|(run, event)| {
        let recorded = run.device.events.get(event.index());
        let moment = run.moment(event);
        let line = origins::line_of(run.trace, &run.stacks, recorded.stack);
        (recorded, moment, line)
    });
    let free = recorded.as_ref().map(|(event, ..)| Bytes(event.address));
    let (requested, moment, line) = match (note, recorded) {
        (None, None) => return None,
        (None, Some((event, moment, line))) => (event.size, moment, line),
        (Some((_, note)), recorded) => {
            let (mut moment, line) = match recorded {
                Some((_, moment, line)) => (moment, line),
                None => (Moment { step: 0, phase: None }, None),
            };
            moment.phase = note.phase.or(moment.phase);
            // Whatever stage the stacks suggest, a phase belongs to a step.
            let is_before = (note.step, moment.phase) == (0, Some(Phase::Evaluation));
            let is_of_step = moment.phase.is_some() && !is_before;
            moment.step = moment.step.max(if is_of_step { note.step + 1 } else { 0 });
            (note.requested, moment, note.user_frame.clone().or(line))
        }
    };
    // Without steps, passes count.
    let passes = run.filter(|it| it.counted() == Counted::ForwardPasses);
    let passes = passes.map_or(0, DeviceRun::steps_seen);
    let Moment { mut step, phase } = moment;
    if step == 0 && passes != 0 {
        step = passes + 1;
    }
    let Levels { allocated, reserved } = levels;
    Some(OomPlace { step, phase, requested, allocated, reserved, free, at: line })
}

/// Every card of the catalogue, the smallest first, and whether it carries a run that took `peak` on
/// `imitated` and is safe with `allowance` more, of it `unavoidable` for more than scratch memory, with a
/// PyTorch that has kernels for `architectures` (all, if empty). `limit`: what the script let its allocator take there, which is a share
/// of the card.
pub(super) fn cards(
    imitated: &Card,
    (peak, unavoidable, allowance): (Peaks, Bytes, Bytes),
    other: Bytes,
    (outcome, oom, growth): (Outcome, Option<&OomPlace>, Option<&StepGrowth>),
    architectures: &[u32],
    limit: Option<Bytes>,
) -> Vec<CardFit> {
    // Machine code runs on its own major version, from its own minor version on.
    let has_kernels = |card: &Card| {
        let (major, minor) = card.compute_capability;
        let runs = |&it: &u32| it / 10 == major && it % 10 <= minor;
        architectures.is_empty() || architectures.iter().any(runs)
    };
    // A display and a browser hold as much of any card.
    let usable = |card: &Card| card.total.saturating_sub(imitated.beside);
    let allowed = |card: &Card| {
        let share = limit.map(|it| u128::from(it.0) * u128::from(card.total.0));
        let share = share.map(|it| it / u128::from(imitated.total.0.max(1)));
        share.map_or(Bytes(u64::MAX), |it| Bytes(u64::try_from(it).unwrap_or(u64::MAX)))
    };
    let left = |card: &Card| usable(card).saturating_sub(card.context).min(allowed(card));
    // What ran out on this card runs out on every card that has no more.
    let ran_out =
        oom.filter(|it| limit.is_some() || it.free.is_some_and(|free| free < it.requested));
    let too_little = ran_out.map(|_| left(imitated));
    // And it needs at least this.
    let needed = oom.map_or(Bytes::ZERO, |it| it.allocated + it.requested);
    let fit = |card: &'static Card| {
        let fixed = other + card.context;
        let allocated = unavoidable.max(needed);
        let is_no_larger = too_little.is_some_and(|it| left(card) <= it);
        // What grows has no peak to compare with.
        let runs_out_at =
            growth.filter(|_| outcome == Outcome::Grows).map(|growth| match growth.runs_out_at {
                // It knows what this one's context takes, and when it died.
                known if card.id == imitated.id && card.total == imitated.total => known,
                _ => growth.runs_out_with(usable(card).saturating_sub(fixed)),
            });
        let carries = if !has_kernels(card) {
            Carries::NoKernels
        } else if let Some(step) = runs_out_at {
            if step <= 1 { Carries::No } else { Carries::Grows }
        } else if usable(card) < allocated + fixed || allowed(card) < allocated || is_no_larger {
            Carries::No
        } else if outcome != Outcome::Fits {
            Carries::Unknown
        } else if usable(card) < peak.reserved.max(peak.allocated) + fixed + allowance
            || allowed(card) < peak.reserved + allowance
        {
            Carries::Tight
        } else {
            Carries::Yes
        };
        let runs_out_at = runs_out_at.filter(|_| carries == Carries::Grows);
        CardFit { card, carries, runs_out_at }
    };
    let mut res: Vec<CardFit> = cards::catalogue().iter().map(fit).collect();
    res.sort_by_key(|it| (it.card.total, &it.card.id));
    res
}

impl DeviceRun<'_> {
    fn is(&self, pid: u32, device: usize) -> bool {
        self.recording.pid == pid && self.index == device
    }
}

/// Where a caught out-of-memory error was, for a note: how many there were in all.
pub(super) fn caught_ooms(recording: &Recording) -> usize {
    let all = recording.notes.ooms.len();
    all - usize::from(all != 0 && recording.ended_out_of_memory())
}
