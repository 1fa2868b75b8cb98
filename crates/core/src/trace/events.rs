//! The events of one device, as columns: a recording has millions of them.

use crate::{
    trace::{EventId, PoolId, StackId, StreamId, TextId},
    units::Bytes,
};

/// What happened. The names are PyTorch's (`TraceEntry::Action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// A block was handed to the program.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// The block became reusable; later than the request only if other streams used it.
    FreeCompleted,
    /// The driver gave a segment (`cudaMalloc`).
    SegmentAlloc,
    /// A segment went back to the driver (`cudaFree`).
    SegmentFree,
    /// Part of an expandable segment was mapped.
    SegmentMap,
    /// Part of an expandable segment was unmapped.
    SegmentUnmap,
    /// Somebody took a snapshot.
    Snapshot,
    /// A request failed; `address` is what the device said was free, `size` the rounded request.
    Oom,
    /// The program attached metadata to a live block.
    Annotate,
    /// An action that this version does not know.
    Other,
}

/// One event, put together from the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Of the block or segment; of [`Action::Oom`], the free bytes of the device.
    pub address: u64,
    /// Of blocks what the program asked for, before rounding; of segments the real size.
    pub size: Bytes,
    /// The stream of the block or segment.
    pub stream: StreamId,
    /// The pool; recorded since torch 2.12, the default pool otherwise.
    pub pool: PoolId,
    /// Who asked.
    pub stack: StackId,
    /// When, in microseconds of the recorder's clock; not monotone, 0 when not recorded.
    pub time_micros: i64,
    /// What the thread had set as its metadata (`user_metadata`).
    pub metadata: TextId,
}

/// The columns. All have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    actions: Vec<Action>,
    addresses: Vec<u64>,
    sizes: Vec<Bytes>,
    /// Streams and pools are few; sources refuse more than these can count.
    streams: Rare<u16>,
    pools: Rare<u16>,
    stacks: Vec<StackId>,
    times: Vec<i64>,
    metadata: Rare<TextId>,
}

/// A column that most recordings leave at its default, which takes no room: rows beyond the last other
/// value are not stored. Invariant: the last stored value is not the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare<T>(Vec<T>);

impl<T: Copy + Default + PartialEq> Rare<T> {
    /// Sets the row `index`, which is the last.
    #[inline]
    fn push(&mut self, index: usize, value: T) {
        if value != T::default() {
            self.0.resize(index, T::default());
            self.0.push(value);
        }
    }

    #[inline]
    fn get(&self, index: usize) -> T {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Changes the row `index` from the default to `value`.
    fn set(&mut self, index: usize, value: T) {
        match self.0.get_mut(index) {
            Some(row) => *row = value,
            None => self.push(index, value),
        }
    }

    /// Adds the rows of `other` after these, which are `len`.
    fn append(&mut self, len: usize, other: &Rare<T>) {
        if !other.0.is_empty() {
            self.0.resize(len, T::default());
            self.0.extend_from_slice(&other.0);
        }
    }

    fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
        while self.0.last() == Some(&T::default()) {
            self.0.pop();
        }
    }

    fn split_off(&mut self, at: usize) -> Rare<T> {
        let res = if at < self.0.len() { self.0.split_off(at) } else { Vec::new() };
        self.truncate(at);
        Rare(res)
    }
}

impl Events {
    pub(super) const NONE: Events = Events {
        actions: Vec::new(),
        addresses: Vec::new(),
        sizes: Vec::new(),
        streams: Rare(Vec::new()),
        pools: Rare(Vec::new()),
        stacks: Vec::new(),
        times: Vec::new(),
        metadata: Rare(Vec::new()),
    };

