//! The *checked* replay: the model goes through the recording operation by operation. What belongs to one
//! `malloc`, from the first segment event to the `alloc` or `oom` that ends it, is one operation.

use std::collections::BTreeMap;

use crate::{
    replay::{
        BlockId, BlockLife, Config, Freed, InitialBlock, Levels, Mismatch, Mismatches, Peak,
        Program, Replay, TorchVersion,
        allocator::{Allocator, OutOfMemory, Request},
        driver::DriverCall,
        heap::{FreeKey, Slot, State},
        id_of,
        initial::{Initial, reserved_before},
        program::{Before, Op},
        recorded::{Live, Recorded},
        rounding::{allocation_size, round_size},
    },
    trace::{
        Action, Block, BlockState, DeviceTrace, Event, EventId, PoolId, Settings, SizeClass,
        StackId, Trace,
    },
    units::Bytes,
};

/// Follows `device` under the recording's own `settings`, with the rules of whichever version of torch
/// explains it best.
pub fn checked(device: &DeviceTrace, settings: &Settings) -> Replay {
    let (torch, replay) = best(device, settings, &[]);
    replay.unwrap_or_else(|| follower(device, Config::of_recording(settings, torch), &[]).run().0)
}

/// Follows the device `index` of `trace` under `config`, which has the recording's settings: the replay,
/// and what the program asked for.
pub fn follow(trace: &Trace, index: usize, config: Config) -> (Replay, Program) {
    let handles = handles(trace);
    match trace.devices.get(index) {
        Some(device) => follower(device, config, &handles).run(),
        None => (Replay::default(), Program::default()),
    }
}

/// The version of torch whose rules explain the device `index` of `trace` best: snapshots do not say
/// which wrote them. The newest of each kind of rules; 2.11 when nothing distinguishes them.
pub fn recorded_version(trace: &Trace, index: usize) -> TorchVersion {
    let settings = trace.settings.clone().unwrap_or_default();
    let device = trace.devices.get(index);
    device.map_or(TorchVersion::two(11), |it| best(it, &settings, &handles(trace)).0)
}

fn best(
    device: &DeviceTrace,
    settings: &Settings,
    handles: &[u64],
) -> (TorchVersion, Option<Replay>) {
    let mut best: Option<(TorchVersion, Replay)> = None;
    // What orders the free set: allocator.md, A.5.
    for torch in [TorchVersion::two(11), TorchVersion::NEWEST, TorchVersion::two(12)] {
        let (replay, _) = follower(device, Config::of_recording(settings, torch), handles).run();
        let is_better = best.as_ref().is_none_or(|(_, it)| replay.n_mismatches < it.n_mismatches);
        if is_better {
            best = Some((torch, replay));
        }
        if best.as_ref().is_some_and(|(_, it)| it.n_mismatches == 0) {
            break;
        }
    }
    best.map_or((TorchVersion::two(11), None), |(torch, replay)| (torch, Some(replay)))
}

fn handles(trace: &Trace) -> Vec<u64> {
    trace.streams.iter().map(|it| it.cast_unsigned()).collect()
}

struct Follower<'a> {
    device: &'a DeviceTrace,
    model: Allocator<Recorded<'a>>,
    replay: Replay,
    program: Program,
    levels: Levels,
    requested: Bytes,
    /// The pools of segments to come, where events do not say.
    pools: BTreeMap<usize, PoolId>,
    /// Whether any memory is not the default pool's.
    has_private_pools: bool,
    /// The most that the recording ever held.
    most_reserved: Bytes,
    /// What a failed request would have taken it to; the least.
    least_refused: Option<Bytes>,
    /// What was seen when looking ahead last.
    ahead: Option<Ahead>,
}

/// The events up to the end of an operation.
#[derive(Clone, Copy)]
struct Ahead {
    /// The request that ends it, a `free_requested` that is not of it, or the end of the recording.
    end: usize,
    first_gain: Option<usize>,
    first_loss: Option<usize>,
}

