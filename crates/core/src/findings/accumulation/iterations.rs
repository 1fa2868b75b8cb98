//! The iteration that each event belongs to: the optimizer's steps, and after the last one, or in programs without any,
//! forward passes.

use crate::{
    findings::Case,
    prediction::timeline::{Places, Stage},
    recording::{MarkKind, Phase},
    trace::EventId,
};

/// Fewer optimizer steps than this are no measure.
const LEAST_STEPS: usize = 3;

/// When iterations begin and end.
pub(super) struct Iterations {
    step_ends: Vec<EventId>,
    /// Where each forward pass begins.
    passes: Vec<EventId>,
    /// From here on passes count.
    from: EventId,
}

impl Iterations {
    pub(super) fn of(case: &Case<'_>) -> Iterations {
        let timeline = &case.run.timeline;
        let notes = &case.run.recording.notes;
        let mut passes: Vec<EventId> = if timeline.marked {
            let places = Places::new(&case.run.replay, case.run.index, &notes.stats);
            let begins = notes.marks.iter().filter(|it| {
                matches!(it.kind, MarkKind::Begin(Phase::Forward | Phase::Evaluation))
            });
            begins.map(|it| places.event(&it.place)).collect()
        } else {
            timeline.starts(Stage::Forward).chain(timeline.starts(Stage::Evaluation)).collect()
        };
        passes.sort_unstable();
        let step_ends = timeline.step_ends.clone();
        let from = if LEAST_STEPS <= step_ends.len() {
            *step_ends.last().unwrap_or(&EventId(0))
        } else {
            EventId(0)
        };
        Iterations { step_ends, passes, from }
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
                steps + passes_before(event).saturating_sub(passes_before(self.from))
            }
        } else {
            passes_before(event)
        }
    }

    /// Whether steps count at `event`, and not passes.
    pub(super) fn is_in_steps(&self, event: EventId) -> bool {
        LEAST_STEPS <= self.step_ends.len() && event < self.from
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
