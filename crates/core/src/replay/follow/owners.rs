//! Whose memory it is: the pool that serves a request, and the pool that a segment goes back from. Events say it since torch 2.12;
//! before, it shows in what lies at an address.

use crate::{
    replay::{allocator::Request, follow::follower::Follower, heap::State},
    trace::{Action, Event, PoolId, StackId},
    units::Bytes,
};

impl Follower<'_> {
    /// Whose memory a request is served from: the recording's word, or else what lies there. A request that
    /// failed lies nowhere; it is the pool's that serves the requests before and after it.
    pub(super) fn pool_of(&self, start: usize, end: usize, event: Event) -> PoolId {
        if let Some(pool) = self.pools.of_failed {
            return pool;
        }
        if self.pools.in_events || !self.pools.has_private {
            return event.pool;
        }
        if event.action != Action::Oom {
            return self.pool_served(start, end, event.address);
        }
        if event.stack != StackId::EMPTY && self.pools.default_stacks.contains(&event.stack) {
            return PoolId(0);
        }
        let actions = self.device.events.actions();
        let next = (end..actions.len()).find(|it| actions[*it] == Action::Alloc);
        let next = next.map(|it| self.pool_served(end, it, self.device.events.get(it).address));
        next.filter(|it| *it == self.pools.last).unwrap_or(PoolId(0))
    }

    /// The private pool that served the request at events `start..=end` though the default one was asked,
    /// which had nothing and would have been refused more (`MemPool(use_on_oom=True)`): a request to the pool
    /// itself looks the same but for its stack, which no request has that the default pool served.
    pub(super) fn overflowed(
        &mut self,
        start: usize,
        end: usize,
        event: Event,
        served_by: PoolId,
    ) -> Option<PoolId> {
        let may_be = served_by != PoolId(0)
            && event.action == Action::Alloc
            && event.stack != StackId::EMPTY
            && self.pools.default_stacks.contains(&event.stack)
            && !self.model.traits.graphs.contains(&served_by);
        let actions = &self.device.events.actions()[start..end];
        if !may_be
            || actions.iter().any(|it| matches!(it, Action::SegmentAlloc | Action::SegmentMap))
        {
            return None;
        }
        let Event { size, stream, .. } = event;
        let params = self.model.params(Request { size, stream, pool: PoolId(0) });
        let refused =
            self.limits.most_granted < self.totals.levels.reserved + Bytes(params.alloc_size);
        let served = refused && self.model.get_free_block(&params).is_none();
        served.then_some(served_by)
    }

    /// The pool that `address`, handed out at event `end`, belongs to; segments may come from `start` on.
    pub(super) fn pool_served(&self, start: usize, end: usize, address: u64) -> PoolId {
        if let Some((_, known)) = self.pools.of_segments.range(start..end).next_back() {
            return *known;
        }
        let gains = (start..end).map(|it| self.device.events.get(it));
        let mut gains =
            gains.filter(|it| matches!(it.action, Action::SegmentAlloc | Action::SegmentMap));
        let pool = match gains.next() {
            None => self.pool_at(address),
            // A range grows where its unmapped addresses begin; anywhere else a new one begins.
            Some(gain) => self.model.heap.find(gain.address).and_then(|slot| {
                let block = self.model.heap.block(slot);
                let grows = block.state == State::Unmapped
                    && block.address == gain.address
                    && gain.action == Action::SegmentMap;
                grows.then(|| self.model.heap.arena_of(slot).pool)
            }),
        };
        pool.unwrap_or_default()
    }

    pub(super) fn pool_at(&self, address: u64) -> Option<PoolId> {
        self.model.heap.find(address).map(|it| self.model.heap.arena_of(it).pool)
    }

    /// Whose segment goes back at event `at`; none when nothing does.
    pub(super) fn pool_lost_at(&self, at: usize) -> Option<PoolId> {
        let event = self.device.events.get(at);
        let is_loss = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
        is_loss.then(|| match self.pools.has_private && !self.pools.in_events {
            true => self.pool_at(event.address).unwrap_or(event.pool),
            false => event.pool,
        })
    }
}
