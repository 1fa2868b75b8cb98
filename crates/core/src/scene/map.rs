//! Where memory lay at a moment: segments, the blocks in them and the holes between.

use crate::{
    scene::{LifeId, Position, Scene, segments::Pending},
    units::Bytes,
};

/// The address space at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Which moment.
    pub position: Position,
    /// By address.
    pub segments: Vec<MapSegment>,
}

/// A contiguous piece of device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSegment {
    /// Where it begins.
    pub address: u64,
    /// How much of it is mapped.
    pub size: Bytes,
    /// The raw handle of the stream that it serves.
    pub stream: i64,
    /// The pool that owns it; `(0, 0)` is the default one.
    pub pool: (i64, i64),
    /// For blocks of at most 1 MiB.
    pub is_small: bool,
    /// It grows by mapping.
    pub expandable: bool,
    /// The blocks in it, by address; what lies between is free.
    pub blocks: Vec<MapBlock>,
}

/// A block in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapBlock {
    /// Where it begins.
    pub address: u64,
    /// What it occupies.
    pub size: Bytes,
    /// What was asked for; the rest is lost to rounding.
    pub requested: Bytes,
    /// Who has it.
    pub state: MapState,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// The program.
    Live(LifeId),
    /// The program gave it back, and another stream may still be using it.
    Pending,
}

impl Scene<'_> {
    /// The address space at `position`.
    pub fn map(&self, position: Position) -> Map {
        let position = position.min(self.end() - 1);
        let trace = self.run.trace;
        let extents = self.segments.at(position, trace);
        let mut blocks: Vec<MapBlock> = self
            .lives
            .at(position)
            .into_iter()
            .map(|at| {
                let (address, size) = self.extent(at.id);
                let requested = self.requested(at.id);
                MapBlock { address, size, requested, state: MapState::Live(at.id) }
            })
            .collect();
        let waits = |it: &&Pending| it.from <= position && position < it.to;
        let pending = self.segments.pending.iter().filter(waits);
        blocks.extend(pending.map(|block| MapBlock {
            address: block.address,
            size: block.size,
            requested: block.size,
            state: MapState::Pending,
        }));
        blocks.sort_by_key(|it| it.address);
        let mut blocks = blocks.into_iter().peekable();
        let segments = extents.into_iter().map(|(address, extent)| {
            // A block outside all segments is one that the recording contradicts itself about.
            while blocks.next_if(|it| it.address < address).is_some() {}
            let inside = std::iter::from_fn(|| blocks.next_if(|it| it.address < extent.end));
            MapSegment {
                address,
                size: Bytes(extent.end - address),
                stream: extent.stream,
                pool: extent.pool,
                is_small: extent.is_small,
                expandable: extent.expandable,
                blocks: inside.collect(),
            }
        });
        Map { position, segments: segments.collect() }
    }
}
