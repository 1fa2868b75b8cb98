//! The walk through a recording: which events are one operation, and what is done with each.

use crate::{
    replay::{
        Program, Replay,
        follow::follower::{Ahead, Follower},
        known::{Refusals, most_granted},
        recorded::Goal,
    },
    trace::{Action, Block, BlockState},
    units::Bytes,
};

impl Follower<'_> {
    pub(super) fn follow(&mut self) {
        let events = &self.device.events;
        let before = self.replay.reserved_before;
        (self.limits.most_granted, self.limits.most_held) =
            most_granted(events, before, &self.model.config);
        let Refusals { device_gives, limit_below } =
            Refusals::of(events, before, &self.model.config);
        self.limits.device_gives = device_gives;
        // Whatever limit there is, it is no less; and where one refused something, there is one.
        let config = &self.model.config;
        let least = config.garbage_line(self.limits.most_granted);
        let most = limit_below
            .filter(|_| 0.0 < config.garbage_collection_threshold)
            .map(|it| config.garbage_line(it.saturating_sub(Bytes(1))).0);
        let Goal { least: known_least, most: known_most } = self.model.driver.goal;
        let driver = &mut self.model.driver;
        driver.most_granted = self.limits.most_granted.0;
        driver.goal = Goal {
            least: known_least.max(least.0),
            most: known_most.into_iter().chain(most).min(),
        };
        // A recorder can be told to skip kinds of events; then one of the two frees stands for both.
        let requests = events.actions().contains(&Action::FreeRequested);
        let is_pending = |it: &Block| it.state == BlockState::PendingFree;
        let completes = events.actions().contains(&Action::FreeCompleted)
            || self.device.blocks.iter().any(is_pending);
        let mut at = 0;
        while at < events.len() && self.halt.reached.is_none() {
            let start = at;
            self.model.driver.blamed.clear();
            let event = events.get(at);
            at = match event.action {
                Action::FreeRequested | Action::FreeCompleted => {
                    self.model.driver.at = at;
                    self.model.driver.end = at;
                    let is_request = event.action == Action::FreeRequested || !requests;
                    let is_completion = event.action == Action::FreeCompleted || !completes;
                    let followed = at + 1 < events.len() && {
                        let next = events.get(at + 1);
                        // One that a later `malloc` completed has the stack of that.
                        next.action == Action::FreeCompleted
                            && next.address == event.address
                            && next.stack == event.stack
                    };
                    if is_request && (is_completion || followed) {
                        self.free(at, event, true, true);
                        if is_completion { at + 1 } else { at + 2 }
                    } else if requests && !is_request && self.may_be_of_a_retry(at) {
                        self.operation(at)
                    } else {
                        self.free(at, event, is_request, is_completion);
                        at + 1
                    }
                }
                Action::Snapshot | Action::Annotate | Action::Other => at + 1,
                _ => self.operation(at),
            };
            if self.doubt.first.is_none() && self.model.driver.mismatches.n != 0 {
                self.doubt.first = Some(self.doubt_at(start, at));
                if self.doubt.stops {
                    return;
                }
            }
        }
    }

    /// What comes from event `start` on, up to the request that ends it.
    fn look_ahead(&mut self, start: usize) -> Ahead {
        if let Some(ahead) = self.ahead
            && start <= ahead.end
            && ahead.first_gain.is_none_or(|it| start <= it)
            && ahead.first_loss.is_none_or(|it| start <= it)
        {
            return ahead;
        }
        let mut res = Ahead { end: start, first_gain: None, first_loss: None };
        while let Some(action) = self.device.events.actions().get(res.end) {
            match action {
                Action::Alloc | Action::Oom | Action::FreeRequested => break,
                Action::SegmentAlloc | Action::SegmentMap => {
                    res.first_gain.get_or_insert(res.end);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    res.first_loss.get_or_insert(res.end);
                }
                _ => {}
            }
            res.end += 1;
        }
        // A run of completions is walked one by one; what comes after it is looked at once.
        self.ahead = Some(res);
        res
    }

    /// Whether the completion at event `at` may be one of those that a request waited for before it asked the
    /// driver again.
    pub(super) fn may_be_of_a_retry(&mut self, at: usize) -> bool {
        let Ahead { end, first_gain, first_loss } = self.look_ahead(at);
        match self.device.events.actions().get(end) {
            Some(Action::Oom) => true,
            Some(Action::Alloc) => {
                first_loss.is_some_and(|loss| first_gain.is_none_or(|gain| loss < gain))
            }
            _ => false,
        }
    }

    /// Follows the operation that begins at event `start`; returns the first event after it.
    pub(super) fn operation(&mut self, start: usize) -> usize {
        let events = &self.device.events;
        let Ahead { end, first_gain, first_loss } = self.look_ahead(start);
        let last = (end < events.len()).then(|| events.get(end));
        let Some(event) = last.filter(|it| it.action != Action::FreeRequested) else {
            self.released(start, end);
            return end;
        };
        let loss = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain));
        let lost_until = first_gain.unwrap_or(end);
        if loss.is_some() || event.action == Action::Oom {
            self.ambiguous(start, end, loss.unwrap_or(lost_until), lost_until);
        } else {
            self.malloc(start, end, event);
        }
        end + 1
    }

    pub(super) fn finish(mut self) -> (Replay, Program) {
        self.model.check_invariants();
        let n_events = self.device.events.len();
        self.model.driver.at = n_events.saturating_sub(1);
        self.model.driver.end = self.model.driver.at;
        self.compare_with_end();
        let Self { mut replay, mut program, model, totals, .. } = self;
        let skipped =
            |it: &&Action| matches!(it, Action::Snapshot | Action::Annotate | Action::Other);
        let n_skipped = self.device.events.actions().iter().filter(skipped).count();
        replay.checked_events = (n_events - n_skipped) as u64;
        replay.mismatches = model.driver.mismatches.first;
        replay.n_mismatches = model.driver.mismatches.n;
        replay.stats = model.stats;
        replay.final_reserved = totals.levels.reserved;
        replay.observed_limit = self.limits.least_refused.map(|refused| {
            // Any limit from the most that was held to just below what was refused explains all.
            let most = replay.peak_reserved.bytes;
            if most < refused { most } else { refused.saturating_sub(Bytes(1)) }
        });
        program.known_limit = model.driver.goal.most.map(|most| {
            let least = model.config.limit_of_garbage_line(Bytes(model.driver.goal.least));
            let most =
                model.config.limit_of_garbage_line(Bytes(most) + Bytes(1)).saturating_sub(Bytes(1));
            let refused = self.limits.least_refused.map_or(most, |it| it.saturating_sub(Bytes(1)));
            most.min(refused).max(least).max(replay.peak_reserved.bytes)
        });
        program.traits = model.traits;
        program.finish(&replay, n_events);
        (replay, program)
    }
}
