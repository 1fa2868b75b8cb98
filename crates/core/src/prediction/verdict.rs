//! What came of the run, where it ran out, and which cards would carry it.

use crate::{
    cards::{self, Card},
    prediction::{
        CardFit, Carries, DeviceRun, Moment, OomPlace, Outcome, Peaks, RunFacts, ScriptExit,
        origins, steps,
    },
    recording::{EndReason, Recording},
    replay::Levels,
    units::Bytes,
};

/// What came of the run.
pub(super) fn outcome(
    recordings: &[Recording],
    runs: &[DeviceRun<'_>],
    card: &Card,
    facts: &RunFacts,
) -> Outcome {
    if recordings.iter().any(|it| it.notes.unsupported.is_some()) {
        return Outcome::ScriptFailed;
    }
    if recordings.iter().any(Recording::ended_out_of_memory) {
        return Outcome::OutOfMemory;
    }
    // The agent ended it because it had seen enough; what the script makes of that is its affair.
    let seen_enough = recordings.iter().any(|it| {
        let end = it.notes.end.as_ref();
        end.is_some_and(|it| matches!(it.why, EndReason::Steady | EndReason::Steps))
    });
    if !seen_enough && facts.exit != ScriptExit::Code(0) || runs.is_empty() {
        return Outcome::ScriptFailed;
    }
    // The phantom refuses what the card does not have. A recording from elsewhere had another card.
    let has_capacity = recordings.iter().any(|it| it.phantom.is_some());
    let over = runs.first().is_some_and(|it| card.total < it.peaks(card).device);
    if over && !has_capacity { Outcome::OutOfMemory } else { Outcome::Fits }
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
            moment.step = moment.step.max(if moment.phase.is_some() { note.step + 1 } else { 0 });
            (note.requested, moment, note.user_frame.clone().or(line))
        }
    };
    let Moment { step, phase } = moment;
    let Levels { allocated, reserved } = levels;
    Some(OomPlace { step, phase, requested, allocated, reserved, free, at: line })
}

/// Every card of the catalogue, the smallest first, and whether it carries a run that took `peak` on
/// `imitated`, of it `unavoidable` for more than scratch memory, with a PyTorch that has kernels for
/// `architectures` (all, if empty).
pub(super) fn cards(
    imitated: &Card,
    (peak, unavoidable): (Peaks, Bytes),
    other: Bytes,
    (outcome, oom): (Outcome, Option<&OomPlace>),
    architectures: &[u32],
) -> Vec<CardFit> {
    // Machine code runs on its own major version, from its own minor version on.
    let has_kernels = |card: &Card| {
        let (major, minor) = card.compute_capability;
        let runs = |&it: &u32| it / 10 == major && it % 10 <= minor;
        architectures.is_empty() || architectures.iter().any(runs)
    };
    let left = |card: &Card| card.total.saturating_sub(card.context);
    // What ran out on this card runs out on every card that has no more.
    let ran_out = oom.filter(|it| it.free.is_some_and(|free| free < it.requested));
    let too_little = ran_out.map(|_| left(imitated));
    // And it needs at least this.
    let needed = oom.map_or(Bytes::ZERO, |it| it.allocated + it.requested);
    let fit = |card: &'static Card| {
        let fixed = other + card.context;
        let allocated = unavoidable.max(needed);
        let is_no_larger = too_little.is_some_and(|it| left(card) <= it);
        let carries = if !has_kernels(card) {
            Carries::NoKernels
        } else if card.total < allocated + fixed || is_no_larger {
            Carries::No
        } else if outcome != Outcome::Fits {
            Carries::Unknown
        } else if card.total < peak.reserved.max(peak.allocated) + fixed {
            Carries::Tight
        } else {
            Carries::Yes
        };
        CardFit { card, carries }
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
