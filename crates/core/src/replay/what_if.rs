//! The *what-if* replay: what a recorded program asked for, run freely under other settings.

use std::collections::BTreeMap;

use crate::{
    replay::{
        Config, Levels, Peak, Program, Stats,
        allocator::{Allocator, OutOfMemory, Request},
        driver::FreeDriver,
        heap::State,
        initial::Initial,
        program::Op,
        slot::Slot,
    },
    trace::EventId,
    units::Bytes,
};

/// What would have happened.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// What the allocator counted, up to where it ran out.
    pub stats: Stats,
    /// When the sum of allocated blocks was largest.
    pub peak_allocated: Peak,
    /// When the sum of segments was largest.
    pub peak_reserved: Peak,
    /// Reserved and not allocated, when reserved was largest.
    pub slack_at_peak: Bytes,
    /// Where it ran out for good: at a request that was served in the recording, or at the failure that
    /// ended it. Nothing after that was replayed.
    pub ran_out: Option<RanOut>,
    /// How many requests failed in the recording and here.
    pub failed_again: u64,
    /// How many requests failed in the recording and not here. What the program would have done with
    /// the memory is not in the recording.
    pub served_now: u64,
}

/// A request that could not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanOut {
    /// The event that asked.
    pub event: EventId,
    /// What was asked for.
    pub requested: Bytes,
    /// What the program had.
    pub allocated: Bytes,
    /// What was held from the driver.
    pub reserved: Bytes,
    /// The largest free piece that the request could have used.
    pub largest_hole: Bytes,
    /// The largest free piece of all, other streams' and pools' included.
    pub largest_hole_of_all: Bytes,
}

/// Runs `program` under `config`.
pub fn what_if(program: &Program, config: &Config) -> WhatIf {
    what_if_seen(program, config, &mut |_, _| {})
}

/// The same, and `see` is told the levels after each event that may have changed them.
pub fn what_if_seen(
    program: &Program,
    config: &Config,
    see: &mut dyn FnMut(EventId, Levels),
) -> WhatIf {
    let capacity = config.capacity.map_or(u64::MAX, |it| it.0);
    // Where the allocator would have laid things out otherwise, what was there before is asked for anew.
    let same_layout = program.recorded.as_ref().is_some_and(|recorded| {
        recorded.expandable_segments == config.expandable_segments
            && recorded.large_segment_size == config.large_segment_size
            && recorded.roundup_power2_divisions == config.roundup_power2_divisions
            && recorded.max_split_size == config.max_split_size
    });
    let heap = program.heap.clone();
    let (taken, mapped) =
        if same_layout { (heap.segments(), heap.mapped()) } else { (BTreeMap::new(), 0) };
    let driver =
        FreeDriver::new(capacity.saturating_sub(mapped), &program.script, taken).at(config.places);
    let mut run = Run {
        model: Allocator::new(config.clone(), program.streams.clone(), driver)
            .with_traits(program.traits.clone()),
        slots: Vec::with_capacity(program.n_handles as usize),
        owners: Vec::new(),
        res: WhatIf {
            stats: Stats::default(),
            peak_allocated: Peak::default(),
            peak_reserved: Peak::default(),
            slack_at_peak: Bytes::ZERO,
            ran_out: None,
            failed_again: 0,
            served_now: 0,
        },
    };
    if same_layout {
        run.place(heap);
    } else {
        run.ask_anew(program);
    }
    // The failure that ended the recorded run is its last request.
    let last =
        program.ops.iter().rposition(|it| matches!(it, Op::Alloc { .. } | Op::Failed { .. }));
    let mut changes = program.changes.iter().peekable();
    for (index, (op, event)) in program.ops.iter().zip(&program.events).enumerate() {
        while let Some(change) = changes.next_if(|it| it.from <= *event) {
            run.model.set(run.model.config.changed_by(&change.text));
        }
        if run.res.ran_out.is_some() {
            break;
        }
        run.step(*op, *event, last == Some(index));
        see(*event, run.now());
    }
    run.model.check_invariants();
    run.res.stats = run.model.stats;
    run.res
}

struct Run<'a> {
    model: Allocator<FreeDriver<'a>>,
    /// The block of each handle so far.
    slots: Vec<Slot>,
    /// Whose each slot is, or was last.
    owners: Vec<u32>,
    res: WhatIf,
}

