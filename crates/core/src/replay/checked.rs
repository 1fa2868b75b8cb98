//! The *checked* replay: the model goes through the recording operation by operation. What belongs to one
//! `malloc`, from the first segment event to the `alloc` or `oom` that ends it, is one operation.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        BlockId, Config, Freed, Held, InitialBlock, Levels, Mismatch, Mismatches, Peak, Program,
        Replay, TorchVersion,
        allocator::{Allocator, Request, Traits},
        doubt::Doubt,
        heap::{Slot, State},
        id_of,
        initial::{Initial, reserved_before},
        known::{Known, Refusals, most_granted, never_split},
        lessons::{run, run_with_pools},
        operation::Ahead,
        program::{Before, Op},
        recorded::{Goal, Live, Recorded},
        rounding::round_size,
        undo::undo,
    },
    trace::{
        Action, Block, BlockState, DeviceTrace, Event, EventId, PoolId, Settings, StackId, Trace,
    },
    units::Bytes,
};

/// Follows `device` under the recording's own `settings`, with the rules of whichever version of torch
/// explains it best.
pub fn checked(device: &DeviceTrace, settings: &Settings) -> Replay {
    best(device, settings, &Known::default()).1.0
}

/// Follows the device `index` of `trace` under `config`, which has the recording's settings: the replay,
/// and what the program asked for.
pub fn follow(trace: &Trace, index: usize, config: Config) -> (Replay, Program) {
    match trace.devices.get(index) {
        Some(device) => run_with_pools(device, &config, &Known::of(trace)),
        None => (Replay::default(), Program::default()),
    }
}

/// Follows the device `index` of `trace` under `config` up to where the request that failed at `event` began.
pub(super) fn follow_until(
    trace: &Trace,
    index: usize,
    config: Config,
    event: EventId,
) -> Option<Stopped<'_>> {
    let device = trace.devices.get(index)?;
    let mut follower = follower(device, config, &Known::of(trace));
    follower.stop_at = Some(event.index());
    follower.follow();
    let request = follower.stopped?;
    let n_initial = id_of(follower.replay.initial.len());
    let recorded = std::mem::take(&mut follower.model.driver.live);
    let mut live = BTreeMap::new();
    for Live { slot, handle } in recorded.into_values() {
        let slot = slot.filter(|it| follower.model.heap.block(*it).state == State::Allocated);
        let held = match handle.checked_sub(n_initial) {
            Some(block) => Held::Made(BlockId(block)),
            None => Held::Before(handle),
        };
        live.extend(slot.map(|slot| (held, slot)));
    }
    Some(Stopped { model: follower.model, request, live })
}

/// A recording that was followed up to a request that failed.
pub(super) struct Stopped<'a> {
    pub(super) model: Allocator<Recorded<'a>>,
    /// What was asked for.
    pub(super) request: Request,
    /// What the program had.
    pub(super) live: BTreeMap<Held, Slot>,
}

/// Follows the device `index` of `trace` under its own settings, with the rules of the version of torch that
/// explains it best: that version, as [`follow`] the replay and what the program asked for. Snapshots do not say
/// which version wrote them; of versions that explain the same it is 2.11, or else the newest.
pub fn follow_best(trace: &Trace, index: usize) -> (TorchVersion, (Replay, Program)) {
    let settings = trace.settings.clone().unwrap_or_default();
    match trace.devices.get(index) {
        Some(device) => best(device, &settings, &Known::of(trace)),
        None => (TorchVersion::two(11), (Replay::default(), Program::default())),
    }
}

fn best(
    device: &DeviceTrace,
    settings: &Settings,
    known: &Known,
) -> (TorchVersion, (Replay, Program)) {
    let oldest = TorchVersion::two(11);
    let config = |torch| Config::of_recording(settings, torch);
    let mut best: Option<(TorchVersion, (Replay, Program))> = None;
    // What orders the free set: allocator.md, A.5.
    for torch in [oldest, TorchVersion::NEWEST, TorchVersion::two(12)] {
        let found = run(device, &config(torch), known);
        if found.0.n_mismatches == 0 {
            return (torch, found);
        }
        if best.as_ref().is_none_or(|(_, it)| found.0.n_mismatches < it.0.n_mismatches) {
            best = Some((torch, found));
        }
    }
    // Pools that nothing names explain much; what explains all without them came first.
    let found = run_with_pools(device, &config(oldest), known);
    best.filter(|(_, it)| it.0.n_mismatches <= found.0.n_mismatches).unwrap_or((oldest, found))
}

