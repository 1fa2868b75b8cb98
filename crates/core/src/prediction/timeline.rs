//! Which step and which part of it each event belongs to. From the agent's marks, which are exact;
//! without them from the stacks, as far as these go.

use crate::{
    prediction::stacks::{Signs, Stacks},
    recording::{DeviceStats, Mark, MarkKind, Notes, Phase, Place},
    replay::Replay,
    trace::{DeviceTrace, EventId},
};

/// A part of a run. The phases that the agent marks, and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the first phase: the model is made and moved, the first batch perhaps loaded.
    Setup,
    /// Between the optimizer and the next forward pass: a batch is loaded, values are logged.
    Between,
    /// A module's forward pass in training.
    Forward,
    /// After a forward pass and before anything else: the loss.
    Loss,
    /// `backward()`.
    Backward,
    /// After `backward()` and before anything else: clipping, or the next micro-batch is loaded.
    AfterBackward,
    /// `optimizer.step()`.
    Optimizer,
    /// `zero_grad()`.
    ZeroGrad,
    /// A forward pass that is not training.
    Evaluation,
    /// A model is saved.
    Saving,
    /// Adapters are merged into the weights below them.
    Merging,
}

impl Stage {
    /// The phase that people know it as.
    pub(crate) fn phase(self) -> Option<Phase> {
        match self {
            Stage::Forward | Stage::Loss => Some(Phase::Forward),
            Stage::Backward => Some(Phase::Backward),
            Stage::Optimizer => Some(Phase::Optimizer),
            Stage::ZeroGrad => Some(Phase::ZeroGrad),
            Stage::Evaluation => Some(Phase::Evaluation),
            Stage::Saving => Some(Phase::Saving),
            Stage::Merging => Some(Phase::Merging),
            Stage::Setup | Stage::Between | Stage::AfterBackward => None,
        }
    }

    fn of(phase: Phase) -> Stage {
        match phase {
            Phase::Forward => Stage::Forward,
            Phase::Backward => Stage::Backward,
            Phase::Optimizer => Stage::Optimizer,
            Phase::ZeroGrad => Stage::ZeroGrad,
            Phase::Evaluation => Stage::Evaluation,
            Phase::Saving => Stage::Saving,
            Phase::Merging => Stage::Merging,
        }
    }
}

/// A stretch of events of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Its first event; it ends where the next one begins.
    first: EventId,
    stage: Stage,
}

/// The run, cut into stages and steps.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// Invariant: sorted, the first begins with event 0, no two neighbours have the same stage.
    stretches: Vec<Stretch>,
    /// The first event after each finished step, in order.
    pub(crate) step_ends: Vec<EventId>,
    /// The marks are the agent's, rather than read from stacks.
    pub(crate) marked: bool,
    /// The first event after the agent's last mark: from here on the run only ends.
    pub(crate) last_mark: Option<EventId>,
    /// How many events there are.
    end: EventId,
}

impl Timeline {
    /// The stage of `event`.
    pub(crate) fn stage(&self, event: EventId) -> Stage {
        self.stretches[self.stretch_of(event)].stage
    }

    /// The first event after the stretch that `event` lies in.
    pub(crate) fn stretch_end(&self, event: EventId) -> EventId {
        self.stretches.get(self.stretch_of(event) + 1).map_or(self.end, |it| it.first)
    }

    /// The first event after `event` that begins a stretch of `stage`.
    pub(crate) fn next(&self, stage: Stage, event: EventId) -> Option<EventId> {
        let later = &self.stretches[self.stretch_of(event) + 1..];
        later.iter().find(|it| it.stage == stage).map(|it| it.first)
    }

    /// Where each stretch of `stage` begins, in order.
    pub(crate) fn starts(&self, stage: Stage) -> impl Iterator<Item = EventId> {
        self.stretches.iter().filter(move |it| it.stage == stage).map(|it| it.first)
    }

