//! The iteration that each event belongs to: the optimizer's steps, where there are none the backward passes; and after the
//! last one, or in programs without any, forward passes. A model that is called part by part has several of these in a step;
//! after the last step as many are one iteration.

use crate::{
    findings::Case,
    prediction::{
        Counted,
        timeline::{Places, Stage},
    },
    recording::{MarkKind, Phase},
    trace::EventId,
};

/// Fewer optimizer steps than this are no measure.
const LEAST_STEPS: usize = 3;

/// When iterations begin and end.
pub(super) struct Iterations {
    step_ends: Vec<EventId>,
    /// What these are.
    steps_are: Counted,
    /// Where each forward pass begins.
    passes: Vec<EventId>,
    /// From here on passes count.
    from: EventId,
    /// So many of them as a step usually has.
    passes_a_step: u32,
}

impl Iterations {
    pub(super) fn of(case: &Case<'_>) -> Iterations {
        let timeline = &case.run.timeline;
        let notes = &case.run.recording.notes;
        let mut passes: Vec<EventId> = if timeline.marked {
            let places = Places::new(&case.run.replay, case.run.index, &notes.stats);
            let begins = notes.marks.iter().filter(|mark| {
                matches!(mark.kind, MarkKind::Begin(Phase::Forward | Phase::Evaluation))
            });
            begins.map(|it| places.event(&it.place)).collect()
        } else {
            timeline.starts(Stage::Forward).chain(timeline.starts(Stage::Evaluation)).collect()
        };
        passes.sort_unstable();
        let mut step_ends = timeline.step_ends.clone();
        let mut steps_are = case.run.counted();
        if step_ends.len() < LEAST_STEPS {
            let backward = timeline.stretches().filter(|it| it.2 == Stage::Backward);
            let ends: Vec<EventId> = backward.map(|(_, end, _)| end).collect();
            if LEAST_STEPS <= ends.len() {
                (step_ends, steps_are) = (ends, Counted::BackwardPasses);
            }
        }
        let from = if LEAST_STEPS <= step_ends.len() {
            *step_ends.last().unwrap_or(&EventId(0))
        } else {
            EventId(0)
        };
        let passes_before = |end: EventId| passes.partition_point(|it| *it < end);
        let ends = [EventId(0)].into_iter().chain(step_ends.iter().copied());
        let counts: Vec<usize> = ends.map(passes_before).collect();
        let mut a_step: Vec<usize> = counts.windows(2).map(|it| it[1] - it[0]).collect();
        a_step.sort_unstable();
        let usual = a_step.get(a_step.len() / 2).copied().unwrap_or(1).max(1);
        let passes_a_step = u32::try_from(usual).unwrap_or(u32::MAX);
        Iterations { step_ends, steps_are, passes, from, passes_a_step }
    }

    /// The number of the iteration that `event` belongs to, from 0.
    pub(super) fn at(&self, event: EventId) -> u32 {
        let count = |of: &[EventId]| {
            u32::try_from(of.partition_point(|it| *it <= event)).unwrap_or(u32::MAX)
        };
        let passes_before = |event: EventId| {
            u32::try_from(self.passes.partition_point(|it| *it <= event)).unwrap_or(u32::MAX)
        };
        if LEAST_STEPS <= self.step_ends.len() {
            let steps = count(&self.step_ends);
            if event < self.from {
                steps
            } else {
                let passes = passes_before(event).saturating_sub(passes_before(self.from));
                steps + passes / self.passes_a_step
            }
        } else {
            passes_before(event)
        }
    }

    /// Whether steps count at `event`, and not passes.
    pub(super) fn is_in_steps(&self, event: EventId) -> bool {
        LEAST_STEPS <= self.step_ends.len() && event < self.from
    }

    /// The number of the iteration at `event`, for what was made at `made`. The passes of an evaluation after the last step are no more of the
    /// iterations in which steps left something.
    pub(super) fn at_for(&self, event: EventId, made: EventId) -> u32 {
        if self.is_in_steps(made) { self.at(event).min(self.steps()) } else { self.at(event) }
    }

    /// How many had begun by `event`, for what was made at `made`.
    pub(super) fn begun(&self, event: EventId, made: EventId) -> u32 {
        let all = if self.is_in_steps(made) { self.steps() } else { u32::MAX };
        (self.at(event) + 1).min(all)
    }

    fn steps(&self) -> u32 {
        u32::try_from(self.step_ends.len()).unwrap_or(u32::MAX)
    }

    /// What is counted from `event` on.
    pub(super) fn are(&self, event: EventId) -> Counted {
        if self.is_in_steps(event) { self.steps_are } else { Counted::ForwardPasses }
    }

    /// The number of the forward pass that `event` belongs to, wherever it is.
    pub(super) fn pass_at(&self, event: EventId) -> u64 {
        self.passes.partition_point(|it| *it <= event) as u64
    }

    /// There are steps or passes enough to compare them.
    pub(super) fn is_known(&self, case: &Case<'_>) -> bool {
        3 <= self.at(case.last())
    }

    /// The first event of `step`, not after `last`.
    pub(super) fn first_event(&self, step: u32, last: EventId) -> EventId {
        let (mut low, mut high) = (0, last.0);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(EventId(middle)) < step {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        EventId(low)
    }
}