/// A recording that is being followed.
pub(super) struct Follower<'a> {
    pub(super) device: &'a DeviceTrace,
    pub(super) model: Allocator<Recorded<'a>>,
    pub(super) replay: Replay,
    pub(super) program: Program,
    pub(super) levels: Levels,
    pub(super) requested: Bytes,
    /// The pools of segments to come, where they are known though events do not say.
    pub(super) pools: BTreeMap<usize, PoolId>,
    /// Whether any memory is not the default pool's.
    pub(super) has_private_pools: bool,
    /// Whether events say it.
    pub(super) names_pools: bool,
    /// The most that a request for more memory would have taken the recording to, and got it.
    pub(super) most_granted: Bytes,
    /// The most that it ever held.
    pub(super) most_held: Bytes,
    /// What the device gives in all, where failures tell.
    pub(super) device_gives: Option<Bytes>,
    /// What a failed request would have taken it to; the least.
    pub(super) least_refused: Option<Bytes>,
    /// What was seen when looking ahead last.
    pub(super) ahead: Option<Ahead>,
    /// The event that made the last segment at each address.
    pub(super) segments_made: BTreeMap<u64, usize>,
    /// The one that made the segment before that.
    pub(super) segments_made_before: BTreeMap<u64, usize>,
    /// The first mismatch, and what may explain it.
    pub(super) doubt: Option<Doubt>,
    /// Whether to go no further than that.
    pub(super) stops_in_doubt: bool,
    /// Which of [`Follower::pools`] were only thought of.
    pub(super) thought_of: BTreeSet<usize>,
    /// Whether frees carry the stack of who frees.
    pub(super) frees_have_stacks: bool,
    /// The stacks of requests that the default pool served, where there are others.
    pub(super) default_stacks: BTreeSet<StackId>,
    /// The pool that served the last request.
    pub(super) last_pool: PoolId,
    /// Whose the failed request is that is being followed, when something else is tried than what it seems.
    pub(super) pool_of_failed: Option<PoolId>,
    /// The failed request before which to stop.
    pub(super) stop_at: Option<usize>,
    /// That request, once it is reached.
    pub(super) stopped: Option<Request>,
}

pub(super) fn follower<'a>(device: &'a DeviceTrace, config: Config, known: &Known) -> Follower<'a> {
    let driver = Recorded {
        events: &device.events,
        at: 0,
        end: 0,
        want: None,
        grows: false,
        live: BTreeMap::new(),
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
        model: Allocator::new(config.clone(), known.streams.clone(), driver).with_traits(traits),
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
            ..Program::default()
        },
        levels: Levels { reserved: before, ..Levels::default() },
        requested: Bytes::ZERO,
        pools: BTreeMap::new(),
        has_private_pools: device.segments.iter().any(|it| it.pool != PoolId(0)),
        names_pools: device.events.names_pools(),
        most_granted: before,
        most_held: before,
        device_gives: None,
        least_refused: None,
        ahead: None,
        segments_made: BTreeMap::new(),
        segments_made_before: BTreeMap::new(),
        doubt: None,
        stops_in_doubt: false,
        thought_of: BTreeSet::new(),
        frees_have_stacks: false,
        default_stacks: BTreeSet::new(),
        last_pool: PoolId(0),
        pool_of_failed: None,
        stop_at: None,
        stopped: None,
    };
    if before != Bytes::ZERO || res.has_private_pools {
        let mut initial = undo(device);
        res.pools = std::mem::take(&mut initial.pools);
        if before != Bytes::ZERO {
            res.begin_with(initial);
        }
    }
    res
}