    /// None, with room for `n` that have no stream, pool or metadata of their own.
    pub fn with_capacity(n: usize) -> Events {
        Events {
            actions: Vec::with_capacity(n),
            addresses: Vec::with_capacity(n),
            sizes: Vec::with_capacity(n),
            stacks: Vec::with_capacity(n),
            times: Vec::with_capacity(n),
            ..Events::default()
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Adds `event` after all others.
    pub fn push(&mut self, event: Event) {
        let index = self.len();
        self.actions.push(event.action);
        self.addresses.push(event.address);
        self.sizes.push(event.size);
        self.streams.push(index, narrow(event.stream.0));
        self.pools.push(index, narrow(event.pool.0));
        self.stacks.push(event.stack);
        self.times.push(event.time_micros);
        self.metadata.push(index, event.metadata);
    }

    /// Adds `others` after all others.
    pub fn append(&mut self, others: &Events) {
        let len = self.len();
        self.actions.extend_from_slice(&others.actions);
        self.addresses.extend_from_slice(&others.addresses);
        self.sizes.extend_from_slice(&others.sizes);
        self.streams.append(len, &others.streams);
        self.pools.append(len, &others.pools);
        self.stacks.extend_from_slice(&others.stacks);
        self.times.extend_from_slice(&others.times);
        self.metadata.append(len, &others.metadata);
    }

    /// The event at position `index`, which is less than [`Events::len`].
    #[inline]
    pub fn get(&self, index: usize) -> Event {
        Event {
            action: self.actions[index],
            address: self.addresses[index],
            size: self.sizes[index],
            stream: StreamId(u32::from(self.streams.get(index))),
            pool: PoolId(u32::from(self.pools.get(index))),
            stack: self.stacks[index],
            time_micros: self.times[index],
            metadata: self.metadata.get(index),
        }
    }

    /// Gives the event at `index` a stack and metadata, if it has none of its own.
    pub(crate) fn lend(&mut self, index: usize, stack: StackId, metadata: TextId) {
        if self.stacks[index] == StackId::EMPTY {
            self.stacks[index] = stack;
        }
        if self.metadata.get(index) == TextId::default() {
            self.metadata.set(index, metadata);
        }
    }

    /// Who asked in the event at `index`: one column of [`Events::get`].
    #[inline]
    pub fn stack(&self, index: usize) -> StackId {
        self.stacks[index]
    }

    /// All events in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (EventId, Event)> {
        (0..).map(EventId).zip((0..self.len()).map(|it| self.get(it)))
    }

    /// What happened, column only.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// When each happened, column only; as [`Event::time_micros`].
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// How many bytes, column only.
    pub fn sizes(&self) -> &[Bytes] {
        &self.sizes
    }

    /// Every block that was handed out, with who asked: two columns.
    pub fn allocations(&self) -> impl Iterator<Item = (EventId, StackId)> {
        let events = (0..).map(EventId).zip(&self.actions).zip(&self.stacks);
        events.filter(|((_, action), _)| **action == Action::Alloc).map(|((id, _), it)| (id, *it))
    }

    /// All that is not about a block of the program's: what the driver gave and got back, failures. They are few.
    pub fn of_segments(&self) -> impl Iterator<Item = (EventId, Event)> {
        let of_block = |action: Action| {
            matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
        };
        let all = (0..).map(EventId).zip(&self.actions);
        all.filter(move |(_, it)| !of_block(**it)).map(|(id, _)| (id, self.get(id.index())))
    }

    /// Whether any event names a pool other than the default one: torch 2.12 and later do.
    pub fn names_pools(&self) -> bool {
        !self.pools.0.is_empty()
    }

    /// Keeps the first `len` events.
    pub fn truncate(&mut self, len: usize) {
        self.actions.truncate(len);
        self.addresses.truncate(len);
        self.sizes.truncate(len);
        self.streams.truncate(len);
        self.pools.truncate(len);
        self.stacks.truncate(len);
        self.times.truncate(len);
        self.metadata.truncate(len);
    }

    /// Takes the events from position `at` on out of these, which keep the ones before.
    pub fn split_off(&mut self, at: usize) -> Events {
        if at == 0 {
            return std::mem::take(self);
        }
        Events {
            actions: self.actions.split_off(at),
            addresses: self.addresses.split_off(at),
            sizes: self.sizes.split_off(at),
            streams: self.streams.split_off(at),
            pools: self.pools.split_off(at),
            stacks: self.stacks.split_off(at),
            times: self.times.split_off(at),
            metadata: self.metadata.split_off(at),
        }
    }
}

fn narrow(id: u32) -> u16 {
    u16::try_from(id).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_however_it_is_cut() {
        let event = |n: u32| Event {
            action: Action::Alloc,
            address: u64::from(n) << 20,
            size: Bytes(u64::from(n)),
            stream: StreamId(n / 4 % 2),
            pool: PoolId(u32::from(n == 3)),
            stack: StackId(n),
            time_micros: i64::from(n),
            metadata: TextId(u32::from(n == 9)),
        };
        let some = |range: std::ops::Range<u32>| {
            let mut res = Events::default();
            range.for_each(|n| res.push(event(n)));
            res
        };
        for at in 0..=12 {
            let mut first = some(0..12);
            let second = first.split_off(at as usize);
            assert_eq!((&first, &second), (&some(0..at), &some(at..12)));
            let mut both = first.clone();
            both.append(&second);
            assert_eq!(both, some(0..12));
            assert!(first.iter().all(|(id, it)| it == event(id.0)));
            assert!(second.iter().all(|(id, it)| it == event(at + id.0)));
            let mut cut = some(0..12);
            cut.truncate(at as usize);
            assert_eq!(cut, first);
        }
    }
}
