//! Moments of a device, and its blocks, as numbers.

use crate::trace::EventId;

/// A moment of a device: 0 is before the first event, `p` is after the `p`-th.
pub type Position = u32;

/// A block from its allocation to its free: first those from before the recording, then the others in
/// the order of allocation.
pub type LifeId = u32;

/// The event that leads to `position`; the first one for what was before.
pub(super) fn event_of(position: Position) -> EventId {
    EventId(position.saturating_sub(1))
}

pub(super) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
