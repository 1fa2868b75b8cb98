//! What a recorded program asked of its allocator, without what the allocator did about it: what a
//! what-if replay runs. Made once, run under as many settings as wanted.

use crate::{
    replay::{Config, Replay, allocator::Traits, driver::DriverCall, initial::Initial},
    trace::{EventId, PoolId, SettingsChange, StreamId},
    units::Bytes,
};

/// The requests of one device, in order.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) ops: Vec<Op>,
    /// The event that each of `ops` comes from.
    pub(super) events: Vec<EventId>,
    /// What the program had before the first event, in order of address. Its handles come first.
    pub(super) initial: Vec<Before>,
    /// The segments and blocks from before the first event, where they lay.
    pub(super) heap: Initial,
    /// The settings that [`Program::heap`] came about under.
    pub(super) recorded: Option<Config>,
    /// How the program itself changes the settings while it runs, whichever it began with.
    pub(super) changes: Vec<SettingsChange>,
    /// What was asked of the driver.
    pub(super) script: Vec<DriverCall>,
    /// How many handles there are.
    pub(super) n_handles: u32,
    /// The raw handles of the streams.
    pub(super) streams: Vec<u64>,
    /// What sets its private pools apart.
    pub(super) traits: Traits,
    /// How many events the recording has.
    pub n_events: usize,
    /// The most that the recorded run could have taken, if requests failed: what explains every failure.
    pub observed_limit: Option<Bytes>,
    /// A limit that explains what garbage was collected in the recorded run, if any was.
    pub known_limit: Option<Bytes>,
}

/// A block from before the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) requested: Bytes,
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
    pub(super) pending: bool,
}

/// One thing that the program did. Blocks are named by handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// It asked; the answer has the next handle.
    Alloc { size: Bytes, stream: ShortStream, pool: PoolId },
    /// It gave a block back, which was reusable at once.
    Free(u32),
    /// It gave a block back that another stream was still using.
    FreeRequested(u32),
    /// The other streams are done with it.
    FreeCompleted(u32),
    /// It asked, and the request failed when it was recorded. `size` is rounded.
    Failed { size: Bytes, stream: ShortStream, pool: PoolId },
    /// It called `empty_cache`.
    EmptyCache,
    /// It dropped a private pool.
    DropPool(PoolId),
}

const _: () = assert!(size_of::<Op>() == 16, "a recording has millions of them");

/// A stream in two bytes; no event's needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortStream(u16);

impl From<StreamId> for ShortStream {
    fn from(StreamId(id): StreamId) -> ShortStream {
        ShortStream(u16::try_from(id).unwrap_or(u16::MAX))
    }
}

impl From<ShortStream> for StreamId {
    fn from(ShortStream(id): ShortStream) -> StreamId {
        StreamId(u32::from(id))
    }
}

impl Program {
    pub(super) fn push(&mut self, op: Op, event: usize) {
        self.ops.push(op);
        self.events.push(EventId(super::history::id_of(event)));
    }

    /// Puts `op` before the one at `place`.
    pub(super) fn insert(&mut self, place: usize, op: Op, event: usize) {
        self.ops.insert(place, op);
        self.events.insert(place, EventId(super::history::id_of(event)));
    }

    /// The same, had `empty_cache` been called right before each of `events`, which are in order.
    pub fn emptied_before(&self, events: &[EventId]) -> Program {
        let mut res = Program { ops: Vec::new(), events: Vec::new(), ..self.clone() };
        let mut todo = events.iter().peekable();
        for (op, event) in self.ops.iter().zip(&self.events) {
            while let Some(at) = todo.next_if(|it| *it <= event) {
                res.push(Op::EmptyCache, at.index());
            }
            res.push(*op, event.index());
        }
        res
    }

    /// Whether another run of the program asked for the same, in the same order.
    pub fn asks_the_same(&self, there: &Program) -> bool {
        self.ops == there.ops
    }

    /// Whether the recorded run ended with a request that failed.
    pub fn ends_failing(&self) -> bool {
        let last = self.ops.iter().rposition(|it| matches!(it, Op::Alloc { .. }));
        let failed = self.ops.iter().rposition(|it| matches!(it, Op::Failed { .. }));
        failed.is_some_and(|it| last.is_none_or(|last| last < it))
    }

    /// Without the addresses that the recorded driver gave: those of the phantom's rule instead.
    pub fn without_addresses(mut self) -> Program {
        self.script.clear();
        self
    }

    /// What the checked replay found out that a what-if replay wants to know.
    pub(super) fn finish(&mut self, replay: &Replay, n_events: usize) {
        self.n_handles = super::history::id_of(replay.initial.len() + replay.blocks.len());
        self.observed_limit = replay.observed_limit;
        self.n_events = n_events;
    }
}