impl Run<'_> {
    /// What was there before the first event stays where it was.
    fn place(&mut self, mut heap: Initial) {
        heap.place(&mut self.model);
        for held in heap.blocks.values() {
            self.keep(held.slot.unwrap_or(Slot::NONE));
        }
        self.levels(EventId(0));
    }

    /// What the program had before the first event is asked for anew, in order of address.
    fn ask_anew(&mut self, program: &Program) {
        for before in &program.initial {
            let request =
                Request { size: before.requested, stream: before.stream, pool: before.pool };
            self.alloc(request, EventId(0));
            if self.res.ran_out.is_some() {
                return;
            }
            if let Some(slot) = self.slots.last().filter(|_| before.pending) {
                self.model.free_requested(*slot);
            }
        }
    }

    /// `is_last` when no request comes after.
    fn step(&mut self, op: Op, event: EventId, is_last: bool) {
        match op {
            Op::Alloc { size, stream, pool } => {
                self.alloc(Request { size, stream: stream.into(), pool }, event);
            }
            Op::Free(handle) => {
                if let Some(slot) = self.slot(handle, State::Allocated) {
                    self.model.free(slot);
                }
            }
            Op::FreeRequested(handle) => {
                if let Some(slot) = self.slot(handle, State::Allocated) {
                    self.model.free_requested(slot);
                }
            }
            Op::FreeCompleted(handle) => {
                // Waiting for all streams may have completed it already, and its slot may be another's.
                if let Some(slot) = self.slot(handle, State::Pending) {
                    self.model.free_completed(slot);
                }
            }
            Op::Failed { size, stream, pool } => {
                self.failed(Request { size, stream: stream.into(), pool }, event, is_last);
            }
            Op::EmptyCache => self.model.release_cached_blocks(),
            Op::DropPool(pool) => self.model.release_private_pool(pool),
        }
    }

    fn alloc(&mut self, request: Request, event: EventId) {
        match self.model.malloc(request) {
            Ok(slot) => {
                self.keep(slot);
                self.levels(event);
            }
            Err(error) => self.res.ran_out = Some(self.ran_out(error, request.size, event)),
        }
    }

    /// A request that failed when it was recorded: here it may be served, and is given back at once.
    fn failed(&mut self, request: Request, event: EventId, is_last: bool) {
        match self.model.malloc(request) {
            Ok(slot) => {
                self.levels(event);
                self.model.free(slot);
                self.res.served_now += 1;
            }
            // The recorded program went on after it, unless this was the end of it.
            Err(error) => {
                self.res.failed_again += 1;
                if is_last {
                    self.res.ran_out = Some(self.ran_out(error, request.size, event));
                }
            }
        }
    }

    /// `slot` is the next handle's.
    fn keep(&mut self, slot: Slot) {
        if slot != Slot::NONE {
            if self.owners.len() <= slot.index() {
                self.owners.resize(slot.index() + 1, u32::MAX);
            }
            self.owners[slot.index()] = super::history::id_of(self.slots.len());
        }
        self.slots.push(slot);
    }

    fn now(&self) -> Levels {
        Levels {
            allocated: Bytes(self.model.stats.allocated_bytes.all.current),
            reserved: Bytes(self.model.reserved()),
        }
    }

    fn levels(&mut self, event: EventId) {
        let Levels { allocated, reserved } = self.now();
        if self.res.peak_reserved.bytes < reserved {
            self.res.peak_reserved = Peak { bytes: reserved, event };
            self.res.slack_at_peak = reserved.saturating_sub(allocated);
        }
        self.res.peak_allocated.rise(allocated, event);
    }

    fn ran_out(&self, error: OutOfMemory, requested: Bytes, event: EventId) -> RanOut {
        let (hole, hole_of_all) = self.model.heap.largest_free(error.arena);
        RanOut {
            event,
            requested,
            allocated: Bytes(self.model.stats.allocated_bytes.all.current),
            reserved: Bytes(self.model.reserved()),
            largest_hole: Bytes(hole),
            largest_hole_of_all: Bytes(hole_of_all),
        }
    }

    /// The block of `handle`, if that is its state.
    fn slot(&self, handle: u32, state: State) -> Option<Slot> {
        let slot = *self.slots.get(handle as usize).filter(|it| **it != Slot::NONE)?;
        let is_its_own = self.owners[slot.index()] == handle;
        (is_its_own && self.model.heap.block(slot).state == state).then_some(slot)
    }
}
