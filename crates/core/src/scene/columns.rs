//! Everything that a page needs to answer for itself, as columns: of blocks, events, segments, stacks.

use std::collections::BTreeMap;

use crate::{
    recording::Phase,
    scene::{
        Held, Line, Position, Scene, happened,
        line::{code_of, name_of},
        owners,
        position::count,
        segments::{Extent, Segments},
    },
    trace::StackId,
    units::Bytes,
};

/// One device as columns. What is by life is in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// By life: the first position at which it was live.
    pub starts: Vec<Position>,
    /// By life: the first position at which it was no more; the largest number for never.
    pub ends: Vec<Position>,
    /// By life.
    pub sizes: Vec<u64>,
    /// By life: what was asked for.
    pub requested: Vec<u64>,
    /// By life.
    pub addresses: Vec<u64>,
    /// By life: its groups.
    pub groups: [Vec<u8>; 3],
    /// By life: an index of `owners`.
    pub owner_of: Vec<u32>,
    /// By life: the stack that selections and flame graphs use.
    pub stacks: Vec<u32>,
    /// By life: the stack that is told.
    pub told_stacks: Vec<u32>,
    /// By life: its name, its module, its metadata, its pool and its stream as indices of `texts`; 0 for none.
    pub words: [Vec<u32>; 5],
    /// By life: the step that it was made in, and one; 0 for none.
    pub steps: Vec<u32>,
    /// By position from 1: what happened, as an index of `actions`; and how much.
    pub happened: Vec<u8>,
    /// The same: how much.
    pub amounts: Vec<u64>,
    /// The same: where, of those that may be of no block; 0 of all others.
    pub places: Vec<u64>,
    /// The same: the stack of those that are of no block.
    pub event_stacks: Vec<u32>,
    /// The words for what happens.
    pub actions: Vec<&'static str>,
    /// By position; empty where there was no clock.
    pub micros: Vec<u64>,
    /// By position.
    pub allocated: Vec<u64>,
    /// Where what is reserved changes, and to what.
    pub reserved: Vec<(Position, u64)>,
    /// Where the largest hole changes, and to what.
    pub holes: Vec<(Position, u64)>,
    /// By position, where they change: the step and the phase.
    pub stages: Vec<(Position, Option<u32>, Option<Phase>)>,
    /// Lines, by owner.
    pub owners: Vec<Option<Line>>,
    /// Frames.
    pub frames: Vec<Line>,
    /// By stack: who called, and an index of `frames`.
    pub nodes: Vec<(u32, u32)>,
    /// Segments, for as long as they were what they were.
    pub extents: Vec<Extents>,
    /// What another stream still used after it was given back: address, size, from and until.
    pub pending: Vec<(u64, u64, Position, Position)>,
    /// Of each group of what private pools hold: its index, that of the blocks beside it, and what both take,
    /// from where it changes.
    pub held: Vec<Held>,
    /// Texts; the first is empty.
    pub texts: Vec<String>,
    /// Whether stacks were recorded at all.
    pub has_stacks: bool,
}

/// A segment, for as long as it was what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Where it begins.
    pub address: u64,
    /// How much of it is mapped.
    pub size: Bytes,
    /// The raw handle of the stream that it serves.
    pub stream: i64,
    /// The pool that owns it.
    pub pool: (i64, i64),
    /// For blocks of at most 1 MiB.
    pub is_small: bool,
    /// It grows by mapping.
    pub expandable: bool,
    /// The first position at which it was so.
    pub from: Position,
    /// The first position at which it was so no more.
    pub to: Position,
}