    /// Each stretch of one stage: its first event, the first event after it, and the stage.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (EventId, EventId, Stage)> {
        let ends = self.stretches.iter().skip(1).map(|it| it.first).chain([self.end]);
        self.stretches.iter().zip(ends).map(|(it, end)| (it.first, end, it.stage))
    }

    /// Whether the run has any stretch of `stage`.
    pub(crate) fn has(&self, stage: Stage) -> bool {
        self.stretches.iter().any(|it| it.stage == stage)
    }

    /// The stage and the finished steps of events that come in order: each is found from the one before.
    pub(crate) fn in_order(&self) -> InOrder<'_> {
        InOrder { timeline: self, stretch: 0, steps: 0 }
    }

    /// How many steps were finished before `event`.
    pub(crate) fn steps_before(&self, event: EventId) -> u32 {
        let n = self.step_ends.partition_point(|it| *it <= event);
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// How many events there are: the place after the last one.
    pub(crate) fn end(&self) -> EventId {
        self.end
    }

    fn stretch_of(&self, event: EventId) -> usize {
        self.stretches.partition_point(|it| it.first <= event).saturating_sub(1)
    }
}

/// See [`Timeline::in_order`].
pub(crate) struct InOrder<'a> {
    timeline: &'a Timeline,
    stretch: usize,
    steps: usize,
}

impl InOrder<'_> {
    /// As [`Timeline::stage`].
    pub(crate) fn stage(&mut self, event: EventId) -> Stage {
        let stretches = &self.timeline.stretches;
        while stretches.get(self.stretch + 1).is_some_and(|it| it.first <= event) {
            self.stretch += 1;
        }
        stretches[self.stretch].stage
    }

    /// As [`Timeline::steps_before`].
    pub(crate) fn steps_before(&mut self, event: EventId) -> u32 {
        while self.timeline.step_ends.get(self.steps).is_some_and(|it| *it <= event) {
            self.steps += 1;
        }
        u32::try_from(self.steps).unwrap_or(u32::MAX)
    }
}

/// Turns a [`Place`] of the agent into an event: the first one after it.
pub(crate) struct Places<'a> {
    replay: &'a Replay,
    device: usize,
    /// Allocations and frees that the recording has lost at its beginning.
    lost: (u64, u64),
}

impl Places<'_> {
    pub(crate) fn new<'a>(replay: &'a Replay, device: usize, stats: &[DeviceStats]) -> Places<'a> {
        let lost = |total: u64, seen: usize| total.saturating_sub(seen as u64);
        let stats = stats.iter().find(|it| it.device == device);
        let lost = stats.map_or((0, 0), |stats| {
            (lost(stats.allocs, replay.blocks.len()), lost(stats.frees, replay.freed.len()))
        });
        Places { replay, device, lost }
    }

    /// The first event after `place`.
    pub(crate) fn event(&self, place: &Place) -> EventId {
        let Replay { blocks, freed, .. } = self.replay;
        let nth = |counts: &[u64], lost: u64| {
            let n = counts.get(self.device).copied().unwrap_or(0).checked_sub(lost)?;
            usize::try_from(n).ok()?.checked_sub(1)
        };
        let alloc = nth(&place.allocs, self.lost.0)
            .and_then(|it| blocks.get(it.min(blocks.len().saturating_sub(1))))
            .map_or(0, |it| it.alloc.0 + 1);
        let free = nth(&place.frees, self.lost.1)
            .and_then(|it| freed.get(it.min(freed.len().saturating_sub(1))))
            .map_or(0, |it| it.event.0 + 1);
        EventId(alloc.max(free))
    }
}

/// The timeline of one device, from the agent's marks if it made any.
pub(crate) fn timeline(
    device: &DeviceTrace,
    notes: &Notes,
    places: &Places<'_>,
    stacks: &Stacks,
) -> Timeline {
    let end = EventId(u32::try_from(device.events.len()).unwrap_or(u32::MAX));
    let mut marks: Vec<(EventId, &Mark)> =
        notes.marks.iter().map(|it| (places.event(&it.place), it)).collect();
    // The steps of a program without optimizer are written at the end.
    marks.sort_by_key(|(event, _)| *event);
    let step_ends: Vec<EventId> = marks
        .iter()
        .filter(|(_, mark)| mark.kind == MarkKind::StepEnd)
        .map(|(event, _)| *event)
        .collect();
    let marked = marks.iter().any(|(_, it)| matches!(it.kind, MarkKind::Begin(_)));
    let phases =
        if marked { phases_from_marks(&marks) } else { phases_from_stacks(device, stacks) };
    let stretches = fill_between(phases);
    let step_ends = if step_ends.is_empty() && !marked {
        steps_from_stages(&stretches, end)
    } else {
        step_ends
    };
    let last_mark = marks.last().map(|(event, _)| *event);
    Timeline { stretches, step_ends, marked, last_mark, end }
}

