//! A recording that is still being read: its events come in portions.

use crate::trace::Events;

/// Some events, and what is known of the recording by then.
#[derive(Clone, Debug, Default)]
pub struct Portion {
    /// They come after all that came before.
    pub events: Events,
    /// The raw handle of each stream so far; as [`Trace::streams`](crate::trace::Trace::streams).
    pub streams: Vec<i64>,
    /// Whether any segment so far is a mapped run of an expandable one. Most writers write segments first.
    pub has_expandable: bool,
}

/// Who takes the events of a recording while it is read.
pub trait Keeper {
    /// Takes the next ones.
    fn keep(&mut self, portion: Portion);
    /// Gives back the events of all portions, in order.
    fn give_back(&mut self) -> Events;
}
