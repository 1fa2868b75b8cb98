//! What a recording as a whole tells of its allocator, before it is followed.

use std::collections::BTreeSet;

use crate::{
    replay::{
        Config, TorchVersion,
        rounding::{SMALL_SIZE, allocation_size, round_size, should_split},
    },
    trace::{Action, Block, BlockState, DeviceTrace, Events, PoolId, SizeClass, Trace},
    units::Bytes,
};

/// What the recording of a process says that is not of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The raw handle of each stream.
    pub(super) streams: Vec<u64>,
    /// The pools that graphs were captured into: the first half of their ids counts captures. Those that share
    /// a handle made beforehand look like a MemPool's.
    pub(super) graphs: BTreeSet<PoolId>,
}

impl Known {
    pub(super) fn of(trace: &Trace) -> Known {
        let pools = (0..).map(PoolId).zip(&trace.pools);
        Known {
            streams: trace.streams.iter().map(|it| it.cast_unsigned()).collect(),
            graphs: pools.filter(|(_, (captured, _))| *captured != 0).map(|(id, _)| id).collect(),
        }
    }
}

/// The private pools that hold a block in the end which would have been split in another: those that never
/// split. One that has no such block left is taken for one that does, as most do.
pub(super) fn never_split(device: &DeviceTrace, config: &Config) -> BTreeSet<PoolId> {
    let mut res = BTreeSet::new();
    if config.torch < TorchVersion::two(10) {
        return res;
    }
    for segment in device.segments.iter().filter(|it| it.pool != PoolId(0)) {
        let blocks = device.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize);
        let would_split = |block: &Block| {
            let size = round_size(block.requested, config);
            let expandable = config.expandable_segments || segment.expandable;
            let half =
                if segment.size_class == SizeClass::Small { size.min(SMALL_SIZE) } else { size };
            block.state == BlockState::Allocated
                && should_split(half, block.size.saturating_sub(size), expandable, config)
        };
        if blocks.is_some_and(|it| it.iter().any(would_split)) {
            res.insert(segment.pool);
        }
    }
    res
}

/// The largest sum of what was held and what the driver was asked for, of requests that got it. A limit is
/// compared with that sum; an expandable segment may then map more, or less. And the most that was held.
pub(super) fn most_granted(events: &Events, before: Bytes, config: &Config) -> (Bytes, Bytes) {
    let mut reserved = before;
    let mut most = before;
    let mut most_held = before;
    let mut grew_from = None;
    for (id, event) in events.of_segments() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                grew_from.get_or_insert(reserved);
                reserved += event.size;
                most_held = most_held.max(reserved);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                reserved = reserved.saturating_sub(event.size);
            }
            Action::Oom => grew_from = None,
            _ => {}
        }
        let Some(from) = grew_from else { continue };
        // What was asked for comes after all that was got for it.
        let rest = events.actions().iter().enumerate().skip(id.index() + 1);
        let mut rest =
            rest.filter(|(_, it)| !matches!(it, Action::FreeRequested | Action::FreeCompleted));
        if let Some((next, Action::Alloc)) = rest.next() {
            grew_from = None;
            let asked = round_size(events.sizes()[next], config);
            most = most.max(from + allocation_size(asked, config));
        }
    }
    (most, most_held)
}

/// What the failures of a recording say about who refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    /// What the device gives to this allocator in all: what was held when a request failed, and what the device
    /// said was free. None where nothing failed, or where a limit refused something, which may then have
    /// refused all.
    pub(super) device_gives: Option<Bytes>,
    /// The least that was refused though as much was free: some limit lies below it.
    pub(super) limit_below: Option<Bytes>,
}

impl Refusals {
    pub(super) fn of(events: &Events, before: Bytes, config: &Config) -> Refusals {
        let least = |one: Option<Bytes>, other| Some(one.map_or(other, |it| it.min(other)));
        let mut reserved = before;
        let mut res = Refusals::default();
        for (_, event) in events.of_segments() {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => reserved += event.size,
                Action::SegmentFree | Action::SegmentUnmap => {
                    reserved = reserved.saturating_sub(event.size);
                }
                Action::Oom => {
                    let free = Bytes(event.address);
                    let asked = allocation_size(event.size, config);
                    let and_held = |it: Bytes| Bytes(reserved.0.saturating_add(it.0));
                    if asked <= free {
                        res.limit_below = least(res.limit_below, and_held(asked));
                    } else {
                        // Others come and go; so much it gave to somebody at all times.
                        res.device_gives = least(res.device_gives, and_held(free));
                    }
                }
                _ => {}
            }
        }
        if res.limit_below.is_some() {
            res.device_gives = None;
        }
        res
    }
}
