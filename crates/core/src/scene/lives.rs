//! Every block from its allocation to its free, as columns, in an order in which those that were live in
//! any window lie together.

use crate::{
    prediction::device_run::DeviceRun,
    scene::{Grouping, LifeId, Position, groups::Groups, position::count},
    units::Bytes,
};

/// What was never given back.
pub(super) const NEVER: Position = Position::MAX;

/// The columns. Lives are sorted by how long they lasted, in powers of two, then by their start: those
/// of one class that were live in a window began within a known distance before its end.
pub(super) struct Lives {
    ids: Vec<LifeId>,
    starts: Vec<Position>,
    ends: Vec<Position>,
    sizes: Vec<Bytes>,
    by_category: Vec<u8>,
    by_line: Vec<u8>,
    by_pool: Vec<u8>,
    /// Where each class begins; the last entry is the end of all.
    classes: Vec<usize>,
}

/// One life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) id: LifeId,
    /// The first position at which it was live.
    pub(super) start: Position,
    /// The first position at which it was no more.
    pub(super) end: Position,
    pub(super) size: Bytes,
    pub(super) group: u8,
}

impl Lives {
    pub(super) fn of(run: &DeviceRun<'_>, groups: &Groups) -> Lives {
        let replay = &run.replay;
        // A block that the program had given back before the first event is nobody's.
        let before = replay.initial.iter().map(|block| {
            let end = block.free.map_or(NEVER, |it| it.0 + 1);
            (0, if block.pending { 0 } else { end }, block.size)
        });
        let blocks = replay
            .blocks
            .iter()
            .map(|it| (it.alloc.0 + 1, it.free.map_or(NEVER, |it| it.0 + 1), it.size));
        let all = || before.clone().chain(blocks.clone());
        let mut classes = vec![0_usize; 34];
        for (start, end, _) in all() {
            classes[class(start, end) + 1] += 1;
        }
        for at in 1..classes.len() {
            classes[at] += classes[at - 1];
        }
        let n = classes[33];
        let mut res = Lives {
            ids: vec![0; n],
            starts: vec![0; n],
            ends: vec![0; n],
            sizes: vec![Bytes::ZERO; n],
            by_category: vec![0; n],
            by_line: vec![0; n],
            by_pool: vec![0; n],
            classes: classes.clone(),
        };
        for (index, (start, end, size)) in all().enumerate() {
            let next = &mut classes[class(start, end)];
            let at = *next;
            *next += 1;
            res.ids[at] = count(index);
            res.starts[at] = start;
            res.ends[at] = end;
            res.sizes[at] = size;
            res.by_category[at] = groups.category(index);
            res.by_line[at] = groups.line(index);
            res.by_pool[at] = groups.pools.group(index);
        }
        res
    }

    /// Calls `found` for every life that was live at any position from `from` to before `to`.
    pub(super) fn overlapping(
        &self,
        (from, to): (Position, Position),
        grouping: Grouping,
        mut found: impl FnMut(Life),
    ) {
        let groups = match grouping {
            Grouping::Category => &self.by_category,
            Grouping::Line => &self.by_line,
            Grouping::Pool => &self.by_pool,
        };
        for (class, bounds) in self.classes.windows(2).enumerate() {
            let starts = &self.starts[bounds[0]..bounds[1]];
            // None of this class lasts `2 << class` positions.
            let longest = if class < 31 { 2 << class } else { u32::MAX };
            let first = starts.partition_point(|it| it.saturating_add(longest) <= from);
            let last = starts.partition_point(|it| *it < to);
            let range = bounds[0] + first..bounds[0] + last.max(first);
            for (at, &group) in range.clone().zip(&groups[range]) {
                let (start, end) = (self.starts[at], self.ends[at]);
                if from < end && start < end {
                    let (id, size) = (self.ids[at], self.sizes[at]);
                    found(Life { id, start, end, size, group });
                }
            }
        }
    }

    /// The lives at `position`, by id.
    pub(super) fn at(&self, position: Position) -> Vec<Life> {
        let mut res = Vec::new();
        self.overlapping((position, position + 1), Grouping::Category, |it| res.push(it));
        res.sort_unstable_by_key(|it| it.id);
        res
    }
}

/// How long it lasted, as a power of two.
fn class(start: Position, end: Position) -> usize {
    if end == NEVER { 32 } else { end.saturating_sub(start).max(1).ilog2() as usize }
}