fn follower<'a>(device: &'a DeviceTrace, config: Config, handles: &[u64]) -> Follower<'a> {
    let driver = Recorded {
        events: &device.events,
        at: 0,
        end: 0,
        want: None,
        grows: false,
        live: BTreeMap::new(),
        completed: Vec::new(),
        mismatches: Mismatches::default(),
    };
    let before = reserved_before(device);
    // The recording knows no capacity, and the limit shows itself where a request fails.
    let config = Config { capacity: None, ..config };
    let mut res = Follower {
        device,
        model: Allocator::new(config.clone(), handles.to_vec(), driver),
        replay: Replay { reserved_before: before, ..Replay::default() },
        program: Program {
            streams: handles.to_vec(),
            recorded: Some(config),
            ..Program::default()
        },
        levels: Levels { reserved: before, ..Levels::default() },
        requested: Bytes::ZERO,
        pools: BTreeMap::new(),
        has_private_pools: device.segments.iter().any(|it| it.pool != PoolId(0)),
        most_reserved: before,
        least_refused: None,
        ahead: None,
    };
    if before != Bytes::ZERO || res.has_private_pools {
        res.begin_with(Initial::of(device));
    }
    res
}

impl Follower<'_> {
    fn begin_with(&mut self, mut initial: Initial) {
        initial.place(&mut self.model);
        self.pools = std::mem::take(&mut initial.pools);
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

    fn run(mut self) -> (Replay, Program) {
        let events = &self.device.events;
        self.most_reserved = most_reserved(events, self.replay.reserved_before);
        // A recorder can be told to skip kinds of events; then one of the two frees stands for both.
        let requests = events.actions().contains(&Action::FreeRequested);
        let is_pending = |it: &Block| it.state == BlockState::PendingFree;
        let completes = events.actions().contains(&Action::FreeCompleted)
            || self.device.blocks.iter().any(is_pending);
        let mut at = 0;
        while at < events.len() {
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
                    } else if requests && !is_request && self.belongs_to_a_retry(at) {
                        self.operation(at)
                    } else {
                        self.free(at, event, is_request, is_completion);
                        at + 1
                    }
                }
                Action::Snapshot | Action::Annotate | Action::Other => at + 1,
                _ => self.operation(at),
            };
        }
        self.finish()
    }

    /// What comes from event `start` on, up to the request that ends it.
    fn look_ahead(&mut self, start: usize) -> Ahead {
        if let Some(ahead) = self.ahead
            && start <= ahead.end
            && ahead.first_gain.is_none_or(|it| start <= it)
            && ahead.first_loss.is_none_or(|it| start <= it)
        {
            return ahead;
        }
        let mut res = Ahead { end: start, first_gain: None, first_loss: None };
        while let Some(action) = self.device.events.actions().get(res.end) {
            match action {
                Action::Alloc | Action::Oom | Action::FreeRequested => break,
                Action::SegmentAlloc | Action::SegmentMap => {
                    res.first_gain.get_or_insert(res.end);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    res.first_loss.get_or_insert(res.end);
                }
                _ => {}
            }
            res.end += 1;
        }
        // A run of completions is walked one by one; what comes after it is looked at once.
        self.ahead = Some(res);
        res
    }

    /// Whether the completion at event `at` is one of those that a request waited for before it asked the
    /// driver again. It may as well have come before the search of that request: then the search found
    /// nothing either way. Where a split limit releases a block first, that would stand before it.
    fn belongs_to_a_retry(&mut self, at: usize) -> bool {
        let Ahead { end, first_gain, first_loss } = self.look_ahead(at);
        let events = &self.device.events;
        let loss = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain));
        if events.len() <= end {
            return false;
        }
        let event = events.get(end);
        let Event { size, stream, pool, .. } = event;
        let params = self.model.params(Request { size, stream, pool });
        let oversize = FreeKey::at_least(self.model.max_split);
        if self.model.heap.arenas[params.arena as usize].free.range(oversize..).next().is_some() {
            return false;
        }
        match (event.action, loss) {
            (Action::Oom, None) => first_gain.is_none(),
            (Action::Oom, Some(loss)) => self.released_for(event, events.get(loss)),
            (Action::Alloc, Some(loss)) => {
                first_gain.is_some() && self.released_for(event, events.get(loss))
            }
            _ => false,
        }
    }

    /// Follows the operation that begins at event `start`; returns the first event after it.
    fn operation(&mut self, start: usize) -> usize {
        let events = &self.device.events;
        let Ahead { end, first_gain, first_loss } = self.look_ahead(start);
        let last = (end < events.len()).then(|| events.get(end));
        let last = last.filter(|it| it.action != Action::FreeRequested);
        let Some(event) = last else {
            self.released(start, end);
            return end;
        };
        let fails = event.action == Action::Oom;
        if let Some(loss) = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain)) {
            let lost_until = first_gain.unwrap_or(end);
            let asks = fails || first_gain.is_some();
            if !asks || !self.released_for(event, events.get(loss)) {
                self.released(start, lost_until);
                return lost_until;
            }
        }
        self.malloc(start, end, event);
        end + 1
    }

    /// Whether the release that begins with `loss` was part of the request `event`, rather than an
    /// `empty_cache` before it: both carry the stack of their call. Without stacks, only a request that
    /// takes the run above all that it ever held can have been refused.
    fn released_for(&mut self, event: Event, loss: Event) -> bool {
        if event.stack != StackId::EMPTY || loss.stack != StackId::EMPTY {
            return event.stack == loss.stack;
        }
        let size = round_size(event.size, &self.model.config);
        let asked = allocation_size(size, &self.model.config);
        event.action == Action::Oom || self.most_reserved < self.levels.reserved + asked
    }

    /// The events `start..end` released memory without any request: `empty_cache`, or the end of a pool.
    fn released(&mut self, start: usize, end: usize) {
        let driver = &mut self.model.driver;
        (driver.at, driver.end, driver.want, driver.grows) = (start, end, None, false);
        let events = &self.device.events;
        let mut of_default = false;
        let mut private = Vec::new();
        for index in start..end {
            let event = events.get(index);
            if matches!(event.action, Action::SegmentFree | Action::SegmentUnmap) {
                let pool = if self.has_private_pools || event.pool != PoolId(0) {
                    self.pool_at(event.address).unwrap_or(event.pool)
                } else {
                    PoolId(0)
                };
                of_default |= pool == PoolId(0);
                if pool != PoolId(0) && !private.contains(&pool) {
                    private.push(pool);
                }
            }
        }
        if of_default {
            self.model.release_cached_blocks();
            self.program.push(Op::EmptyCache, start);
        }
        for pool in private {
            self.model.release_private_pool(pool);
            self.program.push(Op::DropPool(pool), start);
        }
        self.settle(start, end);
    }

    fn malloc(&mut self, start: usize, end: usize, event: Event) {
        let fails = event.action == Action::Oom;
        let pool = self.pool_of(start, end, event);
        let driver = &mut self.model.driver;
        (driver.at, driver.end) = (start, end);
        driver.want = (!fails).then_some(event.address);
        driver.grows = fails || driver.peek().is_some();
        if fails {
            self.program.push(Op::Failed { size: event.size, stream: event.stream }, end);
            let size = round_size(event.size, &self.model.config);
            let asked = allocation_size(size, &self.model.config);
            let refused = self.levels.reserved + asked;
            self.least_refused = Some(self.least_refused.map_or(refused, |it| it.min(refused)));
        } else {
            self.program.push(Op::Alloc { size: event.size, stream: event.stream, pool }, end);
            if let Some(lost) = self.model.driver.live.get(&event.address).copied() {
                // Its free is not in the recording; it ended at the latest now.
                self.model.driver.mismatch(Mismatch::NoRoom);
                self.free_live(end, event.address, lost);
            }
        }
        let request = Request { size: event.size, stream: event.stream, pool };
        let got = self.model.malloc(request);
        self.settle(start, end);
        if fails {
            if let Ok(slot) = got {
                self.model.driver.mismatch(Mismatch::NeedNotFail);
                self.take_back(slot);
            }
            return;
        }
        let slot = self.resolve(got, request, event);
        let size = match slot {
            Some(slot) => Bytes(self.model.heap.block(slot).size),
            None => round_size(event.size, &self.model.config),
        };
        let block = BlockId(id_of(self.replay.blocks.len()));
        let handle = id_of(self.replay.initial.len()) + block.0;
        self.model.driver.live.insert(event.address, Live { slot, handle });
        let id = EventId(id_of(end));
        let requested = event.size;
        let life = BlockLife { address: event.address, size, requested, alloc: id, free: None };
        self.replay.blocks.push(life);
        self.levels.allocated += size;
        self.requested += requested;
        self.replay.peak_allocated.rise(self.levels.allocated, id);
        self.replay.peak_requested.rise(self.requested, id);
        if start <= self.replay.peak_reserved.event.index() {
            let Levels { reserved, allocated } = self.levels;
            self.replay.slack_at_peak = reserved.saturating_sub(allocated);
        }
    }

    /// The block that the recording says, whatever the model did.
    fn resolve(
        &mut self,
        got: Result<Slot, OutOfMemory>,
        request: Request,
        event: Event,
    ) -> Option<Slot> {
        match got {
            Ok(slot) if self.model.heap.block(slot).address == event.address => return Some(slot),
            Ok(slot) => {
                self.model.driver.mismatch(Mismatch::OtherBlock);
                self.take_back(slot);
            }
            Err(_) => {
                self.model.stats.num_ooms -= u64::from(self.model.driver.grows);
                if self.model.driver.grows {
                    self.model.driver.mismatch(Mismatch::NoRoom);
                }
            }
        }
        let params = self.model.params(request);
        let found = self.model.heap.find(event.address)?;
        let block = *self.model.heap.block(found);
        if block.state != State::Free {
            return None;
        }
        if block.end() - event.address < params.size {
            self.model.driver.mismatch(Mismatch::TooLarge);
            return None;
        }
        self.model.heap.set_state(found, State::Vacant);
        let mut slot = found;
        if block.address < event.address {
            slot = self.model.heap.split(found, event.address - block.address);
            self.model.heap.set_state(found, State::Free);
        }
        Some(self.model.alloc_found_block(slot, &params, request.size.0))
    }

    fn take_back(&mut self, slot: Slot) {
        self.model.free_requested(slot);
        self.model.free_completed(slot);
    }

    /// Does what the recording did in `start..end` and the model had no reason for, then counts the
    /// segments.
    fn settle(&mut self, start: usize, end: usize) {
        while let Some(event) = self.model.driver.peek() {
            if event.action == Action::FreeCompleted {
                let at = self.model.driver.at;
                self.free(at, event, false, true);
            } else {
                self.model.driver.mismatch(Mismatch::Unexplained);
                self.force(event);
            }
            self.model.driver.at += 1;
        }
        for handle in std::mem::take(&mut self.model.driver.completed) {
            self.program.push(Op::FreeCompleted(handle), end);
        }
        for index in start..end {
            let Event { action, size, address, .. } = self.device.events.get(index);
            match action {
                Action::SegmentAlloc => {
                    self.program.script.push(DriverCall::Malloc { address, size: size.0 });
                }
                Action::SegmentFree => self.program.script.push(DriverCall::Free { address }),
                _ => {}
            }
            match action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    self.levels.reserved += size;
                    self.replay.peak_reserved.rise(self.levels.reserved, EventId(id_of(index)));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.levels.reserved = self.levels.reserved.saturating_sub(size);
                }
                _ => {}
            }
        }
    }

    /// Makes the model's segments what the recording says.
    fn force(&mut self, event: Event) {
        let Event { address, size: Bytes(size), stream, pool, .. } = event;
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let class = if size == 2 << 20 { SizeClass::Small } else { SizeClass::Large };
                let arena = self.model.heap.arena(pool, class, stream);
                let is_map = event.action == Action::SegmentMap;
                let inside = self.model.heap.find(address).filter(|it| {
                    let block = self.model.heap.block(*it);
                    is_map && block.state == State::Unmapped && size <= block.end() - address
                });
                if let Some(unmapped) = inside {
                    self.model.force_map(unmapped, address, size);
                } else {
                    let model = &mut self.model;
                    let slot = model.heap.add_segment(address, size, arena, State::Free, is_map);
                    model.count_segment(slot);
                }
            }
            _ => {
                let end = address.saturating_add(size);
                let found = self.model.heap.find(address).filter(|it| {
                    let block = self.model.heap.block(*it);
                    block.state == State::Free && end <= block.end()
                });
                let Some(slot) = found else {
                    self.model.driver.mismatch(Mismatch::NoSuchSegment);
                    return;
                };
                let block = *self.model.heap.block(slot);
                if block.expandable {
                    self.model.unmap_range(slot, address, end);
                } else if !block.is_split() && block.size == size {
                    self.model.forget_segment(slot);
                }
            }
        }
    }

    /// Whose memory a request is served from: the recording's word, or else what lies there.
    fn pool_of(&mut self, start: usize, end: usize, event: Event) -> PoolId {
        if event.pool != PoolId(0) || !self.has_private_pools || event.action == Action::Oom {
            return event.pool;
        }
        let to_come = self.pools.range(start..end).next().map(|(_, it)| *it);
        to_come.or_else(|| self.pool_at(event.address)).unwrap_or(PoolId(0))
    }

    fn pool_at(&self, address: u64) -> Option<PoolId> {
        self.model.heap.find(address).map(|it| self.model.heap.arena_of(it).pool)
    }

    fn free(&mut self, at: usize, event: Event, is_request: bool, is_completion: bool) {
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
            self.replay.freed.push(Freed { event: EventId(id_of(at)), block, size });
        }
        let state = live.slot.map(|it| (it, self.model.heap.block(it).state));
        if let Some((slot, State::Allocated)) = state {
            self.model.free_requested(slot);
        }
        if is_completion {
            self.model.driver.live.remove(&event.address);
            if let Some(slot) = live.slot {
                self.model.free_completed(slot);
            }
        }
    }

    /// Ends a block whose free was not recorded.
    fn free_live(&mut self, at: usize, address: u64, live: Live) {
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

    fn finish(mut self) -> (Replay, Program) {
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
        program.finish(&replay, n_events);
        (replay, program)
    }

    /// The recorder's own account of the end, block by block.
    fn compare_with_end(&mut self) {
        let device = self.device;
        if device.segments.is_empty() || device.events.is_empty() {
            return;
        }
        let live: BTreeMap<u64, Bytes> = {
            let heap = &self.model.heap;
            let sizes = self.model.driver.live.iter();
            sizes
                .map(|(at, it)| (*at, it.slot.map_or(Bytes::ZERO, |it| Bytes(heap.block(it).size))))
                .collect()
        };
        let mut n_found = 0;
        for block in device.blocks.iter().filter(|it| it.state != BlockState::Free) {
            if live.get(&block.address) == Some(&block.size) {
                n_found += 1;
            } else {
                self.model.driver.mismatch(Mismatch::EndState);
            }
        }
        if n_found < live.len() {
            self.model.driver.mismatch(Mismatch::EndState);
        }
        let held: Bytes = device.segments.iter().map(|it| it.size).sum();
        if held.0 != self.model.reserved() {
            self.model.driver.mismatch(Mismatch::EndState);
        }
    }
}

fn most_reserved(events: &crate::trace::Events, before: Bytes) -> Bytes {
    let mut reserved = before;
    let mut most = before;
    for (_, event) in events.iter() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved += event.size,
            Action::SegmentFree | Action::SegmentUnmap => {
                reserved = reserved.saturating_sub(event.size);
            }
            _ => {}
        }
        most = most.max(reserved);
    }
    most
}

impl Peak {
    pub(super) fn rise(&mut self, bytes: Bytes, event: EventId) {
        if self.bytes < bytes {
            *self = Peak { bytes, event };
        }
    }
}
