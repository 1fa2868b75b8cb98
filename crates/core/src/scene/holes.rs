//! The largest hole at every moment: how much one request can get without the driver.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    prediction::device_run::DeviceRun,
    scene::{Position, segments::Segments},
    trace::Action,
    units::Bytes,
};

/// Where the largest hole changes, and to what; the first entry is position 0.
pub(super) struct Holes(Vec<(Position, Bytes)>);

impl Holes {
    pub(super) fn of(run: &DeviceRun<'_>, segments: &Segments) -> Holes {
        let mut free = Free::default();
        for (address, extent) in segments.at(0, run.trace) {
            free.begins.insert(address);
            if extent.expandable {
                free.maps.insert(extent.end);
            }
            free.put(address, extent.end);
        }
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for it in &run.replay.initial {
            free.take(it.address, it.address.saturating_add(it.size.0));
            sizes.insert(it.address, it.size.0);
        }
        let mut res = vec![(0, free.largest())];
        let events = &run.device.events;
        let completes = events.actions().contains(&Action::FreeCompleted);
        let mut blocks = run.replay.blocks.iter();
        for (id, event) in events.iter() {
            let end = event.address.saturating_add(event.size.0);
            match event.action {
                Action::Alloc => {
                    let size = blocks.next().map_or(event.size, |it| it.size);
                    free.take(event.address, event.address.saturating_add(size.0));
                    sizes.insert(event.address, size.0);
                }
                Action::FreeCompleted => free.give_back(event.address, &mut sizes),
                Action::FreeRequested => {
                    // What completes at once is free at once.
                    let next = id.index() + 1;
                    let at_once = events.actions().get(next) == Some(&Action::FreeCompleted)
                        && events.get(next).address == event.address;
                    if completes && !at_once {
                        continue;
                    }
                    free.give_back(event.address, &mut sizes);
                }
                Action::SegmentAlloc => {
                    free.begins.insert(event.address);
                    free.put(event.address, end);
                }
                // Mapped ranges that touch are one segment.
                Action::SegmentMap => {
                    if !free.maps.remove(&event.address) {
                        free.begins.insert(event.address);
                    }
                    free.begins.remove(&end);
                    free.maps.insert(end);
                    free.put(event.address, end);
                }
                Action::SegmentFree => {
                    free.take(event.address, end);
                    free.begins.remove(&event.address);
                }
                Action::SegmentUnmap => {
                    free.take(event.address, end);
                    free.begins.remove(&event.address);
                    free.maps.remove(&end);
                    free.maps.insert(event.address);
                    free.begins.insert(end);
                }
                _ => continue,
            }
            let largest = free.largest();
            if res.last().is_some_and(|it| it.1 != largest) {
                res.push((id.0 + 1, largest));
            }
        }
        Holes(res)
    }

    /// The largest hole at `position`.
    pub(super) fn at(&self, position: Position) -> Bytes {
        let at = self.0.partition_point(|it| it.0 <= position);
        self.0[at.saturating_sub(1)].1
    }

    /// Where it changes, and to what.
    pub(super) fn changes(&self) -> &[(Position, Bytes)] {
        &self.0
    }
}

/// What is held and free.
#[derive(Default)]
struct Free {
    /// By where they begin: where they end.
    holes: BTreeMap<u64, u64>,
    /// How many there are of each size.
    sizes: BTreeMap<u64, u64>,
    /// Where segments begin: no hole goes on there.
    begins: BTreeSet<u64>,
    /// Where mapped ranges end.
    maps: BTreeSet<u64>,
}

impl Free {
    fn largest(&self) -> Bytes {
        Bytes(self.sizes.last_key_value().map_or(0, |it| *it.0))
    }

    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.holes.insert(from, to);
            *self.sizes.entry(to - from).or_default() += 1;
        }
    }

    fn remove(&mut self, from: u64) -> Option<u64> {
        let to = self.holes.remove(&from)?;
        if let Some(count) = self.sizes.get_mut(&(to - from)) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&(to - from));
            }
        }
        Some(to)
    }

    /// `from`..`to` is no hole any more.
    fn take(&mut self, from: u64, to: u64) {
        while let Some((&at, &end)) = self.holes.range(..to).next_back() {
            if end <= from {
                break;
            }
            self.remove(at);
            self.add(at, from.max(at).min(end));
            self.add(to.min(end), end);
            if at < from {
                break;
            }
        }
    }

    /// `from`..`to` is one now, together with those that it touches in its segment.
    fn put(&mut self, mut from: u64, mut to: u64) {
        self.take(from, to);
        if !self.begins.contains(&from)
            && let Some((&at, _)) = self.holes.range(..from).next_back().filter(|it| *it.1 == from)
        {
            self.remove(at);
            from = at;
        }
        if !self.begins.contains(&to)
            && let Some(end) = self.remove(to)
        {
            to = end;
        }
        self.add(from, to);
    }

    fn give_back(&mut self, address: u64, sizes: &mut BTreeMap<u64, u64>) {
        if let Some(size) = sizes.remove(&address) {
            self.put(address, address.saturating_add(size));
        }
    }
}
