//! What events may mean that give memory back before a request: the request gave it back itself, in a retry or
//! as garbage; or an `empty_cache` did; or a private pool went. The model tries what is possible, and decides.

use crate::{
    replay::{
        Peak,
        allocator::{Allocator, Request},
        follow::follower::{Follower, Totals, UNNAMED_POOLS},
        recorded::Recorded,
    },
    trace::{Action, Event, PoolId, StackId},
    units::Bytes,
};

/// What events may mean that give memory back, before a request that is served by more memory or fails.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// What was completed was so before the request; what went back, the request gave back.
    Request,
    /// The request waited for what was completed, and gave back what went back.
    RequestThatWaited,
    /// An `empty_cache`, then the request.
    EmptyCache,
    /// The request was part of a graph's capture, for which nothing goes back.
    Captured,
    /// A private pool went, up to this event; what went back after that, the request gave back.
    DroppedPool { until: usize },
}

/// Of how many private pools, the newest, a failed request is tried.
const MOST_POOLS: usize = 8;

/// Everything that an operation changes.
struct Saved<'a> {
    model: Allocator<Recorded<'a>>,
    peaks: [Peak; 3],
    slack_at_peak: Bytes,
    totals: Totals,
    least_refused: Option<Bytes>,
    last_pool: PoolId,
    n_ops: usize,
    n_calls: usize,
    n_blocks: usize,
}

impl<'a> Follower<'a> {
    /// Memory went back to the driver at events `loss..until`, or could have, and at `end` a request was served
    /// or failed. Takes the reading of the events that the model agrees with; of several the likeliest. None when only the
    /// recording as a whole tells which that is.
    pub(super) fn ambiguous(
        &mut self,
        start: usize,
        end: usize,
        loss: usize,
        until: usize,
    ) -> Option<()> {
        let mut readings = vec![Reading::Request, Reading::RequestThatWaited];
        if loss < until {
            let first = if self.released_for(start, end, loss, until)? { 2 } else { 0 };
            readings.insert(first, Reading::EmptyCache);
            let is_default = |it: &usize| self.pool_lost_at(*it).is_none_or(|it| it == PoolId(0));
            let of_default = (loss..until).find(is_default).unwrap_or(until);
            if loss < of_default && of_default < until {
                readings.push(Reading::DroppedPool { until: of_default });
            }
        }
        // Until 2.12 every request to a private pool counts as one, and the ids of pools do not always tell.
        let asked = self.pool_of(start, end, self.device.events.get(end));
        if asked != PoolId(0) && !self.model.is_captured(asked) {
            readings.push(Reading::Captured);
        }
        let mut tries: Vec<(Reading, Option<PoolId>)> =
            readings.iter().map(|it| (*it, None)).collect();
        if !self.pools.in_events && self.device.events.actions()[end] == Action::Oom {
            // A failed request shows no memory that would tell whose it was.
            let private = self.model.heap.private_pools().into_iter().take(MOST_POOLS);
            let empty = PoolId(UNNAMED_POOLS - 1);
            for pool in [PoolId(0)].into_iter().chain(private).chain([empty]) {
                tries.extend(readings.iter().map(|it| (*it, Some(pool))));
            }
        }
        let before = self.save();
        let n_before = self.model.driver.mismatches.n;
        let mut best: Option<(u64, (Reading, Option<PoolId>))> = None;
        for reading in tries {
            self.read_as(reading, start, end, loss, until);
            let n = self.model.driver.mismatches.n - n_before;
            if n == 0 {
                return Some(());
            }
            if best.is_none_or(|(it, _)| n < it) {
                best = Some((n, reading));
            }
            self.restore(&before);
        }
        let reading = best.map_or((Reading::Request, None), |(_, it)| it);
        self.read_as(reading, start, end, loss, until);
        Some(())
    }

    /// Follows the events under a reading; a failed request may be another pool's than it seems.
    fn read_as(
        &mut self,
        (reading, pool): (Reading, Option<PoolId>),
        start: usize,
        end: usize,
        loss: usize,
        until: usize,
    ) {
        let event = self.device.events.get(end);
        self.pools.of_failed = pool;
        match reading {
            Reading::Request => {
                self.complete(start, loss);
                self.malloc(loss, end, event);
            }
            Reading::RequestThatWaited => self.malloc(start, end, event),
            Reading::Captured => {
                let pool = self.pool_of(start, end, event);
                self.model.traits.graphs.insert(pool);
                self.complete(start, loss);
                self.malloc(loss, end, event);
            }
            Reading::EmptyCache => {
                self.released(start, until);
                self.malloc(until, end, event);
            }
            Reading::DroppedPool { until } => {
                self.released(start, until);
                self.malloc(until, end, event);
            }
        }
        self.pools.of_failed = None;
    }

