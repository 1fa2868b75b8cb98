//! The *checked* replay: the model goes through the recording operation by operation. What belongs to one
//! `malloc`, from the first segment event to the `alloc` or `oom` that ends it, is one operation.
//!
//! `walk` finds the operations, `readings` decides what events mean that may mean several things, `operation` does them. A
//! recording does not say all: `infer` follows it again and again with what it might not have said, led by its first
//! disagreement (`doubt`). It may begin while the recording is still being read (`ahead`).

mod ahead;
mod doubt;
mod follower;
mod infer;
mod operation;
mod owners;
mod readings;
mod walk;

pub use ahead::Ahead;

use std::collections::BTreeMap;

use crate::{
    replay::{
        BlockId, Config, Held, Program, Replay, TorchVersion,
        allocator::{Allocator, Request},
        follow::{
            ahead::FIRST_TRIED,
            follower::Follower,
            infer::{run, run_with_pools},
        },
        heap::State,
        history::id_of,
        known::Known,
        live_blocks::Live,
        recorded::Recorded,
        slot::Slot,
    },
    trace::{DeviceTrace, EventId, Settings, Trace},
};

/// Follows `device` under the recording's own `settings`, with the rules of whichever version of torch
/// explains it best.
pub fn checked(device: &DeviceTrace, settings: &Settings) -> Replay {
    best(device, settings, &Known::default(), None).1.0
}

/// Follows the device `index` of `trace` under `config`, which has the recording's settings: the replay,
/// and what the program asked for.
pub fn follow(trace: &Trace, index: usize, config: Config) -> (Replay, Program) {
    match trace.devices.get(index) {
        Some(device) => run_with_pools(device, &config, &Known::of(trace)),
        None => (Replay::default(), Program::default()),
    }
}

/// Follows the device `index` of `trace` under `config` up to where the request that failed at `event` began.
pub(super) fn follow_until(
    trace: &Trace,
    index: usize,
    config: Config,
    event: EventId,
) -> Option<Stopped<'_>> {
    let device = trace.devices.get(index)?;
    let mut follower = Follower::new(device, config, &Known::of(trace));
    follower.halt.before = Some(event.index());
    follower.follow();
    let request = follower.halt.reached?;
    let n_initial = id_of(follower.replay.initial.len());
    let recorded = follower.model.driver.live.in_order();
    let mut live = BTreeMap::new();
    for Live { slot, handle } in recorded.into_values() {
        let slot = slot.filter(|it| follower.model.heap.block(*it).state == State::Allocated);
        let held = match handle.checked_sub(n_initial) {
            Some(block) => Held::Made(BlockId(block)),
            None => Held::Before(handle),
        };
        live.extend(slot.map(|slot| (held, slot)));
    }
    Some(Stopped { model: follower.model, request, live })
}

/// A recording that was followed up to a request that failed.
pub(super) struct Stopped<'a> {
    pub(super) model: Allocator<Recorded<'a>>,
    /// What was asked for.
    pub(super) request: Request,
    /// What the program had.
    pub(super) live: BTreeMap<Held, Slot>,
}

/// Follows the device `index` of `trace` under its own settings, with the rules of the version of torch that
/// explains it best: that version, as [`follow`] the replay and what the program asked for. Snapshots do not say
/// which version wrote them; of versions that explain the same it is 2.11, or else the newest.
pub fn follow_best(trace: &Trace, index: usize) -> (TorchVersion, (Replay, Program)) {
    follow_on(trace, index, None)
}

/// The same, of a device whose first events were followed `ahead`.
pub fn follow_on(
    trace: &Trace,
    index: usize,
    ahead: Option<Ahead>,
) -> (TorchVersion, (Replay, Program)) {
    let settings = trace.settings.clone().unwrap_or_default();
    match trace.devices.get(index) {
        Some(device) => best(device, &settings, &Known::of(trace), ahead),
        None => (FIRST_TRIED, (Replay::default(), Program::default())),
    }
}

fn best(
    device: &DeviceTrace,
    settings: &Settings,
    known: &Known,
    ahead: Option<Ahead>,
) -> (TorchVersion, (Replay, Program)) {
    let oldest = FIRST_TRIED;
    let mut ahead = ahead.and_then(Ahead::follower);
    let config = |torch| Config::of_recording(settings, torch);
    let mut best: Option<(TorchVersion, (Replay, Program))> = None;
    // What orders the free set: allocator.md, A.5.
    for torch in [oldest, TorchVersion::NEWEST, TorchVersion::two(12)] {
        let found = run(device, &config(torch), known, ahead.take());
        if found.0.n_mismatches == 0 {
            return (torch, found);
        }
        if best.as_ref().is_none_or(|(_, it)| found.0.n_mismatches < it.0.n_mismatches) {
            best = Some((torch, found));
        }
    }
    // Pools that nothing names explain much; what explains all without them came first.
    let found = run_with_pools(device, &config(oldest), known);
    best.filter(|(_, it)| it.0.n_mismatches <= found.0.n_mismatches).unwrap_or((oldest, found))
}
