//! The driver as a recording has it: it gives what it gave then, and where the recording shows which
//! block was taken, it compares that with what the model found.

use std::collections::BTreeSet;

use crate::{
    replay::{
        Mismatch,
        driver::{Choice, Driver},
        heap::{Block, Heap, State},
        live_blocks::{Live, LiveBlocks},
        mismatch::Mismatches,
        slot::Slot,
    },
    trace::{Action, Event, EventId, Events, PoolId},
};

/// The events of the operation that is being followed.
#[derive(Clone, Debug)]
pub(super) struct Recorded<'a> {
    pub(super) events: &'a Events,
    /// The next event that is not explained yet.
    pub(super) at: usize,
    /// The event that ends the operation.
    pub(super) end: usize,
    /// Where the block was, when the operation handed one out.
    pub(super) want: Option<u64>,
    /// Whether the recording shows that the driver was asked.
    pub(super) grows: bool,
    /// The blocks in use.
    pub(super) live: LiveBlocks,
    /// The blocks that were completed while streams were waited for.
    pub(super) completed: Vec<u32>,
    pub(super) mismatches: Mismatches,
    /// The private pools that this operation gave back so far.
    pub(super) walked: Vec<PoolId>,
    /// Where the blocks are that the model would have taken or given back, and the recording did not.
    pub(super) blamed: Vec<u64>,
    /// Where ranges of addresses were reserved.
    pub(super) reserved: Vec<u64>,
    /// What the driver is known to grant: so much in all, and possibly more.
    pub(super) most_granted: u64,
    /// What is known of the reserved bytes above which garbage is collected.
    pub(super) goal: Goal,
    /// The private pool that serves the request that is being followed, which was the default one's.
    pub(super) overflow: Option<PoolId>,
    /// Whether the last request was given up, because its block has no room.
    pub(super) gave_up: bool,
}

/// What recorded collections of garbage say about the reserved bytes above which it is collected: at least
/// the one, at most the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    pub(super) least: u64,
    /// None as long as nothing shows that garbage is collected at all.
    pub(super) most: Option<u64>,
}

impl Recorded<'_> {
    /// The same over `events`, which begin with those that it has gone through.
    pub(super) fn over(self, events: &Events) -> Recorded<'_> {
        let Recorded { at, end, want, grows, live, completed, mismatches, walked, .. } = self;
        let Recorded { blamed, reserved, most_granted, goal, overflow, gave_up, .. } = self;
        Recorded {
            events,
            at,
            end,
            want,
            grows,
            live,
            completed,
            mismatches,
            walked,
            blamed,
            reserved,
            most_granted,
            goal,
            overflow,
            gave_up,
        }
    }

    /// The segments that the rest of the operation gives back, up to the first event of another kind.
    fn losses(&self) -> impl Iterator<Item = u64> {
        let events = (self.at..self.end).map(|it| self.events.get(it));
        let events = events
            .filter(|it| !matches!(it.action, Action::Snapshot | Action::Annotate | Action::Other));
        events.take_while(|it| it.action == Action::SegmentFree).map(|it| it.address)
    }

    /// The next event of the operation, passing over those that say nothing about memory.
    pub(super) fn peek(&mut self) -> Option<Event> {
        while self.at < self.end {
            let event = self.events.get(self.at);
            if !matches!(event.action, Action::Snapshot | Action::Annotate | Action::Other) {
                return Some(event);
            }
            self.at += 1;
        }
        None
    }

    pub(super) fn mismatch(&mut self, mismatch: Mismatch) {
        self.mismatches.add(EventId(super::history::id_of(self.at.min(self.end))), mismatch);
    }

    /// Goes on when the next event is this one.
    fn expect(&mut self, action: Action, address: u64, size: u64) -> bool {
        match self.peek() {
            Some(it) if it.action == action && it.address == address && it.size.0 == size => {
                self.at += 1;
                true
            }
            _ => false,
        }
    }
}

