//! Everything that is known of one block.

use crate::{
    scene::{Grouping, LifeId, Line, Position, Scene, line::name_of},
    trace::{StackId, TextId},
    units::Bytes,
};

/// Everything that is known of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Which.
    pub life: LifeId,
    /// Where it began.
    pub address: u64,
    /// What it occupied.
    pub size: Bytes,
    /// What was asked for.
    pub requested: Bytes,
    /// The first position at which it was live; 0 if it was allocated before the recording.
    pub start: Position,
    /// The first position at which it was no more; none if it lived to the end.
    pub end: Option<Position>,
    /// Microseconds that it lived, where a clock was recorded; to the end of the recording at least.
    pub micros: Option<u64>,
    /// What it is for, as an index of [`Scene::groups`].
    pub category: u8,
    /// The tensor that lived in it.
    pub name: Option<String>,
    /// The module that made it.
    pub module: Option<String>,
    /// The raw handle of its stream; none if it was allocated before the recording.
    pub stream: Option<i64>,
    /// The pool and stream that it came out of, where there are several.
    pub pool: Option<String>,
    /// The step that it was made in.
    pub step: Option<u32>,
    /// What the program had attached (`user_metadata`).
    pub metadata: String,
    /// The line that it comes from, as every view says it.
    pub line: Option<Line>,
    /// Its stack, innermost first; of what autograd's threads asked for, the one that called `backward()`.
    pub stack: Vec<Line>,
}

impl Scene<'_> {
    /// Everything that is known of `life`; none if there is no such block.
    pub fn block(&self, life: LifeId) -> Option<BlockFacts> {
        let alone = self.block_alone(life)?;
        let names = self.run.trace.stacks.frame_ids(self.told_stack(life));
        let stack = names.map(|it| name_of(&self.run, it)).collect();
        Some(BlockFacts { line: self.line(life), stack, ..alone })
    }

    /// The same without its line and its stack: all blocks together have more frames than a recording.
    pub(super) fn block_alone(&self, life: LifeId) -> Option<BlockFacts> {
        let index = life as usize;
        let replay = &self.run.replay;
        let trace = self.run.trace;
        let before = self.n_before();
        let (address, size, requested, start, free, event) = if index < before {
            let it = &replay.initial[index];
            (it.address, it.size, it.requested, 0, it.free, None)
        } else {
            let it = replay.blocks.get(index - before)?;
            let event = self.run.device.events.get(it.alloc.index());
            (it.address, it.size, it.requested, it.alloc.0 + 1, it.free, Some(event))
        };
        let end = free.map(|it| it.0 + 1);
        let has_clock = self.levels.micros() != 0;
        let until = self.levels.micros_at(end.unwrap_or(self.end() - 1));
        let metadata = event.map_or(TextId(0), |it| it.metadata);
        Some(BlockFacts {
            life,
            address,
            size,
            requested,
            start,
            end,
            micros: has_clock.then(|| until.saturating_sub(self.levels.micros_at(start))),
            category: self.groups.category(index),
            name: self.names.get(&life).cloned(),
            module: self.module(life),
            stream: event.map(|it| trace.streams.get(it.stream.index()).copied().unwrap_or(0)),
            pool: self.pool_of(index),
            step: self.step_of(start).0,
            metadata: trace.text(metadata).to_owned(),
            line: None,
            stack: Vec::new(),
        })
    }

    /// The stack of `life` itself; where that is empty, the one that it is told by.
    pub(super) fn told_stack(&self, life: LifeId) -> StackId {
        let block = (life as usize).checked_sub(self.n_before());
        let own = block.map(|block| {
            let alloc = self.run.replay.blocks[block].alloc;
            self.run.device.events.get(alloc.index()).stack
        });
        own.filter(|it| *it != StackId::EMPTY).unwrap_or_else(|| self.owners.stack(life))
    }

    fn pool_of(&self, index: usize) -> Option<String> {
        let groups = self.groups(Grouping::Pool);
        let group = groups.get(usize::from(self.groups.pools.group(index)))?;
        (1 < groups.len()).then(|| group.name.clone())
    }

    /// The word for what `life` is for.
    pub fn category_of(&self, life: LifeId) -> &'static str {
        let group = self.groups.category(life as usize);
        self.groups(Grouping::Category)[usize::from(group)].key
    }
}
