//! Where a recording does what the allocator would not have done.

use crate::trace::EventId;

/// How many mismatches are kept with their place; all are counted.
const KEPT_MISMATCHES: usize = 100;

/// Something that the allocator would not have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// A block outside all segments, or inside another block.
    NoRoom,
    /// A block that does not begin where free memory begins.
    NotAtStart,
    /// A block larger than the free memory at its address.
    TooLarge,
    /// Another free block would have been taken.
    OtherBlock,
    /// The driver was asked although a free block fits.
    NeedNotGrow,
    /// The driver was asked for another size.
    SegmentSize,
    /// Another range of an expandable segment would have been mapped.
    MappedElsewhere,
    /// Memory that would have gone back to the driver did not.
    NotReleased,
    /// A segment came, went, or was mapped or unmapped, and the model has no reason for it.
    Unexplained,
    /// A request failed that the model could serve.
    NeedNotFail,
    /// A free of a block that is not in use.
    NotInUse,
    /// A segment given back that was not held.
    NoSuchSegment,
    /// A segment that came where another one is.
    SegmentTwice,
    /// The end state holds a block of another size, or one that the events did not make.
    EndState,
}

/// Mismatches as they are found.
#[derive(Clone, Debug, Default)]
pub(super) struct Mismatches {
    pub(super) first: Vec<(EventId, Mismatch)>,
    pub(super) n: u64,
}

impl Mismatches {
    pub(super) fn add(&mut self, event: EventId, mismatch: Mismatch) {
        self.n += 1;
        if self.first.len() < KEPT_MISMATCHES {
            self.first.push((event, mismatch));
        }
    }
}

impl Mismatch {
    /// What happened, as the end of "at event 7, ...".
    pub fn sentence(self) -> &'static str {
        match self {
            Mismatch::NoRoom => "a block lies outside all segments, or inside another block",
            Mismatch::NotAtStart => "a block does not begin where free memory begins",
            Mismatch::TooLarge => "a block is larger than the free memory at its address",
            Mismatch::OtherBlock => "another free block would have been taken",
            Mismatch::NeedNotGrow => "the driver was asked although a free block fits",
            Mismatch::SegmentSize => "the driver was asked for another size",
            Mismatch::MappedElsewhere => "another range would have been mapped",
            Mismatch::NotReleased => {
                "the recorded allocator did not release memory that the model releases"
            }
            Mismatch::Unexplained => "a segment changed without a reason in the model",
            Mismatch::NeedNotFail => "a request failed that the model could serve",
            Mismatch::NotInUse => "a block was freed that is not in use",
            Mismatch::NoSuchSegment => "a segment was given back that was not held",
            Mismatch::SegmentTwice => "a segment came where another one is",
            Mismatch::EndState => "the recorded end state is another",
        }
    }
}