/// Where the phase changes, and to what.
fn phases_from_marks(marks: &[(EventId, &Mark)]) -> Vec<(EventId, Option<Phase>)> {
    let mut open: Vec<Phase> = Vec::new();
    let mut res = Vec::new();
    for (event, mark) in marks {
        match mark.kind {
            MarkKind::Begin(phase) => open.push(phase),
            MarkKind::End(phase) => {
                // A phase left by an exception may have lost its end; the outer one's end says so.
                if let Some(at) = open.iter().rposition(|it| *it == phase) {
                    open.truncate(at);
                }
            }
            MarkKind::StepEnd | MarkKind::TrainingBegin => continue,
        }
        // What checkpointing computes again inside `backward` is part of the backward pass.
        let outer = [Phase::Evaluation, Phase::Backward].into_iter().find(|it| open.contains(it));
        res.push((*event, outer.or(open.last().copied())));
    }
    res
}

/// The same from who allocated and freed. Autograd's threads run no Python, so an allocation without
/// a stack, where others have one, is theirs.
fn phases_from_stacks(device: &DeviceTrace, stacks: &Stacks) -> Vec<(EventId, Option<Phase>)> {
    let mut res: Vec<(EventId, Option<Phase>)> = Vec::new();
    if !stacks.recorded {
        return res;
    }
    // A free may carry the stack of its allocation, which says nothing about now.
    for (id, stack) in device.events.allocations() {
        let signs = stacks.signs(stack);
        let phase = if stacks.is_autograds(stack) {
            Some(Phase::Backward)
        } else {
            [
                (Signs::RECOMPUTE, Phase::Backward),
                (Signs::BACKWARD, Phase::Backward),
                (Signs::OPTIMIZER, Phase::Optimizer),
                (Signs::ZERO_GRAD, Phase::ZeroGrad),
                (Signs::MODULE, Phase::Forward),
            ]
            .into_iter()
            .find_map(|(sign, phase)| signs.has(sign).then_some(phase))
        };
        if res.last().is_none_or(|(_, it)| *it != phase) {
            res.push((id, phase));
        }
    }
    res
}

/// Names the stretches between phases by what came before.
fn fill_between(phases: Vec<(EventId, Option<Phase>)>) -> Vec<Stretch> {
    let mut res = vec![Stretch { first: EventId(0), stage: Stage::Setup }];
    let mut between = Stage::Setup;
    for (first, phase) in phases {
        let stage = phase.map_or(between, Stage::of);
        match stage {
            Stage::Forward => between = Stage::Loss,
            Stage::Backward => between = Stage::AfterBackward,
            Stage::Optimizer => between = Stage::Between,
            Stage::Evaluation if between != Stage::Setup => between = Stage::Between,
            // `zero_grad` may stand anywhere in a step.
            _ => {}
        }
        while res.last().is_some_and(|it| it.first == first && first != EventId(0)) {
            res.pop();
        }
        match res.last_mut() {
            Some(last) if last.first == first => last.stage = stage,
            Some(last) if last.stage == stage => {}
            _ => res.push(Stretch { first, stage }),
        }
    }
    res
}

/// Where no step is marked, one ends with the optimizer's last allocation before the next forward
/// pass; an optimizer that allocates only once (SGD with momentum) or never leaves the backward passes
/// to count. A program that calls no module shows no forward pass; its next backward pass stands for it.
fn steps_from_stages(stretches: &[Stretch], end: EventId) -> Vec<EventId> {
    let has_forward = stretches.iter().any(|it| it.stage == Stage::Forward);
    let next = if has_forward { Stage::Forward } else { Stage::Backward };
    let by_optimizer = ends_of(Stage::Optimizer, next, stretches, end);
    if 1 < by_optimizer.len() {
        by_optimizer
    } else {
        ends_of(Stage::Backward, next, stretches, end)
    }
}

