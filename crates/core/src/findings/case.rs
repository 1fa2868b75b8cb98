//! One device of one recording with what all rules ask: levels that count what was there before, the
//! moment that matters, what grows, what window the recording covers.

use std::{collections::BTreeMap, sync::OnceLock};

use crate::{
    codes::RemarkCode,
    findings::{growth::Growth, idle_graph::IdleGraph},
    prediction::{
        Category, Origin,
        categories::Evidence,
        device_run::DeviceRun,
        origins::{self, Live},
        stacks::Signs,
        steps::{self, Curve},
        timeline::Stage,
    },
    recording::CodeLine,
    replay::{BlockId, BlockLife, Levels, Peak},
    trace::{Action, BlockState, EventId, StackId},
    units::Bytes,
};

/// What part of a run a recording covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Events in it.
    pub events: u64,
    /// Blocks that were there before its first event.
    pub blocks_before: u64,
    /// And their bytes.
    pub bytes_before: Bytes,
    /// The recorder saw them made, but their events were overwritten: the ring was too small.
    pub overwritten: bool,
    /// How many allocations were, where something else counted them. Of a plain snapshot nothing did.
    pub overwritten_allocations: Option<u64>,
    /// The recorder did not see them made: it began late.
    pub began_late: bool,
    /// Call stacks were recorded.
    pub stacks: bool,
}

impl Window {
    /// What the recording covers.
    pub(crate) fn of(run: &DeviceRun<'_>) -> Window {
        let events = &run.device.events;
        let mut res = Window {
            events: events.len() as u64,
            stacks: run.stacks.recorded,
            ..Window::default()
        };
        // Blocks that the events end without having made.
        for it in run.replay.freed.iter().filter(|it| it.block.is_none()) {
            res.blocks_before += 1;
            res.bytes_before += it.size;
            res.began_late = true;
        }
        let mut made: Vec<u64> =
            run.replay.blocks.iter().filter(|it| it.free.is_none()).map(|it| it.address).collect();
        made.sort_unstable();
        let held = run.device.blocks.iter().filter(|it| it.state == BlockState::Allocated);
        let mut with_stack = 0_u64;
        for it in held.filter(|it| made.binary_search(&it.address).is_err()) {
            res.blocks_before += 1;
            res.bytes_before += it.size;
            if it.stack == StackId::EMPTY {
                res.began_late = true;
            } else {
                with_stack += 1;
            }
        }
        // A recorder of state only keeps no events, on purpose.
        res.overwritten = 0 < with_stack && !run.replay.blocks.is_empty();
        // Autograd's blocks have no stack either way; if others were overwritten, so were these.
        let stats = run.recording.notes.stats.iter().find(|it| it.device == run.index);
        if let Some(stats) = stats {
            let lost = stats.allocs.saturating_sub(run.replay.blocks.len() as u64);
            if run.recording.notes.begin.is_some() {
                res.overwritten |= 0 < lost;
                res.overwritten_allocations = Some(lost);
            }
        }
        res
    }
}

/// What the rules read.
pub(crate) struct Case<'a> {
    pub(crate) run: &'a DeviceRun<'a>,
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) window: Window,
    /// When most was allocated, what was there before included.
    pub(crate) peak: Peak,
    /// When most was allocated after the last optimizer step: an evaluation that gives everything back
    /// is not seen in the end.
    pub(crate) peak_after_training: EventId,
    /// Reserved at that moment.
    pub(crate) reserved_at_peak: Bytes,
    /// Pending on other streams at that moment.
    pub(crate) pending_at_peak: Bytes,
    /// Allocated, reserved and pending after the last event that is not the end of the run.
    pub(crate) at_end: Levels,
    /// Levels when memory ran out.
    pub(crate) at_oom: Option<Levels>,
    /// The largest failed request that did not end the run, with the levels at that moment.
    pub(crate) caught: Option<(EventId, Levels)>,
    /// The blocks of the recording that were live at the peak.
    pub(crate) live: Vec<Live>,
    /// What was there more and more of, at the peak and in the end.
    pub(crate) growth: Vec<Growth>,
    /// What autograd keeps for a backward pass that will not come, when memory ran out or at the peak.
    pub(crate) idle: Option<IdleGraph>,
    /// Once a rule has asked for it.
    curve: OnceLock<Curve>,
}

