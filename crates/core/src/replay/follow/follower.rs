//! A recording that is being followed: the model beside it, what has come out so far, and what is known of the recording
//! beyond its events.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        BlockId, Config, Freed, InitialBlock, Levels, Mismatch, Program, Replay,
        allocator::{Allocator, Request, Traits},
        heap::State,
        history::id_of,
        initial::{Initial, reserved_before},
        known::{Known, never_split},
        live_blocks::{Live, LiveBlocks},
        mismatch::Mismatches,
        program::{Before, Op},
        recorded::{Goal, Recorded},
        rounding::round_size,
        undo::undo,
    },
    trace::{Action, Block, BlockState, DeviceTrace, Event, EventId, PoolId, StackId},
    units::Bytes,
};

/// Where the ids of pools begin that recordings do not name: beyond all that they can.
pub(super) const UNNAMED_POOLS: u32 = 1 << 16;

/// What is followed where nothing is there yet.
pub(super) static NOTHING: DeviceTrace = DeviceTrace::NONE;

/// A recording that is being followed.
pub(super) struct Follower<'a> {
    pub(super) device: &'a DeviceTrace,
    pub(super) model: Allocator<Recorded<'a>>,
    /// What comes out: what the allocator did.
    pub(super) replay: Replay,
    /// And what the program asked for.
    pub(super) program: Program,
    pub(super) totals: Totals,
    pub(super) pools: Pools,
    pub(super) limits: Limits,
    pub(super) segments: SegmentsMade,
    pub(super) doubt: Doubts,
    pub(super) halt: Halt,
    /// What was seen when looking ahead last.
    pub(super) upcoming: Option<Upcoming>,
    /// Whether frees carry the stack of who frees.
    pub(super) frees_have_stacks: bool,
    pub(super) frees: FreesRecorded,
    /// The event that comes next.
    pub(super) at: usize,
    /// How many of the program's changes of the settings came before it.
    pub(super) n_changes: usize,
    /// Whether all of the recording is there, and not only the events up to here.
    pub(super) is_whole: bool,
}

/// Which of the two frees of a block the recorder kept: it can be told to skip kinds of events, and then one of them stands
/// for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreesRecorded {
    pub(super) requests: bool,
    pub(super) completions: bool,
}

impl FreesRecorded {
    pub(super) const BOTH: FreesRecorded = FreesRecorded { requests: true, completions: true };

    fn of(device: &DeviceTrace) -> FreesRecorded {
        let actions = device.events.actions();
        let is_pending = |it: &Block| it.state == BlockState::PendingFree;
        FreesRecorded {
            requests: actions.contains(&Action::FreeRequested),
            completions: actions.contains(&Action::FreeCompleted)
                || device.blocks.iter().any(is_pending),
        }
    }
}

/// What the program has, after the event that is at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) levels: Levels,
    /// The sum of what it asked for.
    pub(super) requested: Bytes,
}

/// Whose memory is whose.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    /// Whether any memory is not the default pool's.
    pub(super) has_private: bool,
    /// Whether events say whose it is.
    pub(super) in_events: bool,
    /// The pools of segments to come, by the events that make them, where they are known though events do not say.
    pub(super) of_segments: BTreeMap<usize, PoolId>,
    /// Which of these were only thought of.
    pub(super) thought_of: BTreeSet<usize>,
    /// The stacks of requests that the default pool served, where there are others.
    pub(super) default_stacks: BTreeSet<StackId>,
    /// The pool that served the last request.
    pub(super) last: PoolId,
    /// Whose the failed request is that is being followed, when something else is tried than what it seems.
    pub(super) of_failed: Option<PoolId>,
}

/// What the recording shows of how much it could have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// The most that a request for more memory would have taken the recording to, and got it.
    pub(super) most_granted: Bytes,
    /// The most that it ever held.
    pub(super) most_held: Bytes,
    /// What the device gives in all, where failures tell.
    pub(super) device_gives: Option<Bytes>,
    /// What a failed request would have taken it to; the least.
    pub(super) least_refused: Option<Bytes>,
}

/// The events that made segments, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentsMade {
    /// The last one at each address.
    pub(super) made: BTreeMap<u64, usize>,
    /// The one before that.
    pub(super) made_before: BTreeMap<u64, usize>,
}

impl SegmentsMade {
    /// The event `index` made the segment at `address`.
    pub(super) fn note(&mut self, address: u64, index: usize) {
        if let Some(before) = self.made.insert(address, index).filter(|it| *it != index) {
            self.made_before.insert(address, before);
        }
    }
}

/// The first mismatch, and whether to go on after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    pub(super) first: Option<Doubt>,
    /// Whether to go no further than that.
    pub(super) stops: bool,
}

/// Where a recording first disagrees with the model, and whose the memory may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// The event.
    pub(super) event: usize,
    /// Groups of segments, by the events that made them, any of which may be another pool's.
    pub(super) groups: Vec<Vec<usize>>,
    /// The pool that served last.
    pub(super) near: PoolId,
}

