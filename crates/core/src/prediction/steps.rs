//! How memory goes from step to step.

use crate::{
    prediction::{StepPeaks, timeline::Timeline},
    replay::{Levels, Replay},
    trace::{DeviceTrace, EventId},
    units::Bytes,
};

/// The largest levels of a part of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Highest {
    pub(crate) allocated: Bytes,
    pub(crate) reserved: Bytes,
}

impl Highest {
    fn rise(&mut self, levels: Levels) {
        self.allocated = self.allocated.max(levels.allocated);
        self.reserved = self.reserved.max(levels.reserved);
    }
}

/// The curve, and the levels at one event.
pub(crate) struct Curve {
    pub(crate) steps: Vec<StepPeaks>,
    /// Everything up to the end of the first step.
    pub(crate) first: Option<Highest>,
    /// All finished steps after the first.
    pub(crate) later: Option<Highest>,
    /// After the event that was asked for.
    pub(crate) at: Levels,
}

/// Peaks of each step, and the levels after event `at`.
pub(crate) fn curve(
    device: &DeviceTrace,
    replay: &Replay,
    timeline: &Timeline,
    at: Option<EventId>,
) -> Curve {
    let mut res = Curve { steps: Vec::new(), first: None, later: None, at: Levels::default() };
    // What a step begins with counts for it too.
    let mut before = Levels { reserved: replay.reserved_before, ..Levels::default() };
    let mut highest = Highest::default();
    highest.rise(before);
    let mut ends = timeline.step_ends.iter().copied().peekable();
    let mut step = 1;
    let mut finish = |highest: Highest, after: Levels, step: u32, unfinished: bool| {
        res.steps.push(StepPeaks {
            step,
            allocated: highest.allocated,
            reserved: highest.reserved,
            allocated_after: after.allocated,
            unfinished,
        });
        if step == 1 && !unfinished {
            res.first = Some(highest);
        } else if !unfinished {
            let later = res.later.get_or_insert_default();
            later.allocated = later.allocated.max(highest.allocated);
            later.reserved = later.reserved.max(highest.reserved);
        }
    };
    for (id, levels) in replay.levels(&device.events) {
        while ends.next_if(|end| *end <= id).is_some() {
            finish(highest, before, step, false);
            step += 1;
            highest = Highest::default();
            highest.rise(before);
        }
        highest.rise(levels);
        before = levels;
        if at == Some(id) {
            res.at = levels;
        }
    }
    for _ in ends {
        finish(highest, before, step, false);
        step += 1;
        highest = Highest::default();
        highest.rise(before);
    }
    // What comes after the last step is the end of the run, unless it is a step that ran out.
    if at.is_some_and(|at| timeline.step_ends.last().is_none_or(|last| *last <= at)) {
        finish(highest, before, step, true);
    }
    res
}
