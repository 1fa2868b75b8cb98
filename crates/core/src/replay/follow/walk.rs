//! The walk through a recording: which events are one operation, and what is done with each.

use crate::{
    replay::{
        Program, Replay,
        follow::follower::{Follower, FreesRecorded, Upcoming},
        known::{Refusals, most_granted},
        recorded::Goal,
    },
    trace::Action,
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
        self.walk(events.len());
    }

    /// Follows the events that come next and before `until`, up to one of which only the recording as a whole can tell what it
    /// was.
    pub(super) fn walk(&mut self, until: usize) {
        let events = &self.device.events;
        let FreesRecorded { requests, completions } = self.frees;
        while self.at < until && self.halt.reached.is_none() {
            let at = self.at;
            self.change_settings(at);
            self.model.driver.blamed.clear();
            let event = events.get(at);
            let next = match event.action {
                Action::FreeRequested | Action::FreeCompleted => {
                    self.model.driver.at = at;
                    self.model.driver.end = at;
                    let is_request = event.action == Action::FreeRequested || !requests;
                    let is_completion = event.action == Action::FreeCompleted || !completions;
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
                        let Some(next) = self.operation(at) else { return };
                        next
                    } else {
                        self.free(at, event, is_request, is_completion);
                        at + 1
                    }
                }
                Action::Snapshot | Action::Annotate | Action::Other => at + 1,
                _ => {
                    let Some(next) = self.operation(at) else { return };
                    next
                }
            };
            self.at = next;
            if self.doubt.first.is_none() && self.model.driver.mismatches.n != 0 {
                // Who follows ahead begins anew.
                if !self.is_whole {
                    return;
                }
                self.doubt.first = Some(self.doubt_at(at, next));
                if self.doubt.stops {
                    return;
                }
            }
        }
    }

    /// Takes over what the program set before event `at`.
    fn change_settings(&mut self, at: usize) {
        let changes = self.device.settings_changes.get(self.n_changes..).unwrap_or_default();
        for change in changes.iter().take_while(|it| it.from.index() <= at) {
            self.model.set(self.model.config.changed_by(&change.text));
            self.n_changes += 1;
        }
    }

    /// What comes from event `start` on, up to the request that ends it.
    fn look_ahead(&mut self, start: usize) -> Upcoming {
        if let Some(upcoming) = self.upcoming
            && start <= upcoming.end
            && upcoming.first_gain.is_none_or(|it| start <= it)
            && upcoming.first_loss.is_none_or(|it| start <= it)
        {
            return upcoming;
        }
        let mut res = Upcoming { end: start, first_gain: None, first_loss: None };
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
        self.upcoming = Some(res);
        res
    }

    /// Whether the completion at event `at` may be one of those that a request waited for before it asked the
    /// driver again.
    pub(super) fn may_be_of_a_retry(&mut self, at: usize) -> bool {
        let Upcoming { end, first_gain, first_loss } = self.look_ahead(at);
        match self.device.events.actions().get(end) {
            Some(Action::Oom) => true,
            Some(Action::Alloc) => {
                first_loss.is_some_and(|loss| first_gain.is_none_or(|gain| loss < gain))
            }
            _ => false,
        }
    }

    /// Follows the operation that begins at event `start`; returns the first event after it. None, and nothing is done, when only
    /// the recording as a whole can tell what it was.
    pub(super) fn operation(&mut self, start: usize) -> Option<usize> {
        let events = &self.device.events;
        let Upcoming { end, first_gain, first_loss } = self.look_ahead(start);
        let last = (end < events.len()).then(|| events.get(end));
        let Some(event) = last.filter(|it| it.action != Action::FreeRequested) else {
            self.released(start, end);
            return Some(end);
        };
        let loss = first_loss.filter(|it| first_gain.is_none_or(|gain| *it < gain));
        let lost_until = first_gain.unwrap_or(end);
        if loss.is_some() || event.action == Action::Oom {
            self.ambiguous(start, end, loss.unwrap_or(lost_until), lost_until)?;
        } else {
            self.malloc(start, end, event);
        }
        Some(end + 1)
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