impl Driver for Recorded<'_> {
    fn malloc(&mut self, size: u64) -> Option<(u64, u64)> {
        let event = self.peek().filter(|it| it.action == Action::SegmentAlloc)?;
        if event.size.0 != size {
            self.mismatch(Mismatch::SegmentSize);
        }
        self.at += 1;
        Some((event.address, event.size.0))
    }

    fn free(&mut self, address: u64, size: u64) -> bool {
        let found = self.expect(Action::SegmentFree, address, size);
        if !found {
            self.blamed.push(address);
            self.mismatch(Mismatch::NotReleased);
        }
        found
    }

    fn reserve(&mut self, _: u64) -> Option<u64> {
        let address = self.peek().filter(|it| it.action == Action::SegmentMap)?.address;
        self.reserved.push(address);
        Some(address)
    }

    fn map(&mut self, address: u64, size: u64) -> bool {
        let found = self.expect(Action::SegmentMap, address, size);
        if !found && self.peek().is_some_and(|it| it.action == Action::SegmentMap) {
            self.blamed.push(address);
            self.mismatch(Mismatch::MappedElsewhere);
        }
        found
    }

    fn maps_elsewhere(&mut self, grows_at: u64) -> bool {
        self.peek().is_some_and(|it| it.action == Action::SegmentMap && it.address != grows_at)
    }

    fn unmap(&mut self, address: u64, size: u64) -> bool {
        let found = self.expect(Action::SegmentUnmap, address, size);
        if !found {
            self.blamed.push(address);
            self.mismatch(Mismatch::NotReleased);
        }
        found
    }

    fn knows_what_is_collected(&self) -> bool {
        true
    }

    fn collects(&mut self, reserved: u64, asked: u64, due: &[u64], all: &[u64]) -> bool {
        if reserved <= self.goal.least {
            return false;
        }
        if !self.losses().take(due.len()).eq(due.iter().copied()) {
            self.goal.least = reserved;
            return false;
        }
        // A retry gives all of them back, too; when the driver refuses.
        let refused = self.most_granted < reserved.saturating_add(asked);
        let by_retry = refused && self.losses().take(all.len()).eq(all.iter().copied());
        if !by_retry {
            let most = self.goal.most.unwrap_or(u64::MAX);
            self.goal.most = Some(most.min(reserved - 1));
        }
        !by_retry || self.goal.most.is_some()
    }

    fn refuses(&mut self) -> bool {
        match self.peek().map(|it| it.action) {
            Some(Action::SegmentFree | Action::SegmentUnmap | Action::FreeCompleted) => true,
            Some(_) => false,
            None => self.want.is_none() || self.overflow.is_some(),
        }
    }

    fn overflows_to(&self) -> Option<Option<PoolId>> {
        Some(self.overflow)
    }

    fn next_pool(&mut self, heap: &Heap) -> Option<PoolId> {
        let event = self.peek()?;
        if !matches!(event.action, Action::SegmentFree | Action::SegmentUnmap) {
            return None;
        }
        let found = heap.find(event.address)?;
        let pool = heap.arena_of(found).pool;
        // One that keeps what was looked for is not the reason.
        let is_new = pool != PoolId(0) && !self.walked.contains(&pool);
        self.walked.extend(is_new.then_some(pool));
        is_new.then_some(pool)
    }

    fn choose(&mut self, found: Option<Slot>, heap: &mut Heap) -> Choice {
        if self.grows {
            if let Some(found) = found {
                self.mismatch(Mismatch::NeedNotGrow);
                self.blamed.push(heap.block(found).address);
            }
            return Choice::Grow;
        }
        if self.overflow.is_some() && found.is_none() {
            return Choice::Grow;
        }
        let Some(want) = self.want else { return Choice::Grow };
        if let Some(found) = found
            && heap.block(found).address == want
        {
            return Choice::Take(found);
        }
        let Some(slot) = heap.find(want).filter(|it| heap.block(*it).state == State::Free) else {
            self.mismatch(Mismatch::NoRoom);
            self.gave_up = true;
            return Choice::GiveUp;
        };
        let Block { address, expandable, .. } = *heap.block(slot);
        // A split limit bars a block from the search; growing begins in it all the same.
        if address == want && expandable && found.is_none() {
            return Choice::GrowInPlace;
        }
        self.blamed.extend(found.map(|it| heap.block(it).address));
        if address == want {
            self.mismatch(Mismatch::OtherBlock);
            return Choice::Take(slot);
        }
        self.mismatch(Mismatch::NotAtStart);
        heap.set_state(slot, State::Vacant);
        let rest = heap.split(slot, want - address);
        heap.set_state(slot, State::Free);
        heap.set_state(rest, State::Free);
        Choice::Take(rest)
    }

    fn synchronize(&mut self, pending: &BTreeSet<Slot>) -> Vec<Slot> {
        let mut res = Vec::new();
        while let Some(event) = self.peek().filter(|it| it.action == Action::FreeCompleted) {
            self.at += 1;
            match self.live.remove(event.address) {
                Some(Live { slot: Some(slot), handle }) if pending.contains(&slot) => {
                    res.push(slot);
                    self.completed.push(handle);
                }
                _ => self.mismatch(Mismatch::NotInUse),
            }
        }
        res
    }
}
