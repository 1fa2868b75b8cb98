//! Positions in the tables of a trace, each of a type of its own.

macro_rules! define_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the table that the id points into.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
pub(crate) use define_ids;

define_ids! {
    /// A position in [`DeviceTrace::events`](crate::trace::DeviceTrace::events). Order of events is order of ids, never order of time:
    /// the recorder's clock is not monotone.
    EventId;
    /// A text in [`Trace::texts`](crate::trace::Trace::texts); 0 is the empty text.
    TextId;
    /// A CUDA stream in [`Trace::streams`](crate::trace::Trace::streams), by first appearance. The allocator never hands a block
    /// of one stream to another.
    StreamId;
    /// A pool in [`Trace::pools`](crate::trace::Trace::pools); 0 is the default pool, others are CUDA graphs' and `MemPool`s.
    PoolId;
}
