//! A place in the table of blocks.

/// A place in the table of blocks. A block keeps its slot while the program has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    /// No block.
    pub(super) const NONE: Slot = Slot(u32::MAX);

    /// The first of the table.
    #[cfg(test)]
    pub(super) const FIRST: Slot = Slot(0);

    /// Its place in the table.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn some(self) -> Option<Slot> {
        (self != Slot::NONE).then_some(self)
    }
}