/// The ends of the last stretches of `last_of_step` before each that is `next`.
fn ends_of(last_of_step: Stage, next: Stage, stretches: &[Stretch], end: EventId) -> Vec<EventId> {
    let mut res = Vec::new();
    let mut step_end = None;
    for (at, stretch) in stretches.iter().enumerate() {
        if stretch.stage == next {
            res.extend(step_end.take());
        }
        if stretch.stage == last_of_step {
            step_end = Some(stretches.get(at + 1).map_or(end, |it| it.first));
        }
    }
    res.extend(step_end);
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(phases: &[(u32, Option<Phase>)]) -> Vec<(u32, Stage)> {
        let phases = phases.iter().map(|(at, phase)| (EventId(*at), *phase)).collect();
        fill_between(phases).into_iter().map(|it| (it.first.0, it.stage)).collect()
    }

    #[test]
    fn what_lies_between_is_named_by_what_came_before() {
        let found = stages(&[
            (5, Some(Phase::Forward)),
            (9, None),
            (11, Some(Phase::ZeroGrad)),
            (12, None),
            (14, Some(Phase::Backward)),
            (20, None),
            (22, Some(Phase::Optimizer)),
            (30, None),
            (33, Some(Phase::Forward)),
        ]);
        assert_eq!(
            found,
            [
                (0, Stage::Setup),
                (5, Stage::Forward),
                (9, Stage::Loss),
                (11, Stage::ZeroGrad),
                (12, Stage::Loss),
                (14, Stage::Backward),
                (20, Stage::AfterBackward),
                (22, Stage::Optimizer),
                (30, Stage::Between),
                (33, Stage::Forward),
            ]
        );
    }

    #[test]
    fn a_program_that_calls_no_module_steps_by_its_backward_passes() {
        let (backward, optimizer) = (Some(Phase::Backward), Some(Phase::Optimizer));
        let steps = |phases: &[(u32, Option<Phase>)]| {
            let phases = phases.iter().map(|(at, phase)| (EventId(*at), *phase)).collect();
            let ends = steps_from_stages(&fill_between(phases), EventId(20));
            ends.into_iter().map(|it| it.0).collect::<Vec<u32>>()
        };
        assert_eq!(
            steps(&[(2, backward), (4, None), (8, backward), (10, None), (12, backward)]),
            [4, 10, 20]
        );
        assert_eq!(
            steps(&[(2, backward), (4, optimizer), (6, None), (8, backward), (10, optimizer)]),
            [6, 20]
        );
    }

    #[test]
    fn phases_without_events_leave_no_stretch() {
        let found = stages(&[
            (0, Some(Phase::Forward)),
            (4, None),
            (4, Some(Phase::ZeroGrad)),
            (4, None),
            (4, Some(Phase::Backward)),
        ]);
        assert_eq!(found, [(0, Stage::Forward), (4, Stage::Backward)]);
    }

    #[test]
    fn recomputation_in_backward_is_backward_and_evaluation_wins() {
        let mark = |kind| Mark {
            kind,
            step: 0,
            place: Place::default(),
            reserved: Vec::new(),
            allocated: Vec::new(),
            seconds: 0.0,
            with_gradients: false,
            host: None,
            workers: None,
        };
        let marks = [
            mark(MarkKind::Begin(Phase::Backward)),
            mark(MarkKind::Begin(Phase::Forward)),
            mark(MarkKind::End(Phase::Forward)),
            mark(MarkKind::End(Phase::Backward)),
            mark(MarkKind::Begin(Phase::Evaluation)),
            mark(MarkKind::Begin(Phase::Forward)),
            mark(MarkKind::End(Phase::Evaluation)),
        ];
        let marks: Vec<(EventId, &Mark)> = (0..).map(EventId).zip(&marks).collect();
        let phases: Vec<Option<Phase>> =
            phases_from_marks(&marks).into_iter().map(|(_, it)| it).collect();
        let backward = Some(Phase::Backward);
        let evaluation = Some(Phase::Evaluation);
        assert_eq!(phases, [backward, backward, backward, None, evaluation, evaluation, None]);
    }
}