impl<'a> Case<'a> {
    /// All but what grows, which is found in the case itself.
    pub(super) fn new(run: &'a DeviceRun<'a>, evidence: &'a Evidence<'a>) -> Case<'a> {
        let window = Window::of(run);
        let mut res = Case {
            run,
            evidence,
            window,
            peak: Peak::default(),
            peak_after_training: EventId(0),
            reserved_at_peak: Bytes::ZERO,
            pending_at_peak: Bytes::ZERO,
            at_end: Levels::default(),
            at_oom: None,
            caught: None,
            live: Vec::new(),
            growth: Vec::new(),
            idle: None,
            curve: OnceLock::new(),
        };
        res.levels();
        res.live = res.live_after(res.peak.event);
        res
    }

    /// One walk over the events.
    fn levels(&mut self) {
        let run = self.run;
        let over = self.evidence.over();
        let completes = run.device.events.actions().contains(&Action::FreeCompleted);
        let trained = run.timeline.step_ends.last().copied().unwrap_or(EventId(0));
        let mut most_after = Bytes::ZERO;
        let mut pending: BTreeMap<u64, Bytes> = BTreeMap::new();
        let mut pending_sum = Bytes::ZERO;
        let start =
            Levels { allocated: run.replay.allocated_before, reserved: run.replay.reserved_before };
        self.peak = Peak { bytes: start.allocated, event: EventId(0) };
        self.reserved_at_peak = start.reserved;
        self.at_end = start;
        for (id, levels) in run.replay.levels(&run.device.events) {
            let event = run.device.events.get(id.index());
            match event.action {
                Action::FreeRequested => {
                    if completes {
                        pending.insert(event.address, event.size);
                        pending_sum += event.size;
                    }
                }
                Action::FreeCompleted => {
                    if let Some(size) = pending.remove(&event.address) {
                        pending_sum = pending_sum.saturating_sub(size);
                    }
                }
                Action::Alloc => {}
                _ => {
                    if run.oom == Some(id) {
                        self.at_oom = Some(levels);
                    } else if event.action == Action::Oom {
                        let size_of = |it: EventId| run.device.events.get(it.index()).size;
                        if self.caught.is_none_or(|(it, _)| size_of(it) < event.size) {
                            self.caught = Some((id, levels));
                        }
                    }
                    continue;
                }
            }
            if self.peak.bytes < levels.allocated {
                self.peak = Peak { bytes: levels.allocated, event: id };
                self.reserved_at_peak = levels.reserved;
                self.pending_at_peak = pending_sum;
            }
            if trained <= id && most_after < levels.allocated {
                most_after = levels.allocated;
                self.peak_after_training = id;
            }
            if id < over {
                self.at_end = levels;
            }
        }
    }

    /// The peaks of each step.
    pub(crate) fn curve(&self) -> &Curve {
        let run = self.run;
        self.curve.get_or_init(|| steps::curve(run.device, &run.replay, &run.timeline, run.oom))
    }

    /// The blocks of the recording that were live after `event`.
    pub(crate) fn live_after(&self, event: EventId) -> Vec<Live> {
        let blocks = (0..).map(BlockId).zip(&self.run.replay.blocks);
        let live = blocks.filter(|(_, it)| it.is_live_after(event));
        live.map(|(block, it)| Live {
            block,
            size: it.size,
            category: self.evidence.category(block),
        })
        .collect()
    }

    /// When memory ran out, or most was allocated.
    pub(crate) fn moment(&self) -> EventId {
        self.run.oom.unwrap_or(self.peak.event)
    }

    /// The stage of that moment. The mark of a pass that ran out ends before the request that failed: what was served last counts.
    pub(crate) fn stage_then(&self) -> Stage {
        let timeline = &self.run.timeline;
        let last = self.run.oom.and_then(|oom| {
            let made = self.run.replay.blocks.partition_point(|it| it.alloc <= oom);
            made.checked_sub(1).map(|it| self.run.replay.blocks[it].alloc)
        });
        timeline.stage(last.unwrap_or(self.peak.event))
    }

    /// What forward passes made and no name is known of, live at the moment that counts, by [`as_rounded`] size.
    pub(crate) fn made_by_passes(&self) -> BTreeMap<u64, Vec<BlockId>> {
        let mut res: BTreeMap<u64, Vec<BlockId>> = BTreeMap::new();
        for it in self.live_after(self.moment()) {
            let is_made = matches!(it.category, Category::Activations | Category::Temporaries)
                && matches!(self.stage(it.block), Stage::Forward | Stage::Loss | Stage::Backward);
            if is_made {
                let size = as_rounded(self.life(it.block).requested);
                res.entry(size).or_default().push(it.block);
            }
        }
        res
    }

    /// The path of the module that asked for `block`, where the agent saw it.
    pub(crate) fn module(&self, block: BlockId) -> Option<&str> {
        let event = self.run.device.events.get(self.life(block).alloc.index());
        self.run.trace.text(event.metadata).strip_prefix("m=").filter(|it| !it.is_empty())
    }

    /// The line of the user's own code that asked for most of `blocks`.
    pub(crate) fn line_of_most(&self, blocks: &[BlockId]) -> Option<CodeLine> {
        let mut by_line: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
        for block in blocks {
            if let Some(line) = self.line(*block) {
                *by_line.entry(line).or_default() += self.life(*block).size;
            }
        }
        by_line.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line)
    }

    pub(crate) fn sum(&self, blocks: &[BlockId]) -> Bytes {
        blocks.iter().map(|it| self.life(*it).size).sum()
    }

    /// The last event that belongs to the run: a program that returns only gives back after it.
    pub(crate) fn last(&self) -> EventId {
        let over = EventId(self.evidence.over().0.saturating_sub(1));
        self.run.replay.blocks.last().map_or(over, |it| over.min(it.alloc))
    }

    pub(crate) fn life(&self, block: BlockId) -> &BlockLife {
        &self.run.replay.blocks[block.index()]
    }

    pub(crate) fn stack(&self, block: BlockId) -> StackId {
        self.run.device.events.stack(self.life(block).alloc.index())
    }

    pub(crate) fn signs(&self, block: BlockId) -> Signs {
        self.run.stacks.signs(self.stack(block))
    }

    pub(crate) fn stage(&self, block: BlockId) -> Stage {
        self.run.timeline.stage(self.life(block).alloc)
    }

    /// The step that `event` lies in, from 1; none before training.
    pub(crate) fn step(&self, event: EventId) -> Option<u32> {
        Some(self.run.moment(event).step).filter(|it| *it != 0)
    }

    /// The line of the user's own code that asked for `block`.
    pub(crate) fn line(&self, block: BlockId) -> Option<CodeLine> {
        self.line_of(self.stack(block))
    }

    /// The line of a library's model below the user's line.
    pub(crate) fn line_of_library(&self, stack: StackId) -> Option<CodeLine> {
        origins::line_of_library(self.run.trace, &self.run.stacks, stack)
    }

    pub(crate) fn line_of(&self, stack: StackId) -> Option<CodeLine> {
        origins::line_of(self.run.trace, &self.run.stacks, stack)
    }

    /// The user's line that called the outermost module: what is kept, is kept by the loop around it.
    pub(crate) fn line_outside(&self, stack: StackId) -> Option<CodeLine> {
        origins::line_outside(self.run.trace, &self.run.stacks, stack)
    }

    /// The line that called the backward pass that made `block`, or the forward pass that it belongs to.
    pub(crate) fn line_of_backward(&self, block: BlockId) -> Option<CodeLine> {
        let run = self.run;
        let parts = (&run.replay, &run.timeline, &run.stacks);
        match origins::Origins::new(run.trace, run.device, parts).of(block) {
            Origin::Line(line) | Origin::BackwardOf(line) => Some(line),
            Origin::Backward | Origin::NoStack => None,
        }
    }

    /// What is live at the peak for each purpose.
    pub(crate) fn by_category(&self) -> BTreeMap<Category, (Bytes, u64)> {
        let mut res: BTreeMap<Category, (Bytes, u64)> = BTreeMap::new();
        for it in &self.live {
            let (bytes, blocks) = res.entry(it.category).or_default();
            *bytes += it.size;
            *blocks += 1;
        }
        res
    }

    /// A part of the peak that is worth a word: `percent` of it, and not less than `least`.
    pub(crate) fn matters(&self, bytes: Bytes, percent: u64, least: Bytes) -> bool {
        least <= bytes && self.peak.bytes.0 / 100 * percent <= bytes.0
    }

    /// Whether the run died in a pass that a backward pass, or the gradient of an input, was to follow: nothing that it keeps waits in vain.
    pub(crate) fn died_before_backward(&self) -> bool {
        let uncaught = self.run.recording.notes.ooms.iter().rfind(|it| it.device == self.run.index);
        self.run.oom.is_some() && uncaught.is_some_and(|it| it.goes_back)
    }

    /// Whether the agent has remarked this of the program.
    pub(crate) fn has_remark(&self, code: RemarkCode) -> bool {
        self.run.recording.notes.remarks.iter().any(|it| it.code == code)
    }

    /// Whether it is the first device that the process used: what is of the whole process is told there.
    pub(crate) fn is_first_device(&self) -> bool {
        DeviceRun::used(self.run.recording).first() == Some(&self.run.index)
    }
}

/// A request as it is recorded where it failed: the allocator rounds it first.
pub(crate) fn as_rounded(it: Bytes) -> u64 {
    it.0.next_multiple_of(512)
}