impl Scene<'_> {
    /// The whole scene as columns.
    pub fn columns(&self) -> Columns {
        let mut res = Columns { texts: vec![String::new()], ..Columns::default() };
        let mut texts = Texts::default();
        let facts = self.facts();
        for life in 0..facts.lives {
            let Some(block) = self.block_alone(life) else { continue };
            let index = life as usize;
            let (start, end) = self.span(life);
            res.starts.push(start);
            res.ends.push(end);
            res.sizes.push(block.size.0);
            res.requested.push(block.requested.0);
            res.addresses.push(block.address);
            res.groups[0].push(self.groups.category(index));
            res.groups[1].push(self.groups.line(index));
            res.groups[2].push(self.groups.pools.group(index));
            res.owner_of.push(self.owners.index(life));
            res.stacks.push(self.owners.stack(life).0);
            res.told_stacks.push(self.told_stack(life).0);
            let stream = block.stream.map(|it| it.to_string());
            let words = [block.name, self.module(life), Some(block.metadata), block.pool, stream];
            for (column, word) in res.words.iter_mut().zip(words) {
                column.push(texts.index(word.as_deref().unwrap_or_default(), &mut res.texts));
            }
            res.steps.push(block.step.map_or(0, |it| it + 1));
        }
        self.events(&mut res);
        self.curves(&mut res);
        let table = &self.run.trace.stacks;
        let all_frames = (0..count(table.n_frames())).map(crate::trace::FrameId);
        res.frames = all_frames.map(|it| name_of(&self.run, it)).collect();
        for (frame, line) in (0..).map(crate::trace::FrameId).zip(&mut res.frames) {
            line.code = code_of(&self.run, frame);
        }
        res.nodes = (0..count(table.n_nodes()))
            .map(|node| {
                let frame = table.frame_ids(StackId(node)).next();
                (
                    if node == 0 { 0 } else { table.caller(StackId(node)).0 },
                    frame.map_or(0, |it| it.0),
                )
            })
            .collect();
        res.owners = self.owners.all.iter().map(|it| owners::name(&self.run, *it)).collect();
        res.extents = self.extents();
        res.pending =
            self.pending().iter().map(|it| (it.address, it.size.0, it.from, it.to)).collect();
        res.held = self.groups.pools.curves();
        res.has_stacks = self.run.stacks.recorded;
        res
    }

    fn events(&self, res: &mut Columns) {
        for (_, event) in self.run.device.events.iter() {
            let word = happened::word(event.action);
            let at = res.actions.iter().position(|it| *it == word).unwrap_or_else(|| {
                res.actions.push(word);
                res.actions.len() - 1
            });
            res.happened.push(u8::try_from(at).unwrap_or(u8::MAX));
            res.amounts.push(event.size.0);
            res.places.push(if happened::has_place(event.action) { event.address } else { 0 });
            let of_block = matches!(word, "alloc" | "free" | "free completed");
            res.event_stacks.push(if of_block { 0 } else { event.stack.0 });
        }
    }

    fn curves(&self, res: &mut Columns) {
        let has_clock = self.levels.micros() != 0;
        for position in 0..self.end() {
            res.allocated.push(self.levels.allocated(position).0);
            if has_clock {
                res.micros.push(self.levels.micros_at(position));
            }
            let (step, phase) = self.step_of(position);
            if res.stages.last().is_none_or(|it| (it.1, it.2) != (step, phase)) {
                res.stages.push((position, step, phase));
            }
        }
        res.reserved = self.levels.reserved_changes().map(|it| (it.0, it.1.0)).collect();
        res.holes = self.holes().changes().iter().map(|it| (it.0, it.1.0)).collect();
    }

    /// Goes from the end to the beginning, undoing what changed the map.
    fn extents(&self) -> Vec<Extents> {
        let trace = self.run.trace;
        let mut map = self.segments.last.clone();
        let mut open: BTreeMap<u64, (Extent, Position)> =
            map.iter().map(|(at, it)| (*at, (*it, self.end()))).collect();
        let mut res = Vec::new();
        for (position, event) in self.segments.changes.iter().rev() {
            let near = event.address.saturating_sub(1)..=event.address.saturating_add(event.size.0);
            let first = map.range(..event.address).next_back().map_or(*near.start(), |it| *it.0);
            let range = first.min(*near.start())..=*near.end();
            Segments::undo(&mut map, event, trace);
            let first_now = map.range(..event.address).next_back().map_or(first, |it| *it.0);
            let range = first_now.min(*range.start())..=*range.end();
            let gone: Vec<u64> = open
                .range(range.clone())
                .filter(|(at, (extent, _))| map.get(at) != Some(extent))
                .map(|it| *it.0)
                .collect();
            for at in gone {
                if let Some((extent, to)) = open.remove(&at) {
                    res.push(told(at, extent, *position, to));
                }
            }
            for (at, extent) in map.range(range) {
                open.entry(*at).or_insert((*extent, *position));
            }
        }
        res.extend(open.into_iter().map(|(at, (extent, to))| told(at, extent, 0, to)));
        res.retain(|it| it.from < it.to);
        res.sort_by_key(|it| (it.from, it.address));
        res
    }
}

fn told(address: u64, extent: Extent, from: Position, to: Position) -> Extents {
    Extents {
        address,
        size: extent.size(address),
        stream: extent.stream,
        pool: extent.pool,
        is_small: extent.is_small,
        expandable: extent.expandable,
        from,
        to,
    }
}

#[derive(Default)]
struct Texts(BTreeMap<String, u32>);

impl Texts {
    fn index(&mut self, text: &str, all: &mut Vec<String>) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(it) = self.0.get(text) {
            return *it;
        }
        let index = count(all.len());
        all.push(text.to_owned());
        self.0.insert(text.to_owned(), index);
        index
    }
}
