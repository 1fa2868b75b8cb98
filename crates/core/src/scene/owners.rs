//! Whose line each block comes from: the one that `explain` names, for every view.

use std::collections::BTreeMap;

use crate::{
    prediction::{device_run::DeviceRun, origins::Origins, timeline::Stage},
    replay::BlockId,
    scene::{
        Line,
        line::{Code, line_of, lines, name_of},
    },
    trace::{EventId, FrameId, StackId},
};

/// A line that asks for blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    /// None when there is no stack.
    pub(super) frame: Option<FrameId>,
    /// Autograd's threads asked, in the backward pass that the line called.
    pub(super) is_backward: bool,
}

/// The owner of each block.
pub(super) struct Owners {
    /// In the order of their lines.
    pub(super) all: Vec<Owner>,
    of: Vec<u32>,
    /// The stack of each block; of what autograd's threads asked for, the one that called `backward()`.
    stacks: Vec<StackId>,
}

impl Owners {
    /// `before` has the stacks of the blocks from before the recording.
    pub(super) fn of(run: &DeviceRun<'_>, before: &[StackId]) -> Owners {
        let lines = lines(run);
        let origins = origins(run);
        let mut stacks = before.to_vec();
        let mut owners: Vec<Owner> = before
            .iter()
            .map(|it| Owner { frame: lines[it.index()], is_backward: false })
            .collect();
        for (index, block) in (0..).zip(&run.replay.blocks) {
            let stack = origins.stack_of(BlockId(index));
            let frame = lines[stack.index()];
            stacks.push(stack);
            owners.push(Owner { frame, is_backward: is_backward(run, frame, block.alloc) });
        }
        let mut known: BTreeMap<Owner, u32> = owners.iter().map(|it| (*it, 0)).collect();
        known.values_mut().zip(0..).for_each(|(it, index)| *it = index);
        let of = owners.iter().map(|it| known[it]).collect();
        Owners { all: known.into_keys().collect(), of, stacks }
    }

    /// The owner of `life`, as an index of [`Owners::all`].
    pub(super) fn index(&self, life: u32) -> u32 {
        self.of[life as usize]
    }

    /// The owner of `life`.
    pub(super) fn owner(&self, life: u32) -> Owner {
        self.all[self.index(life) as usize]
    }

    /// The stack that `life` comes from.
    pub(super) fn stack(&self, life: u32) -> StackId {
        self.stacks[life as usize]
    }
}

/// Where what `run` asked for comes from.
pub(super) fn origins<'r>(run: &'r DeviceRun<'_>) -> Origins<'r> {
    Origins::new(run.trace, run.device, (&run.replay, &run.timeline, &run.stacks))
}

/// Who asked at `event`, also for what was not given.
pub(super) fn at(run: &DeviceRun<'_>, origins: &Origins<'_>, event: EventId) -> Owner {
    let frame = line_of(run, origins.stack_at(event));
    Owner { frame, is_backward: is_backward(run, frame, event) }
}

/// Whether autograd's threads asked at `event`, where `frame` is the line that it comes from.
fn is_backward(run: &DeviceRun<'_>, frame: Option<FrameId>, event: EventId) -> bool {
    run.stacks.is_autograds(run.device.events.stack(event.index()))
        && (frame.is_some() || run.stacks.recorded && run.timeline.stage(event) == Stage::Backward)
}

/// What people read of `owner`; none when nothing is known.
pub(super) fn name(run: &DeviceRun<'_>, owner: Owner) -> Option<Line> {
    match owner.frame {
        Some(it) => Some(Line { is_backward: owner.is_backward, ..name_of(run, it) }),
        None if owner.is_backward => Some(Line {
            file: String::new(),
            line: 0,
            function: "backward".to_owned(),
            code: Code::Library,
            is_backward: false,
        }),
        None => None,
    }
}
