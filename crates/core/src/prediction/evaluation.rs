//! What an evaluation takes by itself: forward passes that are not training, and what lies between them.

use crate::{
    prediction::{
        EvaluationPeak,
        device_run::DeviceRun,
        origins::{self, Live},
        timeline::Stage,
    },
    trace::EventId,
    units::Bytes,
};

/// The evaluation that allocated most beyond what lived before it began, if there was one.
pub(super) fn largest(run: &DeviceRun<'_>) -> Option<EvaluationPeak> {
    let evaluations = evaluations(run);
    if evaluations.is_empty() {
        return None;
    }
    let mut evaluations = evaluations.into_iter().peekable();
    let mut before = run.replay.levels_before().allocated;
    // Of each evaluation: what lived before it, and the most while it went on.
    let mut largest: Option<Found> = None;
    let mut current: Option<Found> = None;
    for (event, levels) in run.replay.levels(&run.device.events) {
        while evaluations.next_if(|(_, end)| *end <= event).is_some() {
            largest = larger(largest, current.take());
        }
        if evaluations.peek().is_some_and(|(first, _)| *first <= event) {
            let it = current.get_or_insert(Found { first: event, before, most: before, at: event });
            if it.most < levels.allocated {
                (it.most, it.at) = (levels.allocated, event);
            }
        }
        before = levels.allocated;
    }
    let Found { first, before, most, at } = larger(largest, current)?;
    let evidence = run.evidence();
    let is_own = |it: &Live| first <= run.replay.blocks[it.block.index()].alloc;
    let own: Vec<Live> = run.live_after(at, &evidence).into_iter().filter(is_own).collect();
    let parts = (&run.replay, &run.timeline, &run.stacks);
    let lines = origins::by_line(run.trace, run.device, parts, &own);
    let at = lines.into_iter().next().map(|it| it.at);
    Some(EvaluationPeak { allocated: most, own: most.saturating_sub(before), at })
}

/// An evaluation under way.
struct Found {
    first: EventId,
    before: Bytes,
    most: Bytes,
    at: EventId,
}

fn larger(one: Option<Found>, other: Option<Found>) -> Option<Found> {
    let own = |it: &Found| it.most.saturating_sub(it.before);
    one.into_iter().chain(other).max_by_key(own)
}

/// The first event of each evaluation, and the first one after it: what lies between two calls of a model in one, and what is done with
/// what the last one gave, belongs to it.
pub(super) fn evaluations(run: &DeviceRun<'_>) -> Vec<(EventId, EventId)> {
    let mut res: Vec<(EventId, EventId)> = Vec::new();
    let mut goes_on = false;
    for (first, end, stage) in run.timeline.stretches() {
        match stage {
            Stage::Evaluation | Stage::Between if goes_on => {
                if let Some(last) = res.last_mut() {
                    last.1 = end;
                }
            }
            Stage::Evaluation => res.push((first, end)),
            Stage::Between => (),
            _ => goes_on = false,
        }
        goes_on |= stage == Stage::Evaluation;
    }
    res
}
