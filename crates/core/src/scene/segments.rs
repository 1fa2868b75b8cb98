//! The segments of a device: what changes them, and how they look in the end.

use std::collections::BTreeMap;

use crate::{
    prediction::device_run::DeviceRun,
    scene::Position,
    trace::{Action, Event, SizeClass, Trace},
    units::Bytes,
};

/// What changes the map, and how it looks in the end.
pub(super) struct Segments {
    /// Events that give or take memory, by position.
    pub(super) changes: Vec<(Position, Event)>,
    pub(super) last: BTreeMap<u64, Extent>,
    /// Blocks that the program gave back while another stream was still using them.
    pub(super) pending: Vec<Pending>,
}

/// A piece of memory got from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) end: u64,
    pub(super) stream: i64,
    pub(super) pool: (i64, i64),
    pub(super) is_small: bool,
    pub(super) expandable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) address: u64,
    pub(super) size: Bytes,
    pub(super) from: Position,
    pub(super) to: Position,
}

impl Extent {
    /// How much of it is mapped, where it begins at `address`.
    pub(super) fn size(&self, address: u64) -> Bytes {
        Bytes(self.end.saturating_sub(address))
    }
}

impl Segments {
    pub(super) fn of(run: &DeviceRun<'_>) -> Segments {
        let trace = run.trace;
        let stream = |index: usize| trace.streams.get(index).copied().unwrap_or(0);
        let last = run.device.segments.iter().map(|segment| {
            let extent = Extent {
                end: segment.address + segment.size.0,
                stream: stream(segment.stream.index()),
                pool: trace.pools.get(segment.pool.index()).copied().unwrap_or_default(),
                is_small: segment.size_class == SizeClass::Small,
                expandable: segment.expandable,
            };
            (segment.address, extent)
        });
        let is_change = |event: &Event| {
            matches!(
                event.action,
                Action::SegmentAlloc
                    | Action::SegmentFree
                    | Action::SegmentMap
                    | Action::SegmentUnmap
            )
        };
        let events = &run.device.events;
        let changes: Vec<(Position, Event)> =
            events.iter().filter(|(_, it)| is_change(it)).map(|(id, it)| (id.0 + 1, it)).collect();
        Segments { changes, last: last.collect(), pending: pending(run) }
    }

    /// The extents at `position`: those of the end, with what came later undone.
    pub(super) fn at(&self, position: Position, trace: &Trace) -> BTreeMap<u64, Extent> {
        let mut res = self.last.clone();
        for (_, event) in self.changes.iter().rev().take_while(|it| position < it.0) {
            Segments::undo(&mut res, event, trace);
        }
        res
    }

    /// Makes `map` what it was before `event`.
    pub(super) fn undo(map: &mut BTreeMap<u64, Extent>, event: &Event, trace: &Trace) {
        let size = event.size.0;
        if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) {
            cut(map, event.address, size);
            return;
        }
        let extent = Extent {
            end: event.address.saturating_add(size),
            stream: trace.streams.get(event.stream.index()).copied().unwrap_or(0),
            pool: trace.pools.get(event.pool.index()).copied().unwrap_or_default(),
            is_small: event.size == Bytes::mib(2),
            expandable: event.action == Action::SegmentUnmap,
        };
        add(map, event.address, extent);
    }
}

/// Takes `size` bytes from `address` on out of the map.
fn cut(map: &mut BTreeMap<u64, Extent>, address: u64, size: u64) {
    let end = address.saturating_add(size);
    while let Some((&at, &extent)) = map.range(..end).next_back() {
        if extent.end <= address {
            break;
        }
        map.remove(&at);
        if end < extent.end {
            map.insert(end, extent);
        }
        if at < address {
            map.insert(at, Extent { end: address, ..extent });
        }
    }
}

/// Puts `extent` into the map; mapped ranges that touch are one.
fn add(map: &mut BTreeMap<u64, Extent>, address: u64, mut extent: Extent) {
    let mut address = address;
    let joins = |it: &Extent| extent.expandable && it.expandable && it.stream == extent.stream;
    let before = map.range(..address).next_back().map(|(at, it)| (*at, *it));
    let before = before.filter(|(_, it)| it.end == address && joins(it));
    let after = map.get(&extent.end).copied().filter(joins);
    if let Some(after) = after {
        map.remove(&extent.end);
        extent = Extent { end: after.end, ..after };
    }
    if let Some((at, before)) = before {
        map.remove(&at);
        address = at;
        extent = Extent { end: extent.end, ..before };
    }
    map.insert(address, extent);
}

/// From the request to the completion, where these are apart.
fn pending(run: &DeviceRun<'_>) -> Vec<Pending> {
    let events = &run.device.events;
    let actions = events.actions();
    if !actions.contains(&Action::FreeCompleted) {
        return Vec::new();
    }
    let mut open: BTreeMap<u64, Pending> = BTreeMap::new();
    let mut res = Vec::new();
    let end = super::position::count(events.len() + 1);
    for (at, action) in actions.iter().enumerate() {
        let position = super::position::count(at + 1);
        match action {
            Action::FreeRequested => {
                let at_once = actions.get(at + 1) == Some(&Action::FreeCompleted)
                    && events.get(at + 1).address == events.get(at).address;
                if !at_once {
                    let event = events.get(at);
                    let size = event.size;
                    let it = Pending { address: event.address, size, from: position, to: end };
                    open.insert(event.address, it);
                }
            }
            Action::FreeCompleted => {
                if let Some(it) = open.remove(&events.get(at).address) {
                    res.push(Pending { to: position, ..it });
                }
            }
            _ => {}
        }
    }
    res.extend(open.into_values());
    res
}