    fn save(&self) -> Saved<'a> {
        let Follower { program, replay, .. } = self;
        Saved {
            model: self.model.clone(),
            peaks: [replay.peak_allocated, replay.peak_reserved, replay.peak_requested],
            slack_at_peak: replay.slack_at_peak,
            totals: self.totals,
            least_refused: self.limits.least_refused,
            last_pool: self.pools.last,
            n_ops: program.ops.len(),
            n_calls: program.script.len(),
            n_blocks: replay.blocks.len(),
        }
    }

    fn restore(&mut self, saved: &Saved<'a>) {
        let Follower { program, replay, .. } = self;
        self.model.clone_from(&saved.model);
        [replay.peak_allocated, replay.peak_reserved, replay.peak_requested] = saved.peaks;
        replay.slack_at_peak = saved.slack_at_peak;
        self.totals = saved.totals;
        self.limits.least_refused = saved.least_refused;
        self.pools.last = saved.last_pool;
        program.ops.truncate(saved.n_ops);
        program.events.truncate(saved.n_ops);
        program.script.truncate(saved.n_calls);
        replay.blocks.truncate(saved.n_blocks);
    }

    /// Whether the release at events `loss..until` was part of the request `event` at `end`, rather than an
    /// `empty_cache` before it.
    ///
    /// A request carries its stack to every segment that it gave back; an `empty_cache` carries its own, where
    /// frees are recorded with stacks, or else none, and then a segment shows the stack that it was allocated
    /// with, which may be the same line. Where stacks say nothing, only a request that takes the run above all
    /// that it was ever granted can have been refused. None when what it was granted later would have to be known.
    fn released_for(
        &mut self,
        start: usize,
        end: usize,
        loss: usize,
        until: usize,
    ) -> Option<bool> {
        let events = &self.device.events;
        let event = events.get(end);
        let Event { size, stream, .. } = event;
        let pool = self.pool_of(start, end, event);
        let own = |it| self.pool_lost_at(it).is_none_or(|it| it == pool);
        // Above a split limit a request gives back of its own pool what it needs.
        let may_release = !self.model.is_captured(pool)
            || (self.model.config.max_split_size.is_some() && (loss..until).all(own));
        if !may_release {
            return Some(false);
        }
        let params = self.model.params(Request { size, stream, pool });
        let mut losses = (loss..until)
            .map(|it| events.get(it))
            .filter(|it| matches!(it.action, Action::SegmentFree | Action::SegmentUnmap));
        if losses.clone().any(|it| it.stack != event.stack) {
            return Some(false);
        }
        let is_free = |it: &usize| events.get(*it).action == Action::SegmentFree;
        let freed = (loss..until).filter(is_free).map(|it| events.get(it).address);
        let losses_are_garbage = || !freed.eq(self.model.releasable(PoolId(0)));
        let is_own = |event: Event| {
            let made = self.segments.made.get(&event.address);
            made.is_some_and(|made| events.stack(*made) == event.stack)
        };
        if event.stack != StackId::EMPTY && (self.frees_have_stacks || !losses.all(is_own)) {
            return Some(true);
        }
        // An `empty_cache` leaves nothing behind; a collection of garbage may.
        if 0.0 < self.model.config.garbage_collection_threshold && losses_are_garbage() {
            return Some(true);
        }
        if !self.is_whole {
            return None;
        }
        // What the device would have given, nobody had to give back.
        let asked = self.totals.levels.reserved + Bytes(params.alloc_size);
        if event.action != Action::Oom && self.limits.device_gives.is_some_and(|it| asked <= it) {
            return Some(false);
        }
        if event.action == Action::Oom
            || self.limits.most_granted.0 < self.totals.levels.reserved.0 + params.alloc_size
        {
            return Some(true);
        }
        // A limit is compared with what is asked for; the device with what would be mapped.
        let is_above = self.model.expandable_active(pool)
            && self.limits.most_held.0
                < self.totals.levels.reserved.0 + self.model.would_map(&params);
        Some(is_above)
    }
}
