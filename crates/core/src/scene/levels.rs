//! How much was allocated and reserved at every position, with what finds the largest and the smallest
//! of any range without walking through it.

use std::ops::Range;

use crate::{prediction::device_run::DeviceRun, scene::Position, trace::Action, units::Bytes};

/// Positions that share one entry of the index.
const CHUNK: usize = 256;

/// The curves of one device. Position 0 is before the first event.
pub(super) struct Levels {
    /// Invariant: one more than there are events.
    allocated: Vec<Bytes>,
    /// The positions of the largest and of the smallest of each chunk.
    extremes: Vec<(Position, Position)>,
    /// Where reserved changes, and to what; the first entry is position 0.
    reserved: Vec<(Position, Bytes)>,
    /// When most was allocated.
    pub(super) peak: Position,
    /// Microseconds since the first event, made monotone: the recorder's clock is not. Empty when it
    /// recorded none.
    micros: Vec<u64>,
    start: i64,
}

impl Levels {
    pub(super) fn of(run: &DeviceRun<'_>) -> Levels {
        let events = &run.device.events;
        let mut allocated = Vec::with_capacity(events.len() + 1);
        allocated.push(run.replay.allocated_before);
        let mut reserved = vec![(0, run.replay.reserved_before)];
        let mut peak = (0, run.replay.allocated_before);
        for (id, levels) in run.replay.levels(events) {
            let position = id.0 + 1;
            let action = events.actions()[id.index()];
            let is_of_blocks =
                matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted);
            if is_of_blocks && peak.1 < levels.allocated {
                peak = (position, levels.allocated);
            }
            allocated.push(levels.allocated);
            if reserved.last().is_some_and(|it| it.1 != levels.reserved) {
                reserved.push((position, levels.reserved));
            }
        }
        let extremes = allocated.chunks(CHUNK).zip((0..).step_by(CHUNK));
        let extremes = extremes.map(|(chunk, first)| extremes_of(chunk, first)).collect();
        let (start, micros) = clock(run);
        Levels { allocated, extremes, reserved, peak: peak.0, micros, start }
    }

    /// The position after the last.
    pub(super) fn end(&self) -> Position {
        super::position::count(self.allocated.len())
    }

    pub(super) fn allocated(&self, position: Position) -> Bytes {
        self.allocated[position as usize]
    }

    pub(super) fn reserved(&self, position: Position) -> Bytes {
        let at = self.reserved.partition_point(|it| it.0 <= position);
        self.reserved[at.saturating_sub(1)].1
    }

    /// When most was allocated from `before` to `end`, which is where the next begins.
    pub(super) fn peak_between(&self, before: &mut Position, end: Position) -> Position {
        let end = end.min(self.end());
        let range = (*before).min(end.saturating_sub(1))..end.max(1);
        *before = end;
        self.extremes(range).0
    }

    /// Where what is reserved changes, and to what.
    pub(super) fn reserved_changes(&self) -> impl Iterator<Item = (Position, Bytes)> + '_ {
        self.reserved.iter().copied()
    }

    /// The most that was reserved within `range`.
    pub(super) fn most_reserved(&self, range: Range<Position>) -> Bytes {
        let first = self.reserved.partition_point(|it| it.0 <= range.start).saturating_sub(1);
        let later = self.reserved[first..].iter().take_while(|it| it.0 < range.end.max(1));
        later.map(|it| it.1).max().unwrap_or(self.reserved[first].1)
    }

    pub(super) fn peak_reserved(&self) -> (Bytes, Position) {
        let mut res = (Bytes::ZERO, 0);
        for &(position, bytes) in &self.reserved {
            if res.0 < bytes {
                res = (bytes, position);
            }
        }
        res
    }

    /// The first positions of the largest and the smallest within `range`, which is not empty.
    pub(super) fn extremes(&self, range: Range<Position>) -> (Position, Position) {
        let (from, to) = (range.start as usize, range.end as usize);
        let (first, last) = (from.div_ceil(CHUNK), to / CHUNK);
        if last <= first {
            return extremes_of(&self.allocated[from..to], range.start);
        }
        let mut res = (range.start, range.start);
        let mut consider = |(most, least): (Position, Position)| {
            if self.allocated(res.0) < self.allocated(most) {
                res.0 = most;
            }
            if self.allocated(least) < self.allocated(res.1) {
                res.1 = least;
            }
        };
        if from < first * CHUNK {
            consider(extremes_of(&self.allocated[from..first * CHUNK], range.start));
        }
        self.extremes[first..last].iter().for_each(|it| consider(*it));
        if last * CHUNK < to {
            let position = super::position::count(last * CHUNK);
            consider(extremes_of(&self.allocated[last * CHUNK..to], position));
        }
        res
    }

    pub(super) fn micros(&self) -> u64 {
        self.micros.last().copied().unwrap_or(0)
    }

    pub(super) fn micros_at(&self, position: Position) -> u64 {
        // What ends with the recording ends after its last event.
        let last = self.micros.len().saturating_sub(1);
        self.micros.get(last.min(position as usize)).copied().unwrap_or(0)
    }

    /// The first position that is not before `micros` after the first event.
    pub(super) fn position_at(&self, micros: u64) -> Position {
        super::position::count(self.micros.partition_point(|it| *it < micros))
    }

    /// The position at a time of the recorder's clock.
    pub(super) fn position_of(&self, time: i64) -> Position {
        let micros = u64::try_from(time.saturating_sub(self.start)).unwrap_or(0);
        self.position_at(micros).min(self.end() - 1)
    }
}

fn extremes_of(levels: &[Bytes], first: Position) -> (Position, Position) {
    let mut res = (0, 0);
    for (at, it) in levels.iter().enumerate() {
        if levels[res.0] < *it {
            res.0 = at;
        }
        if *it < levels[res.1] {
            res.1 = at;
        }
    }
    (first + super::position::count(res.0), first + super::position::count(res.1))
}

/// When the recorder's clock began, and each position's time since then.
fn clock(run: &DeviceRun<'_>) -> (i64, Vec<u64>) {
    let events = &run.device.events;
    let times = || (0..events.len()).map(|it| events.get(it).time_micros);
    let Some(start) = times().find(|it| *it != 0) else { return (0, Vec::new()) };
    let mut now = 0;
    let mut micros = Vec::with_capacity(events.len() + 1);
    micros.push(0);
    for time in times() {
        now = now.max(u64::try_from(time.saturating_sub(start)).unwrap_or(0));
        micros.push(now);
    }
    if now == 0 { (start, Vec::new()) } else { (start, micros) }
}