/// Where to stop, for whoever wants the allocator as it stood then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Halt {
    /// The failed request before which to stop.
    pub(super) before: Option<usize>,
    /// That request, once it is reached.
    pub(super) reached: Option<Request>,
}

/// The events up to the end of an operation.
#[derive(Clone, Copy)]
pub(super) struct Upcoming {
    /// The request that ends it, a `free_requested` that is not of it, or the end of the recording.
    pub(super) end: usize,
    pub(super) first_gain: Option<usize>,
    pub(super) first_loss: Option<usize>,
}

impl<'a> Follower<'a> {
    /// Ready to follow `device` from its first event.
    pub(super) fn new(device: &'a DeviceTrace, config: Config, known: &Known) -> Follower<'a> {
        let driver = Recorded {
            events: &device.events,
            at: 0,
            end: 0,
            want: None,
            grows: false,
            live: LiveBlocks::default(),
            completed: Vec::new(),
            mismatches: Mismatches::default(),
            goal: Goal { least: 0, most: None },
            walked: Vec::new(),
            blamed: Vec::new(),
            reserved: Vec::new(),
            overflow: None,
            most_granted: 0,
            gave_up: false,
        };
        let before = reserved_before(device);
        // A column that grows by doubling takes up to twice its room, and while it grows three times.
        let actions = device.events.actions();
        let n_events = |action| actions.iter().filter(|it| **it == action).count();
        let (n_allocs, n_frees) = (n_events(Action::Alloc), n_events(Action::FreeRequested));
        let n_ops = n_allocs + n_frees;
        // The recording knows no capacity, and the limit shows itself where a request fails.
        let config = Config { capacity: None, known_limit: None, ..config };
        let traits = Traits {
            graphs: known.graphs.clone(),
            no_split: never_split(device, &config),
            ..Traits::default()
        };
        let mut res = Follower {
            device,
            model: Allocator::new(config.clone(), known.streams.clone(), driver)
                .with_traits(traits),
            replay: Replay {
                reserved_before: before,
                blocks: Vec::with_capacity(n_allocs),
                freed: Vec::with_capacity(n_frees),
                ..Replay::default()
            },
            program: Program {
                ops: Vec::with_capacity(n_ops),
                events: Vec::with_capacity(n_ops),
                streams: known.streams.clone(),
                recorded: Some(config),
                changes: device.settings_changes.clone(),
                ..Program::default()
            },
            totals: Totals {
                levels: Levels { reserved: before, ..Levels::default() },
                requested: Bytes::ZERO,
            },
            pools: Pools {
                has_private: device.segments.iter().any(|it| it.pool != PoolId(0)),
                in_events: device.events.names_pools(),
                ..Pools::default()
            },
            limits: Limits { most_granted: before, most_held: before, ..Limits::default() },
            segments: SegmentsMade::default(),
            upcoming: None,
            doubt: Doubts::default(),
            frees_have_stacks: false,
            frees: FreesRecorded::of(device),
            halt: Halt::default(),
            at: 0,
            n_changes: 0,
            is_whole: true,
        };
        if before != Bytes::ZERO || res.pools.has_private {
            let mut initial = undo(device);
            res.pools.of_segments = std::mem::take(&mut initial.pools);
            if before != Bytes::ZERO {
                res.begin_with(initial);
            }
        }
        res
    }

    /// Ready to follow a recording of which nothing is there yet: as if it had no private pools, as if nothing was there before
    /// its first event, and as if both frees of each block were in it.
    pub(super) fn ahead(config: Config) -> Follower<'static> {
        let mut res = Follower::new(&NOTHING, config, &Known::default());
        res.frees = FreesRecorded::BOTH;
        res.is_whole = false;
        res
    }

    /// What was followed `ahead`, if that began as this one is about to, which has all of the recording; or else this one.
    pub(super) fn or_ahead(self, ahead: Follower<'static>) -> Follower<'a> {
        let start = |it: &Follower<'_>| (it.frees, it.pools.has_private, it.pools.in_events);
        let is_so = start(&self) == start(&ahead)
            && self.model.config == ahead.model.config
            && self.replay.reserved_before == Bytes::ZERO
            && self.device.settings_changes.is_empty()
            && ahead.at <= self.device.events.len();
        if !is_so {
            return self;
        }
        let mut res = ahead.over(self.device);
        res.model.handles = self.model.handles;
        res.model.traits = self.model.traits;
        res.program.streams = self.program.streams;
        res.is_whole = true;
        res
    }

    /// The same over `device`, which begins with the events that were followed.
    pub(super) fn over(self, device: &DeviceTrace) -> Follower<'_> {
        let Follower { model, replay, program, totals, pools, limits, segments, doubt, .. } = self;
        let Follower { halt, upcoming, frees_have_stacks, frees, at, n_changes, is_whole, .. } =
            self;
        let model = model.with_driver(|it| it.over(&device.events));
        Follower {
            device,
            model,
            replay,
            program,
            totals,
            pools,
            limits,
            segments,
            doubt,
            halt,
            upcoming,
            frees_have_stacks,
            frees,
            at,
            n_changes,
            is_whole,
        }
    }

