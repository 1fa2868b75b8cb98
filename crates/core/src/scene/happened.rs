//! What happened around a moment, event by event.

use crate::{
    scene::{LifeId, Line, Position, Scene, position::count, segments::Pending},
    trace::Action,
    units::Bytes,
};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The position after it.
    pub position: Position,
    /// What it was, in a word.
    pub action: &'static str,
    /// How much.
    pub size: Bytes,
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
                Happened { position, action: word(event.action), size: event.size, life, line }
            })
            .collect()
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
