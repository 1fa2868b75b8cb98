//! A recording that was never made: the events that the model leaves behind for a list of requests. For
//! measurements and tests that need recordings of any length.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        Config,
        allocator::{Allocator, Request},
        driver::{Choice, Driver, FreeDriver},
        heap::Heap,
        slot::Slot,
    },
    trace::{Action, Event, Events, PoolId, StackId, StreamId, TextId},
    units::Bytes,
};

/// Runs requests of one stream and the default pool, and keeps the events.
#[derive(Debug)]
pub struct Recorder {
    model: Allocator<Noted>,
    blocks: BTreeMap<usize, (Slot, Bytes)>,
}

/// A driver that notes what it did.
#[derive(Debug)]
struct Noted {
    inner: FreeDriver<'static>,
    events: Events,
}

impl Recorder {
    /// An allocator with these settings that has nothing yet.
    pub fn new(config: Config) -> Recorder {
        let capacity = config.capacity.map_or(u64::MAX, |it| it.0);
        let inner = FreeDriver::new(capacity, &[], BTreeMap::new());
        let driver = Noted { inner, events: Events::default() };
        Recorder { model: Allocator::new(config, Vec::new(), driver), blocks: BTreeMap::new() }
    }

    /// A request of `size`, whose block is called `name` from here on. One that fails leaves an `oom`.
    pub fn alloc(&mut self, name: usize, size: Bytes) {
        let request = Request { size, stream: StreamId(0), pool: PoolId(0) };
        match self.model.malloc(request) {
            Ok(slot) => {
                self.blocks.insert(name, (slot, size));
                let address = self.model.heap.block(slot).address;
                self.model.driver.note(Action::Alloc, address, size);
            }
            Err(error) => self.model.driver.note(Action::Oom, 0, Bytes(error.params_size)),
        }
    }

    /// The block called `name` is given back, if there is one.
    pub fn free(&mut self, name: usize) {
        let Some((slot, size)) = self.blocks.remove(&name) else { return };
        let address = self.model.heap.block(slot).address;
        self.model.driver.note(Action::FreeRequested, address, size);
        self.model.driver.note(Action::FreeCompleted, address, size);
        self.model.free(slot);
    }

    /// Everything that happened.
    pub fn finish(self) -> Events {
        self.model.driver.events
    }
}

impl Noted {
    fn note(&mut self, action: Action, address: u64, size: Bytes) {
        self.events.push(Event {
            action,
            address,
            size,
            stream: StreamId(0),
            pool: PoolId(0),
            stack: StackId::EMPTY,
            time_micros: 0,
            metadata: TextId(0),
        });
    }
}

impl Driver for Noted {
    fn malloc(&mut self, size: u64) -> Option<(u64, u64)> {
        let (address, size) = self.inner.malloc(size)?;
        self.note(Action::SegmentAlloc, address, Bytes(size));
        Some((address, size))
    }

    fn free(&mut self, address: u64, size: u64) -> bool {
        self.note(Action::SegmentFree, address, Bytes(size));
        self.inner.free(address, size)
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        self.inner.reserve(size)
    }

    fn map(&mut self, address: u64, size: u64) -> bool {
        let is_mapped = self.inner.map(address, size);
        if is_mapped {
            self.note(Action::SegmentMap, address, Bytes(size));
        }
        is_mapped
    }

    fn unmap(&mut self, address: u64, size: u64) -> bool {
        self.note(Action::SegmentUnmap, address, Bytes(size));
        self.inner.unmap(address, size)
    }

    fn choose(&mut self, found: Option<Slot>, heap: &mut Heap) -> Choice {
        self.inner.choose(found, heap)
    }

    fn synchronize(&mut self, pending: &BTreeSet<Slot>) -> Vec<Slot> {
        self.inner.synchronize(pending)
    }
}