    fn begin_with(&mut self, mut initial: Initial) {
        initial.place(&mut self.model);
        for (&address, held) in &initial.blocks {
            let handle = id_of(self.replay.initial.len());
            let size = held.size.unwrap_or_else(|| round_size(held.requested, &self.model.config));
            let block = InitialBlock {
                address,
                size,
                requested: held.requested,
                pending: held.pending,
                free: None,
            };
            self.replay.initial.push(block);
            self.model.driver.live.insert(address, Live { slot: held.slot, handle });
            let arena = held.slot.map(|it| self.model.heap.arena_of(it));
            let stream = arena.map_or_else(Default::default, |it| it.stream);
            let pool = arena.map_or(PoolId(0), |it| it.pool);
            let Self { program, totals: Totals { levels, requested }, .. } = self;
            let requests = held.requested;
            program.initial.push(Before {
                requested: requests,
                stream,
                pool,
                pending: held.pending,
            });
            if !held.pending {
                levels.allocated += size;
                *requested += held.requested;
            }
        }
        self.program.heap = initial;
        self.replay.allocated_before = self.totals.levels.allocated;
        self.replay.slack_at_peak =
            self.totals.levels.reserved.saturating_sub(self.totals.levels.allocated);
        let first = EventId(0);
        self.replay.peak_allocated.rise(self.totals.levels.allocated, first);
        self.replay.peak_requested.rise(self.totals.requested, first);
        self.replay.peak_reserved.rise(self.totals.levels.reserved, first);
    }

    /// Takes the segments that `pools` names for private pools', the pools `whole` for such as never split one,
    /// and `goal` for the level above which garbage is collected.
    pub(super) fn learn(
        &mut self,
        pools: &BTreeMap<usize, PoolId>,
        whole: &BTreeSet<PoolId>,
        goal: Option<Goal>,
    ) {
        self.model.traits.no_split.extend(whole);
        self.pools.has_private |= !pools.is_empty();
        self.pools.of_segments.extend(pools);
        self.pools.thought_of.extend(pools.keys());
        if let Some(goal) = goal {
            self.model.driver.goal = goal;
        }
    }

    pub(super) fn free(&mut self, at: usize, event: Event, is_request: bool, is_completion: bool) {
        let known = &mut self.model.driver.live;
        let live =
            if is_completion { known.remove(event.address) } else { known.get(event.address) };
        let Some(live) = live else {
            self.model.driver.mismatch(Mismatch::NotInUse);
            if is_request {
                let event = EventId(id_of(at));
                self.replay.freed.push(Freed { event, block: None, size: Bytes::ZERO });
            }
            return;
        };
        let op = match (is_request, is_completion) {
            (true, true) => Op::Free(live.handle),
            (true, false) => Op::FreeRequested(live.handle),
            _ => Op::FreeCompleted(live.handle),
        };
        self.program.push(op, at);
        if is_request {
            let (block, size) = self.end(live, at);
            // Without stacks of their own, frees show those of the allocations.
            if let Some(block) = block.filter(|_| !self.frees_have_stacks) {
                let alloc = self.replay.blocks[block.index()].alloc;
                let allocated_by = self.device.events.stack(alloc.index());
                self.frees_have_stacks = event.stack != allocated_by;
            }
            self.replay.freed.push(Freed { event: EventId(id_of(at)), block, size });
        }
        let Some(slot) = live.slot else { return };
        let is_allocated = self.model.heap.block(slot).state == State::Allocated;
        match (is_allocated, is_completion) {
            (true, true) => self.model.free(slot),
            (true, false) => self.model.free_requested(slot),
            (false, true) => self.model.free_completed(slot),
            (false, false) => {}
        }
    }

    /// Ends a block whose free was not recorded.
    pub(super) fn free_live(&mut self, at: usize, address: u64, live: Live) {
        self.program.push(Op::Free(live.handle), at);
        self.end(live, at);
        self.model.driver.live.remove(address);
        if let Some(slot) = live.slot {
            if self.model.heap.block(slot).state == State::Allocated {
                self.model.free_requested(slot);
            }
            self.model.free_completed(slot);
        }
    }

    /// The block is no longer the program's.
    fn end(&mut self, live: Live, at: usize) -> (Option<BlockId>, Bytes) {
        let event = EventId(id_of(at));
        let n_initial = self.replay.initial.len();
        let handle = live.handle as usize;
        let (block, free, size, requested) = if handle < n_initial {
            let it = &mut self.replay.initial[handle];
            if it.pending {
                // It was given back before the recording; only its completion is new.
                it.free.get_or_insert(event);
                return (None, Bytes::ZERO);
            }
            (None, &mut it.free, it.size, it.requested)
        } else {
            let it = &mut self.replay.blocks[handle - n_initial];
            let block = BlockId(id_of(handle - n_initial));
            (Some(block), &mut it.free, it.size, it.requested)
        };
        if free.is_none() {
            *free = Some(event);
            self.totals.levels.allocated = self.totals.levels.allocated.saturating_sub(size);
            self.totals.requested = self.totals.requested.saturating_sub(requested);
        }
        (block, size)
    }
}
