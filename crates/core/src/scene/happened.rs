//! What happened around a moment, event by event.

use crate::{
    scene::{LifeId, Line, Pick, Position, Scene, position::count, segments::Pending},
    trace::Action,
    units::Bytes,
};

/// So many are looked at together where all are searched.
const EVENTS_AT_ONCE: u32 = 4096;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The position after it.
    pub position: Position,
    /// What it was, in a word.
    pub action: &'static str,
    /// How much.
    pub size: Bytes,
    /// What rounding adds to it, of a block.
    pub loss: Bytes,
    /// Where; none of a refusal, and of a block that the recording does not know.
    pub address: Option<u64>,
    /// The block that it began or ended.
    pub life: Option<LifeId>,
    /// Whose line.
    pub line: Option<Line>,
}

impl Scene<'_> {
    /// The events from `first` on, at most `n`; the first event is 1.
    pub fn happened(&self, first: Position, n: u32) -> Vec<Happened> {
        let first = first.max(1);
        let last = first.saturating_add(n).min(self.end());
        let events = &self.run.device.events;
        let n_before = self.n_before();
        let replay = &self.run.replay;
        (first..last)
            .map(|position| {
                let event = events.get(position as usize - 1);
                let life = match event.action {
                    Action::Alloc => {
                        let at = replay.blocks.partition_point(|it| it.alloc.0 + 1 < position);
                        Some(count(n_before + at))
                    }
                    Action::FreeRequested | Action::FreeCompleted => self.ended_at(position),
                    _ => None,
                };
                let is_of_block = matches!(
                    event.action,
                    Action::Alloc | Action::FreeRequested | Action::FreeCompleted
                );
                let line = match life {
                    Some(it) => self.line(it),
                    None if is_of_block => None,
                    None => self.line_of_stack(event.stack),
                };
                let loss = life
                    .map_or(Bytes::ZERO, |it| self.extent(it).1.saturating_sub(self.requested(it)));
                let (action, size) = (word(event.action), event.size);
                let address = match life {
                    Some(it) => Some(self.extent(it).0),
                    None => Some(event.address).filter(|_| has_place(event.action)),
                };
                Happened { position, action, size, loss, address, life, line }
            })
            .collect()
    }

    /// The positions of the events that `words` mean: those of the blocks that a search finds, and those whose own word or line
    /// has them. `also` are blocks that are meant as well.
    pub fn events_of(&self, words: &str, also: &[LifeId]) -> Vec<Position> {
        let selection = self.select(&Pick::Words(words.to_owned(), also.to_vec()), 0);
        let mut is_meant = vec![false; self.n_before() + self.run.replay.blocks.len()];
        selection.lives.iter().for_each(|it| is_meant[*it as usize] = true);
        let text = words.trim().to_lowercase();
        let has = |it: &str| !text.is_empty() && it.to_lowercase().contains(&text);
        let is_it = |happened: &Happened| {
            happened.life.is_some_and(|it| is_meant[it as usize])
                || has(happened.action)
                || happened.life.is_none()
                    && happened.line.as_ref().is_some_and(|it| has(&it.to_string()))
        };
        let all = (1..self.end()).step_by(EVENTS_AT_ONCE as usize);
        let events = all.flat_map(|from| self.happened(from, EVENTS_AT_ONCE));
        events.filter(is_it).map(|it| it.position).collect()
    }

    /// The block that lived until `position`.
    fn ended_at(&self, position: Position) -> Option<LifeId> {
        let replay = &self.run.replay;
        let freed = &replay.freed;
        let at = freed.partition_point(|it| it.event.0 + 1 < position);
        let it = freed.get(at).filter(|it| it.event.0 + 1 == position)?;
        match it.block {
            Some(block) => Some(count(self.n_before() + block.index())),
            None => {
                let mut before = replay.initial.iter();
                before.position(|it| it.free.is_some_and(|it| it.0 + 1 == position)).map(count)
            }
        }
    }

    /// What another stream may still use, with when.
    pub(super) fn pending(&self) -> &[Pending] {
        &self.segments.pending
    }
}

/// Whether an event of this kind says where, though it may begin or end no block.
pub(super) fn has_place(action: Action) -> bool {
    matches!(
        action,
        Action::FreeCompleted
            | Action::SegmentAlloc
            | Action::SegmentFree
            | Action::SegmentMap
            | Action::SegmentUnmap
    )
}

pub(super) fn word(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free",
        Action::FreeCompleted => "free completed",
        Action::SegmentAlloc => "segment got",
        Action::SegmentFree => "segment given back",
        Action::SegmentMap => "segment mapped",
        Action::SegmentUnmap => "segment unmapped",
        Action::Oom => "out of memory",
        _ => "other",
    }
}
