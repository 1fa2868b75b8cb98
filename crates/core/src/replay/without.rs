//! What would have had to go for a failed request to fit: answered by running the model, never by adding up sizes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        Config, Held,
        allocator::{Allocator, Request},
        driver::FreeDriver,
        follow,
        heap::State,
        slot::Slot,
    },
    trace::{EventId, Trace},
};

/// The allocator as it stood when a recorded request failed, right before it tried.
///
/// Made once by following the recording up to the failure; asked as often as wanted.
#[derive(Clone, Debug)]
pub struct Failure {
    model: Allocator<FreeDriver<'static>>,
    request: Request,
    /// The blocks that the program had, by name.
    live: BTreeMap<Held, Slot>,
}

impl Failure {
    /// Follows the device `index` of `trace` up to `event`, an [`Oom`](crate::trace::Action::Oom). `config` has the
    /// recording's settings, and as its capacity what the allocator could take in all:
    /// [`Program::observed_limit`] when nothing better is known.
    ///
    /// None when there is no such event, or when it is no failed request.
    pub fn at(trace: &Trace, index: usize, config: &Config, event: EventId) -> Option<Failure> {
        let stopped = follow::follow_until(trace, index, config.clone(), event)?;
        let capacity = config.capacity.map_or(u64::MAX, |it| it.0);
        let taken = stopped.model.heap.whole_segments();
        let mapped = stopped.model.reserved() - taken.values().sum::<u64>();
        let driver = FreeDriver::new(capacity.saturating_sub(mapped), &[], taken);
        let changes = trace.devices.get(index).map_or(&[][..], |it| &it.settings_changes);
        Some(Failure {
            model: stopped.model.on(config.at(changes, event), driver),
            request: stopped.request,
            live: stopped.live,
        })
    }

    /// The blocks that the program had. Those that another stream was still using are not among them: they
    /// are waited for anyway.
    pub fn live(&self) -> impl Iterator<Item = Held> {
        self.live.keys().copied()
    }

    /// Whether the request would have been served, had the program given `blocks` back right before it. Blocks
    /// that it did not have then change nothing.
    pub fn fits_without(&self, blocks: &[Held]) -> bool {
        let mut model = self.model.clone();
        let blocks: BTreeSet<&Held> = blocks.iter().collect();
        for slot in blocks.into_iter().filter_map(|it| self.live.get(it)) {
            debug_assert_eq!(
                model.heap.block(*slot).state,
                State::Allocated,
                "it is the program's"
            );
            model.free(*slot);
        }
        model.malloc(self.request).is_ok()
    }
}
