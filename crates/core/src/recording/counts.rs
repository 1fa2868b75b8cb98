//! Where a [`Place`] of the notes lies among the events of a device.

use crate::{
    recording::{Notes, Place},
    trace::{Action, DeviceTrace, EventId},
};

/// Where the n-th allocation and the n-th free of the device are.
pub(super) struct Counts {
    device: usize,
    allocs: Vec<EventId>,
    frees: Vec<EventId>,
    /// How many of each the ring has lost.
    lost: (u64, u64),
}

impl Counts {
    /// Those of `device`, which is the one at `index`.
    pub(super) fn of(device: &DeviceTrace, notes: &Notes, index: usize) -> Counts {
        let all = |action: Action| -> Vec<EventId> {
            let actions = (0..).map(EventId).zip(device.events.actions());
            actions.filter(|(_, it)| **it == action).map(|(id, _)| id).collect()
        };
        let (allocs, frees) = (all(Action::Alloc), all(Action::FreeRequested));
        let stats = notes.stats.iter().find(|it| it.device == index);
        let lost = |total: u64, seen: usize| total.saturating_sub(seen as u64);
        let lost =
            stats.map_or((0, 0), |it| (lost(it.allocs, allocs.len()), lost(it.frees, frees.len())));
        Counts { device: index, allocs, frees, lost }
    }

    /// The first event after `place`.
    pub(super) fn event(&self, place: &Place) -> EventId {
        let after = |counts: &[u64], lost: u64, seen: &[EventId]| {
            let n = counts.get(self.device).copied().unwrap_or(0).saturating_sub(lost);
            let n = usize::try_from(n).unwrap_or(usize::MAX).min(seen.len());
            n.checked_sub(1).map_or(0, |it| seen[it].0 + 1)
        };
        let alloc = after(&place.allocs, self.lost.0, &self.allocs);
        EventId(alloc.max(after(&place.frees, self.lost.1, &self.frees)))
    }

    /// The place right before `event`.
    pub(super) fn place(&self, event: EventId) -> Place {
        let count = |lost: u64, seen: &[EventId]| {
            let mut res = vec![0; self.device + 1];
            res[self.device] = lost + seen.partition_point(|it| *it < event) as u64;
            res
        };
        Place { allocs: count(self.lost.0, &self.allocs), frees: count(self.lost.1, &self.frees) }
    }
}