impl Follower<'_> {
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
            let Self { program, levels, requested, .. } = self;
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
        self.replay.allocated_before = self.levels.allocated;
        self.replay.slack_at_peak = self.levels.reserved.saturating_sub(self.levels.allocated);
        let first = EventId(0);
        self.replay.peak_allocated.rise(self.levels.allocated, first);
        self.replay.peak_requested.rise(self.requested, first);
        self.replay.peak_reserved.rise(self.levels.reserved, first);
    }

    pub(super) fn follow(&mut self) {
        let events = &self.device.events;
        let before = self.replay.reserved_before;
        (self.most_granted, self.most_held) = most_granted(events, before, &self.model.config);
        let Refusals { device_gives, limit_below } =
            Refusals::of(events, before, &self.model.config);
        self.device_gives = device_gives;
        // Whatever limit there is, it is no less; and where one refused something, there is one.
        let config = &self.model.config;
        let least = config.garbage_line(self.most_granted);
        let most = limit_below
            .filter(|_| 0.0 < config.garbage_collection_threshold)
            .map(|it| config.garbage_line(it.saturating_sub(Bytes(1))).0);
        let Goal { least: known_least, most: known_most } = self.model.driver.goal;
        let driver = &mut self.model.driver;
        driver.most_granted = self.most_granted.0;
        driver.goal = Goal {
            least: known_least.max(least.0),
            most: known_most.into_iter().chain(most).min(),
        };
        // A recorder can be told to skip kinds of events; then one of the two frees stands for both.
        let requests = events.actions().contains(&Action::FreeRequested);
        let is_pending = |it: &Block| it.state == BlockState::PendingFree;
        let completes = events.actions().contains(&Action::FreeCompleted)
            || self.device.blocks.iter().any(is_pending);
        let mut at = 0;
        while at < events.len() && self.stopped.is_none() {
            let start = at;
            self.model.driver.blamed.clear();
            let event = events.get(at);
            at = match event.action {
                Action::FreeRequested | Action::FreeCompleted => {
                    self.model.driver.at = at;
                    self.model.driver.end = at;
                    let is_request = event.action == Action::FreeRequested || !requests;
                    let is_completion = event.action == Action::FreeCompleted || !completes;
                    let followed = at + 1 < events.len() && {
                        let next = events.get(at + 1);
                        // One that a later `malloc` completed has the stack of that.
                        next.action == Action::FreeCompleted
                            && next.address == event.address
                            && next.stack == event.stack
                    };
                    if is_request && (is_completion || followed) {
                        self.free(at, event, true, true);
                        if is_completion { at + 1 } else { at + 2 }
                    } else if requests && !is_request && self.may_be_of_a_retry(at) {
                        self.operation(at)
                    } else {
                        self.free(at, event, is_request, is_completion);
                        at + 1
                    }
                }
                Action::Snapshot | Action::Annotate | Action::Other => at + 1,
                _ => self.operation(at),
            };
            if self.doubt.is_none() && self.model.driver.mismatches.n != 0 {
                self.doubt = Some(self.doubt_at(start, at));
                if self.stops_in_doubt {
                    return;
                }
            }
        }
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
        self.has_private_pools |= !pools.is_empty();
        self.pools.extend(pools);
        self.thought_of.extend(pools.keys());
        if let Some(goal) = goal {
            self.model.driver.goal = goal;
        }
    }

    pub(super) fn free(&mut self, at: usize, event: Event, is_request: bool, is_completion: bool) {
        let Some(live) = self.model.driver.live.get(&event.address).copied() else {
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
                let allocated_by = self.device.events.get(alloc.index()).stack;
                self.frees_have_stacks = event.stack != allocated_by;
            }
            self.replay.freed.push(Freed { event: EventId(id_of(at)), block, size });
        }
        if is_completion {
            self.model.driver.live.remove(&event.address);
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
        self.model.driver.live.remove(&address);
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
            self.levels.allocated = self.levels.allocated.saturating_sub(size);
            self.requested = self.requested.saturating_sub(requested);
        }
        (block, size)
    }

    pub(super) fn finish(mut self) -> (Replay, Program) {
        self.model.check_invariants();
        let n_events = self.device.events.len();
        self.model.driver.at = n_events.saturating_sub(1);
        self.model.driver.end = self.model.driver.at;
        self.compare_with_end();
        let Self { mut replay, mut program, model, levels, .. } = self;
        let skipped =
            |it: &&Action| matches!(it, Action::Snapshot | Action::Annotate | Action::Other);
        let n_skipped = self.device.events.actions().iter().filter(skipped).count();
        replay.checked_events = (n_events - n_skipped) as u64;
        replay.mismatches = model.driver.mismatches.first;
        replay.n_mismatches = model.driver.mismatches.n;
        replay.stats = model.stats;
        replay.final_reserved = levels.reserved;
        replay.observed_limit = self.least_refused.map(|refused| {
            // Any limit from the most that was held to just below what was refused explains all.
            let most = replay.peak_reserved.bytes;
            if most < refused { most } else { refused.saturating_sub(Bytes(1)) }
        });
        program.known_limit = model.driver.goal.most.map(|most| {
            let least = model.config.limit_of_garbage_line(Bytes(model.driver.goal.least));
            let most =
                model.config.limit_of_garbage_line(Bytes(most) + Bytes(1)).saturating_sub(Bytes(1));
            let refused = self.least_refused.map_or(most, |it| it.saturating_sub(Bytes(1)));
            most.min(refused).max(least).max(replay.peak_reserved.bytes)
        });
        program.traits = model.traits;
        program.finish(&replay, n_events);
        (replay, program)
    }
}

impl Peak {
    pub(super) fn rise(&mut self, bytes: Bytes, event: EventId) {
        if self.bytes < bytes {
            *self = Peak { bytes, event };
        }
    }
}
